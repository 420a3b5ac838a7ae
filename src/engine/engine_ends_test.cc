// What ends a turn, and from which token on.
#include <numeric>
#include <span>
#include <vector>

#include "engine/engine_test_util.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {
namespace {

using ::testing::SizeIs;

TurnOutcome SaidOnce(const TurnOptions& options) {
  return RunAlone(TinyModel("llama"), SmallEngine(), std::span(&options, 1))[0];
}

TEST(EngineEnds, AnyOfManyStopTokensEndsATurn) {
  TurnOptions options = Greedy({5, 6}, 10);
  for (int32_t i = 0; i < static_cast<int32_t>(kMaxStopTokens); ++i) {
    options.stop_tokens.push_back(400 - i % 100);  // unsorted, with duplicates
  }
  for (const int32_t stop : {301, 350, 400}) {
    options.token_mask = Script({100, 300, 401, stop, 102});
    EXPECT_EQ(SaidOnce(options).done().stop_token, stop);
  }
}

TEST(EngineEnds, NothingEndsATurnBeforeMinTokens) {
  const int32_t eos = TinyModel("llama")->tokenizer()->eos();
  TurnOptions options = Greedy({5, 6}, 10);
  options.ignore_eos = false;
  const std::vector<int32_t> free = SaidOnce(options).tokens();
  // The model prefers these but may not end yet.
  options.sampling.logit_bias = {{eos, 1000.0f}, {free[0], 500.0f}};
  options.stop_tokens = {free[0]};
  EXPECT_THAT(SaidOnce(options).tokens(), ::testing::ElementsAre(eos));
  options.min_tokens = 4;
  const TurnOutcome late = SaidOnce(options);
  EXPECT_EQ(late.done().reason, FinishReason::kStop);
  EXPECT_EQ(late.done().stop_token, eos);
  ASSERT_THAT(late.tokens(), SizeIs(5));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(late.tokens()[i], eos);
    EXPECT_NE(late.tokens()[i], free[0]);
  }
  // Each choice has its own count.
  options.n_choices = 2;
  const TurnOutcome both = SaidOnce(options);
  for (const auto& choice : both.choices) EXPECT_THAT(choice.tokens, SizeIs(5));
}

TEST(EngineEnds, AStopStringBeforeMinTokensIsText) {
  TurnOptions options = Greedy({5, 6}, 30);
  options.stop_strings = {"STOP"};
  options.min_tokens = 6;
  options.token_mask = Script(Bytes("aSTOPbSTOPc"));
  const TurnOutcome outcome = SaidOnce(options);
  EXPECT_EQ(outcome.done().reason, FinishReason::kStopString);
  EXPECT_EQ(outcome.choices[0].text, "aSTOPb");
}

TEST(EngineEnds, ALoopEndsATurnUnlessItMayNot) {
  std::vector<int32_t> block(40);
  std::iota(block.begin(), block.end(), 100);
  std::vector<int32_t> script;
  for (int i = 0; i < 10; ++i) script.insert(script.end(), block.begin(), block.end());
  TurnOptions options = Greedy({5, 6}, 400);
  options.ignore_eos = false;
  options.token_mask = Script(script);
  const TurnOutcome ended = SaidOnce(options);
  EXPECT_EQ(ended.done().reason, FinishReason::kLoop);
  EXPECT_THAT(ended.tokens(), SizeIs(320));

  TurnOptions free = options;
  free.end_loops = false;
  EXPECT_EQ(SaidOnce(free).done().reason, FinishReason::kLength);
  EXPECT_THAT(SaidOnce(free).tokens(), SizeIs(400));
  free = options;
  free.min_tokens = 352;
  EXPECT_THAT(SaidOnce(free).tokens(), SizeIs(384));  // the first check after the threshold
  free = options;
  free.ignore_eos = true;
  EXPECT_THAT(SaidOnce(free).tokens(), SizeIs(400));
}

}  // namespace
}  // namespace weft
