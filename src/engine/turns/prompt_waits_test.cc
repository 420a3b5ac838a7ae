#include "engine/turns/prompt_waits.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/clock.h"
#include "engine/engine_parts_test_util.h"

namespace weft {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr auto kNoInterrupt = [] { return false; };

int64_t WaitOf(TurnParts* parts, const SubmittedTurn& turn) {
  return parts->Find(turn)->waits_behind_tokens;
}

std::optional<ProgressEvent> TakeProgress(const SubmittedTurn& turn) {
  bool finished = false;
  const auto event = turn.queue->TryNext(&finished);
  if (!event) return std::nullopt;
  return std::get<ProgressEvent>(*event);
}

TurnOptions Whole(std::vector<TokenId> tokens) {
  TurnOptions options = Greedy(std::move(tokens), 2);
  options.tokens_are_whole_context = true;
  return options;
}

// Runs until the open step has ended.
void EndStep(TurnParts* parts, const SubmittedTurn& turn) {
  while (parts->Find(turn)->in_step()) parts->steps->Run(kNoInterrupt);
}

TEST(PromptWaitsTest, ALongPromptWaitsForAShorterOneUntilThatIsDone) {
  TurnParts parts;
  const SubmittedTurn first = parts.Submit(Greedy(RandomTokens(300, 1), 2));
  const SubmittedTurn second = parts.Submit(Greedy(RandomTokens(450, 2), 2));
  parts.Begin();
  parts.steps->Plan();
  parts.waits->Look(NowMicros());
  EXPECT_EQ(WaitOf(&parts, first), 0);
  EXPECT_EQ(WaitOf(&parts, second), 300);
  const std::vector<TurnInfo> infos = parts.turns->Describe();
  EXPECT_EQ(infos[0].stage, TurnInfo::Stage::kReading);
  EXPECT_EQ(infos[1].stage, TurnInfo::Stage::kWaiting);
  EXPECT_EQ(infos[1].waits_behind_tokens, 300);
  EndStep(&parts, first);
  parts.waits->Look(NowMicros());
  EXPECT_EQ(WaitOf(&parts, second), 300 - parts.Find(first)->session->computed());
  // A short one that comes later waits for neither, and they for it.
  const SubmittedTurn third = parts.Submit(Greedy(RandomTokens(20, 3), 2));
  parts.Begin();
  parts.steps->Plan();
  parts.waits->Look(NowMicros());
  EXPECT_EQ(WaitOf(&parts, third), 0);
  parts.RunAll();
  EXPECT_TRUE(parts.turns->idle());
}

TEST(PromptWaitsTest, ASiblingWaitsForTheTokensThatItNeeds) {
  TurnParts parts;
  std::vector<TokenId> prompt = RandomTokens(300, 1);
  const SubmittedTurn leader = parts.Submit(Greedy(prompt, 2));
  prompt.resize(250);
  prompt[160] = prompt[160] == 5 ? 6 : 5;
  const SubmittedTurn sibling = parts.Submit(Greedy(prompt, 2));
  TurnOptions last = Greedy(RandomTokens(450, 2), 2);
  last.priority = -1;
  const SubmittedTurn third = parts.Submit(last);
  parts.Begin();
  ASSERT_EQ(parts.Find(sibling)->lanes[0]->stage, LaneStage::kWaitsForSibling);
  parts.waits->Look(NowMicros());
  EXPECT_EQ(WaitOf(&parts, leader), 0);
  EXPECT_EQ(WaitOf(&parts, sibling), 160);
  EXPECT_EQ(WaitOf(&parts, third), 300 + 90) << "of the sibling only what is its own";
}

TEST(PromptWaitsTest, WhoIsQueuedWaitsForAllThatRunAndThoseBefore) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  TurnParts parts(options);
  std::vector<TokenId> known = RandomTokens(100, 9);
  parts.Submit(Whole(known));
  parts.RunAll();
  const SubmittedTurn first = parts.Submit(Whole(RandomTokens(300, 1)));
  parts.Begin();
  known.resize(130, 7);
  const SubmittedTurn second = parts.Submit(Whole(known));
  const SubmittedTurn third = parts.Submit(Whole(RandomTokens(200, 2)));
  TurnOptions urgent = Whole(RandomTokens(40, 3));
  urgent.priority = 1;
  const SubmittedTurn fourth = parts.Submit(urgent);
  parts.waits->Look(NowMicros());
  EXPECT_EQ(WaitOf(&parts, first), 0);
  EXPECT_EQ(WaitOf(&parts, fourth), 300);
  EXPECT_EQ(WaitOf(&parts, second), 300 + 40);
  const int64_t found = parts.memory->Reusable("", known, 129);
  EXPECT_GE(found, 96);
  EXPECT_EQ(WaitOf(&parts, third), 300 + 40 + 130 - found);
  EXPECT_EQ(parts.turns->Describe()[2].stage, TurnInfo::Stage::kQueued);
}

TEST(PromptWaitsTest, AWaitIsToldOnceASecondToWhoeverReads) {
  TurnParts parts;
  const SubmittedTurn first = parts.Submit(Greedy(RandomTokens(300, 1), 2));
  TurnOptions options = Greedy(RandomTokens(450, 2), 2);
  const SubmittedTurn silent = parts.Submit(options);
  options.tokens = RandomTokens(450, 3);
  options.report_progress = true;
  options.priority = -1;
  const SubmittedTurn told = parts.Submit(options);
  parts.Begin();
  parts.steps->Plan();
  const int64_t submitted_us = parts.Find(told)->submitted_us;
  parts.waits->Look(submitted_us + kSecond - 1);
  EXPECT_FALSE(TakeProgress(told)) << "a short wait is not told";
  parts.waits->Look(submitted_us + kSecond);
  const auto progress = TakeProgress(told);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->waits_behind_tokens, 750);
  EXPECT_EQ(progress->prompt_tokens, 450);
  EXPECT_EQ(progress->done_tokens, 0);
  EXPECT_EQ(progress->elapsed_us, 0);
  EXPECT_FALSE(TakeProgress(silent)) << "it did not ask";
  parts.waits->Look(submitted_us + 5 * kSecond);
  EXPECT_FALSE(TakeProgress(told)) << "the figure is the same";
  EndStep(&parts, first);
  const int64_t computed = parts.Find(first)->session->computed();
  ASSERT_GT(computed, 0);
  parts.waits->Look(submitted_us + 2 * kSecond - 1);
  EXPECT_FALSE(TakeProgress(told)) << "it was told less than a second ago";
  parts.waits->Look(submitted_us + 2 * kSecond);
  // Nobody has read this one, so that nothing is added to it.
  parts.Step();
  EndStep(&parts, first);
  parts.waits->Look(submitted_us + 4 * kSecond);
  const auto next = TakeProgress(told);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->waits_behind_tokens, 750 - computed);
  EXPECT_FALSE(TakeProgress(told));
}

}  // namespace
}  // namespace weft
