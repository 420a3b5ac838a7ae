#include "engine/turns/active_turn.h"

#include <gtest/gtest.h>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

class ActiveTurnTest : public ::testing::Test {
 protected:
  ActiveTurnTest() {
    turn_.options.n_choices = 3;
    turn_.queue = std::make_shared<TurnQueue>(8, 3, [] {});
  }
  Lane* AddLane() {
    const int choice = static_cast<int>(turn_.lanes.size());
    turn_.lanes.push_back(std::make_unique<Lane>(choice, &session_, SamplingOptions(), 1,
                                                 TinyModel("llama")->tokenizer(), turn_.options));
    return turn_.lanes.back().get();
  }
  std::vector<int> ChoicesDone() {
    turn_.queue->Finish(OkStatus());
    std::vector<int> choices;
    while (auto event = turn_.queue->Next()) choices.push_back(std::get<DoneEvent>(*event).choice);
    return choices;
  }

  Session session_{SessionRole::kConversation, SessionStage::kReady};
  ActiveTurn turn_;
};

TEST_F(ActiveTurnTest, EndsOnceAllLanesAreDone) {
  Lane* const first = AddLane();
  Lane* const second = AddLane();
  turn_.stage.Become(TurnStage::kReading);
  turn_.EndLane(first, FinishReason::kStop, OkStatus());
  EXPECT_TRUE(first->done());
  EXPECT_FALSE(turn_.has_ended());
  turn_.EndLane(second, FinishReason::kCancelled, OkStatus());
  EXPECT_TRUE(turn_.has_ended());
  EXPECT_EQ(turn_.fate, TurnFate::kCancelled);
}

TEST_F(ActiveTurnTest, ChoicesWithoutALaneEndToo) {
  turn_.stage.Become(TurnStage::kReading);
  AddLane();
  turn_.End(FinishReason::kError, Internal("x"));
  turn_.End(FinishReason::kCancelled, OkStatus());  // too late
  EXPECT_EQ(turn_.fate, TurnFate::kFailed);
  EXPECT_THAT(ChoicesDone(), ::testing::ElementsAre(0, 1, 2));
}

TEST_F(ActiveTurnTest, AQueuedTurnEndsWithoutLanes) {
  turn_.End(FinishReason::kCancelled, OkStatus());
  EXPECT_TRUE(turn_.has_ended());
  EXPECT_TRUE(turn_.lanes.empty());
  EXPECT_THAT(ChoicesDone(), ::testing::ElementsAre(0, 1, 2));
}

TEST_F(ActiveTurnTest, WhatHasEndedStaysSo) {
  turn_.End(FinishReason::kStop, OkStatus());
  EXPECT_DEATH(turn_.stage.Become(TurnStage::kReading), "an ended turn cannot become");
  Lane* const lane = AddLane();
  lane->stage.Become(LaneStage::kPreempted);
  EXPECT_DEATH(lane->stage.Become(LaneStage::kWaitsForDisk), "a preempted lane cannot become");
}

}  // namespace
}  // namespace weft
