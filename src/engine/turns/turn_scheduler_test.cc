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

TurnOptions Of(const std::string& tenant, TurnOptions options) {
  options.tenant = tenant;
  return options;
}

int64_t WithoutPlace(const TurnParts& parts) {
  int64_t n = 0;
  for (const auto& turn : parts.turns->running()) {
    for (const auto& lane : turn->lanes) n += lane->stage == LaneStage::kWaitsForPlace ? 1 : 0;
  }
  return n;
}

TEST(TurnSchedulerTest, ATenantGivesPlacesBackWhenAnotherWaits) {
  TurnParts parts(Places(4));
  std::vector<SubmittedTurn> of_a;
  for (TokenId t = 5; t < 15; ++t) of_a.push_back(parts.Submit(Of("a", Greedy({t, 6}, 40))));
  parts.Step();
  EXPECT_EQ(parts.turns->running().size(), 4) << "alone it has all places";
  const SubmittedTurn of_b = parts.Submit(Of("b", Greedy({7, 8}, 2)));
  parts.Step();
  EXPECT_EQ(parts.Find(of_b)->stage, TurnStage::kWriting) << "the next step is its first";
  EXPECT_EQ(WithoutPlace(parts), 1);
  EXPECT_EQ(parts.Find(of_a[3])->lanes[0]->stage, LaneStage::kWaitsForPlace) << "the last";
  while (parts.Find(of_b) != nullptr) parts.Step();
  parts.Begin();
  EXPECT_EQ(parts.Find(of_a[3])->lanes[0]->stage, LaneStage::kReady);
  EXPECT_EQ(WithoutPlace(parts), 0);
  EXPECT_EQ(parts.Find(of_a[4])->stage, TurnStage::kQueued);
  parts.RunAll();
  EXPECT_TRUE(parts.turns->idle());
}

TEST(TurnSchedulerTest, ALaneCountsAsAPlaceWhereTenantsShare) {
  TurnParts parts(Places(4));
  TurnOptions choices = Of("a", Greedy({5, 6}, 40));
  choices.n_choices = 4;
  const SubmittedTurn first = parts.Submit(choices), second = parts.Submit(choices);
  parts.Step();
  parts.Step();
  EXPECT_EQ(parts.Find(first)->lanes.size() + parts.Find(second)->lanes.size(), 8);
  EXPECT_EQ(WithoutPlace(parts), 0) << "alone it has more";
  parts.Submit(Of("b", Greedy({7, 8}, 2)));
  parts.Begin();
  EXPECT_EQ(WithoutPlace(parts), 5);
  parts.RunAll();
  EXPECT_TRUE(parts.turns->idle());
}

TEST(TurnSchedulerTest, PriorityIsAmongATenantsOwn) {
  TurnParts parts(Places(1));
  const SubmittedTurn first = parts.Submit(Of("a", Greedy({5, 6}, 2)));
  parts.Step();
  TurnOptions urgent = Of("a", Greedy({7, 8}, 2));
  urgent.priority = 5;
  const SubmittedTurn second = parts.Submit(urgent);
  const SubmittedTurn of_b = parts.Submit(Of("b", Greedy({9, 10}, 2)));
  while (parts.Find(first) != nullptr) parts.Step();
  parts.Begin();
  EXPECT_EQ(parts.Find(second)->stage, TurnStage::kQueued);
  EXPECT_EQ(parts.Find(of_b)->stage, TurnStage::kReading) << "it has had less";
}

TEST(TurnSchedulerTest, AFullQueueRefusesOnlyTheTenantThatFilledIt) {
  TurnParts parts(Places(1, 4));
  for (TokenId t = 5; t < 10; ++t) parts.Submit(Of("a", Greedy({t}, 2)));
  const auto is_refused = [&](const std::string& tenant) {
    return parts.turns->SubmitOnce("", Of(tenant, Greedy({7}, 2))).status().code() ==
           StatusCode::kResourceExhausted;
  };
  EXPECT_TRUE(is_refused("a"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(is_refused("b"));
  EXPECT_TRUE(is_refused("b")) << "its half of the queue and a place";
  EXPECT_FALSE(is_refused("c"));
}

TEST(TurnSchedulerTest, AFullQueueRefuses) {
  TurnParts parts(Places(1, 1));
  parts.Submit(Greedy({5}, 2));
  parts.Submit(Greedy({6}, 2));
  EXPECT_THAT(parts.turns->SubmitOnce("", Greedy({7}, 2)).status(),
              IsError(StatusCode::kResourceExhausted, "the queue is full"));
  EXPECT_THAT(parts.turns->CheckQueue(""),
              IsError(StatusCode::kResourceExhausted, "the queue is full"));
  EngineStats stats;
  parts.turns->FillStats(&stats);
  EXPECT_EQ(stats.turns_refused, 2);
  EXPECT_OK(parts.turns->CheckQueue("another tenant"));
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
  EXPECT_EQ(stats.cached_tokens, 80);  // whole pages of the shared prefix
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
  EXPECT_FALSE(session->has_turn);
  EXPECT_EQ(parts.turns->FindOn(session->id), nullptr);
  EXPECT_EQ(session->tokens, before);
  EngineStats stats;
  parts.turns->FillStats(&stats);
  EXPECT_EQ(stats.turns_cancelled, 1);
}

TEST(TurnSchedulerTest, NothingIsAcceptedAfterTheEnd) {
  TurnParts parts;
  EXPECT_OK(parts.turns->CheckQueue(""));
  parts.turns->StopAccepting();
  EXPECT_THAT(parts.turns->SubmitOnce("", Greedy({5}, 2)).status(),
              IsError(StatusCode::kUnavailable, "shutting down"));
  EXPECT_THAT(parts.turns->CheckQueue(""), IsError(StatusCode::kUnavailable, "shutting down"));
}

}  // namespace
}  // namespace weft
