#include "engine/step_planner.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

LaneView Decoding() { return {.decoding = true, .pending = 1}; }
LaneView Prompt(int64_t pending, int priority = 0, int64_t waited_us = 0) {
  return {.pending = pending, .priority = priority, .waited_us = waited_us};
}

TEST(StepPlannerTest, APromptAloneGetsTheWholeStep) {
  const StepPlanner planner(512, 3);
  EXPECT_THAT(planner.Plan(std::vector{Prompt(2000)}), ElementsAre(512));
  EXPECT_THAT(planner.Plan(std::vector{Prompt(100)}), ElementsAre(100));
}

TEST(StepPlannerTest, EveryDecodingSequenceGetsItsRow) {
  const StepPlanner planner(8, 3);
  EXPECT_THAT(planner.Plan(std::vector{Decoding(), Prompt(100), Decoding()}), ElementsAre(1, 6, 1));
  const std::vector<LaneView> many(20, Decoding());
  const auto rows = planner.Plan(many);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), 8);
}

TEST(StepPlannerTest, APromptIsNotStarvedByDecodingThatFillsTheStep) {
  const StepPlanner planner(4, 3);
  std::vector<LaneView> lanes(6, Decoding());
  lanes.push_back(Prompt(10));
  EXPECT_EQ(planner.Plan(lanes).back(), 1);
}

TEST(StepPlannerTest, PromptRowsBesideDecodingFollowTheMeasuredCost) {
  StepPlanner planner(512, 3);
  planner.Observe(4, 0, 10000);        // 10 ms of decoding alone
  planner.Observe(0, 512, 512 * 200);  // 0.2 ms per prompt row
  // 20 ms more are allowed: 100 rows, in whole units of 16.
  EXPECT_THAT(planner.Plan(std::vector{Decoding(), Prompt(4000)}), ElementsAre(1, 96));
  // Rows so dear that none fits: the smallest chunk is still taken.
  StepPlanner slow(512, 3);
  slow.Observe(1, 0, 1000);
  slow.Observe(0, 16, 16 * 10000);
  EXPECT_THAT(slow.Plan(std::vector{Decoding(), Prompt(4000)}), ElementsAre(1, 16));
}

TEST(StepPlannerTest, ShortPromptsGoFirstAndWaitingBringsALongOneForward) {
  StepPlanner planner(256, 3);
  planner.Observe(0, 256, 256 * 100);  // 0.1 ms per row
  EXPECT_THAT(planner.Plan(std::vector{Prompt(4000), Prompt(200)}), ElementsAre(56, 200));
  // 4,000 rows behind at half a row per 0.1 ms: after 0.8 s the long one leads.
  EXPECT_THAT(planner.Plan(std::vector{Prompt(4000, 0, 800000), Prompt(200)}), ElementsAre(256, 0));
}

TEST(StepPlannerTest, PriorityBeatsLength) {
  const StepPlanner planner(100, 3);
  EXPECT_THAT(planner.Plan(std::vector{Prompt(10), Prompt(500, 1)}), ElementsAre(0, 100));
}

TEST(StepPlannerTest, AChunkLimitOfTheCallerHolds) {
  const StepPlanner planner(100, 3);
  LaneView lane = Prompt(50);
  lane.max_chunk = 7;
  EXPECT_THAT(planner.Plan(std::vector{lane}), ElementsAre(7));
}

}  // namespace
}  // namespace weft
