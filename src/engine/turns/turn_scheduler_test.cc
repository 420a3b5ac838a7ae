#include "engine/turns/turn_scheduler.h"

#include <gtest/gtest.h>

#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

EngineOptions Places(int max_running, int max_queued = 16) {
  EngineOptions options = SmallEngine();
  options.max_running = max_running;
  options.max_queued = max_queued;
  return options;
}

TEST(TurnSchedulerTest, PlacesGoToTheHighestPriorityThenToTheFirst) {
  TurnParts parts(Places(2));
  const SubmittedTurn first = parts.Submit(Greedy({5, 6}, 2));
  const SubmittedTurn second = parts.Submit(Greedy({7, 8}, 2));
  TurnOptions urgent = Greedy({9, 10}, 2);
  urgent.priority = 1;
  const SubmittedTurn third = parts.Submit(urgent);
  parts.Begin();
  EXPECT_EQ(parts.Find(third)->stage, TurnStage::kReading);
  EXPECT_EQ(parts.Find(first)->stage, TurnStage::kReading);
  EXPECT_EQ(parts.Find(second)->stage, TurnStage::kQueued);
  EXPECT_EQ(parts.Find(second)->session->stage, SessionStage::kQueued);
  EXPECT_EQ(parts.turns->waiting(), 1);
  EXPECT_EQ(parts.turns->running().front().get(), parts.Find(third));
}

TEST(TurnSchedulerTest, AFullQueueRefuses) {
  TurnParts parts(Places(1, 1));
  parts.Submit(Greedy({5}, 2));
  parts.Submit(Greedy({6}, 2));
  EXPECT_THAT(parts.turns->SubmitOnce("", Greedy({7}, 2)).status(),
              IsError(StatusCode::kResourceExhausted, "the queue is full"));
  EngineStats stats;
  parts.turns->FillStats(&stats);
  EXPECT_EQ(stats.turns_refused, 1);
  EXPECT_EQ(parts.table->size(), 0);  // none of these sessions counts
}

TEST(TurnSchedulerTest, ASecondTurnOfASessionIsRefused) {
  TurnParts parts;
  Session* const session = parts.Named("a");
  EXPECT_OK(parts.turns->Submit(session, Greedy({5}, 2), false).status());
  EXPECT_THAT(parts.turns->Submit(session, Greedy({5}, 2), false).status(),
              IsError(StatusCode::kFailedPrecondition, "a turn of this session is running"));
}

TEST(TurnSchedulerTest, ASiblingWaitsForWhatAnotherComputes) {
  TurnParts parts;
  std::vector<TokenId> prompt = RandomTokens(100, 1);
  const SubmittedTurn leader = parts.Submit(Greedy(prompt, 2));
  prompt[80] = prompt[80] == 5 ? 6 : 5;
  const SubmittedTurn sibling = parts.Submit(Greedy(prompt, 2));
  const SubmittedTurn other = parts.Submit(Greedy(RandomTokens(100, 2), 2));
  parts.Begin();
  EXPECT_EQ(parts.Find(leader)->lanes[0]->stage, LaneStage::kReady);
  EXPECT_EQ(parts.Find(sibling)->lanes[0]->stage, LaneStage::kWaitsForSibling);
  EXPECT_EQ(parts.Find(other)->lanes[0]->stage, LaneStage::kReady);
  parts.RunAll();
  EXPECT_TRUE(parts.turns->idle());
  EngineStats stats;
  parts.steps->FillStats(&stats);
  EXPECT_EQ(stats.cached_tokens, 80);  // whole pages of what they share
  EXPECT_EQ(stats.prompt_tokens, 100 + 20 + 100);
}

TEST(TurnSchedulerTest, ASiblingTakesOverFromOneThatIsCancelled) {
  TurnParts parts;
  const std::vector<TokenId> prompt = RandomTokens(100, 1);
  const SubmittedTurn leader = parts.Submit(Greedy(prompt, 2));
  const SubmittedTurn sibling = parts.Submit(Greedy(prompt, 2));
  const SubmittedTurn third = parts.Submit(Greedy(prompt, 2));
  parts.Begin();
  EXPECT_EQ(parts.Find(third)->lanes[0]->stage, LaneStage::kWaitsForSibling);
  *leader.cancelled = true;
  parts.Begin();
  EXPECT_EQ(parts.Find(leader), nullptr);
  EXPECT_EQ(parts.Find(sibling)->lanes[0]->stage, LaneStage::kReady);
  EXPECT_EQ(parts.Find(third)->lanes[0]->stage, LaneStage::kWaitsForSibling);
}

TEST(TurnSchedulerTest, ATurnThatIsCutInItsPromptLeavesTheSessionAsItWas) {
  TurnParts parts;
  Session* const session = parts.Named("a");
  parts.Fill(session, 20);
  const std::vector<TokenId> before = session->tokens;
  TurnOptions options = Greedy(RandomTokens(30, 9), 2);
  options.tokens_are_whole_context = true;
  const auto turn = parts.turns->Submit(session, options, false);
  ASSERT_TRUE(turn.ok()) << turn.status();
  parts.Begin();
  EXPECT_EQ(std::ssize(session->tokens), 30);
  EXPECT_EQ(session->stage, SessionStage::kRunning);
  *turn->cancelled = true;
  parts.Sweep();
  EXPECT_EQ(session->stage, SessionStage::kReady);
  EXPECT_EQ(session->turn, nullptr);
  EXPECT_EQ(session->tokens, before);
  EngineStats stats;
  parts.turns->FillStats(&stats);
  EXPECT_EQ(stats.turns_cancelled, 1);
}

TEST(TurnSchedulerTest, NothingIsAcceptedAfterTheEnd) {
  TurnParts parts;
  parts.turns->StopAccepting();
  EXPECT_THAT(parts.turns->SubmitOnce("", Greedy({5}, 2)).status(),
              IsError(StatusCode::kUnavailable, "shutting down"));
}

}  // namespace
}  // namespace weft
