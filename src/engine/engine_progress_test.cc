// Prompt progress as reported by a turn.
#include "compute/backend.h"
#include "engine/engine_test_util.h"

namespace weft {
namespace {

using ::testing::SizeIs;

TEST(EngineProgressTest, IsToldFromWhatIsCachedToTheWholePrompt) {
  const std::unique_ptr<Engine> engine = StartEngine();
  TurnOptions options = Greedy(RandomTokens(150, 3), 2);
  options.tokens_are_whole_context = true;
  options.report_progress = true;
  options.prompt_chunks = {50};
  const SessionId session = NewSession(engine.get());
  for (const bool warm : {false, true}) {
    if (warm) options.tokens.resize(200, 7);
    const TurnOutcome outcome = RunTurn(engine.get(), session, options);
    ASSERT_THAT(outcome.progress, SizeIs(::testing::Ge(2u)));
    EXPECT_EQ(outcome.progress.front().done_tokens, outcome.started->cached_tokens);
    EXPECT_EQ(outcome.progress.back().done_tokens, outcome.started->prompt_tokens);
    EXPECT_EQ(outcome.started->cached_tokens > 0, warm);
    for (size_t i = 1; i < outcome.progress.size(); ++i) {
      const ProgressEvent& last = outcome.progress[i - 1];
      const ProgressEvent& now = outcome.progress[i];
      EXPECT_GT(now.done_tokens, last.done_tokens);
      EXPECT_LE(now.done_tokens - last.done_tokens, 50);
      EXPECT_EQ(now.prompt_tokens, outcome.started->prompt_tokens);
      EXPECT_EQ(now.cached_tokens, outcome.started->cached_tokens);
      EXPECT_GE(now.elapsed_us, last.elapsed_us);
    }
  }
  options.report_progress = false;
  EXPECT_TRUE(RunTurn(engine.get(), session, options).progress.empty()) << "nobody asked";
}

TEST(EngineProgressTest, APromptThatWaitsForAnotherIsToldForHowMuch) {
  testing::FaultyBackend backend;
  EngineOptions options = SmallEngine();
  options.max_step_tokens = 16;
  const std::unique_ptr<Engine> engine = StartEngine(options, TinyModel("llama", 1, &backend));
  backend.faults().step_delay_us = 60'000;
  TurnOptions longer = Greedy(RandomTokens(480, 4), 1);
  longer.report_progress = true;
  const auto first = *engine->SubmitOnce("", Greedy(RandomTokens(400, 3), 1));
  const auto second = *engine->SubmitOnce("", longer);
  Collect(first.get());
  backend.faults().step_delay_us = 0;
  std::vector<ProgressEvent> progress = Collect(second.get()).progress;
  // The other takes more than a second. Nobody read meanwhile, so it was told once.
  ASSERT_THAT(progress, SizeIs(::testing::Ge(3u)));
  EXPECT_GT(progress[0].waits_behind_tokens, 0);
  EXPECT_LT(progress[0].waits_behind_tokens, 400);
  EXPECT_EQ(progress[0].prompt_tokens, 480);
  EXPECT_EQ(progress[0].done_tokens, 0);
  EXPECT_EQ(progress[0].elapsed_us, 0);
  for (size_t i = 1; i < progress.size(); ++i) {
    EXPECT_EQ(progress[i].waits_behind_tokens, 0) << "it is computed";
  }
  EXPECT_EQ(progress[1].done_tokens, 0);
  EXPECT_EQ(progress.back().done_tokens, 480);
}

// A client leaves while a long prompt is computed and comes back with the same one.
TEST(EngineProgressTest, WhatACancelledPromptHadComputedIsFoundAgain) {
  EngineOptions small = SmallEngine();
  small.max_pending_events = 4;  // keeps the engine from running ahead of the reader
  small.checkpoint_tokens = 64;
  for (const std::string name : {"llama", "gemma3", "recurrent-llama", "recurrent-gemma3"}) {
    const std::unique_ptr<Engine> engine = StartEngine(small, TinyModel(name));
    TurnOptions options = Greedy(RandomTokens(480, 3), 2);
    options.report_progress = true;
    options.prompt_chunks = {20};
    const auto cancelled = engine->SubmitOnce("", options);
    ASSERT_TRUE(cancelled.ok()) << cancelled.status();
    TurnOutcome outcome;
    while (outcome.progress.empty() || outcome.progress.back().done_tokens < 240) {
      auto event = (*cancelled)->Next();
      ASSERT_TRUE(event.has_value());
      testing::AddEvent(*std::move(event), &outcome);
    }
    (*cancelled)->Cancel();
    const TurnOutcome rest = Collect(cancelled->get());
    EXPECT_EQ(rest.done().reason, FinishReason::kCancelled);
    const auto& last = rest.progress.empty() ? outcome.progress.back() : rest.progress.back();
    EXPECT_LT(last.done_tokens, 480);
    const TurnOutcome again = Collect(engine->SubmitOnce("", options)->get());
    if (name.starts_with("recurrent")) {
      // A step that was abandoned halfway also loses the state after the one before.
      EXPECT_GE(again.started->cached_tokens,
                last.done_tokens / small.checkpoint_tokens * small.checkpoint_tokens)
          << name;
      EXPECT_LE(again.started->cached_tokens, last.done_tokens) << name;
    } else {
      EXPECT_EQ(again.started->cached_tokens, last.done_tokens) << name;
    }
    EXPECT_EQ(again.tokens(), RunAlone(TinyModel(name), small, std::span(&options, 1))[0].tokens());
    EXPECT_OK(engine->CheckIntegrity());
  }
}

}  // namespace
}  // namespace weft
