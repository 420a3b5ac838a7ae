// How far a prompt is, as its turn reports it.
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

}  // namespace
}  // namespace weft
