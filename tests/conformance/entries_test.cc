// Attention to compressed entries (DeepSeek V4): what the reference data's short runs do not reach.
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_model.h"

namespace weft::testing {
namespace {

// Entries of 128 positions: runs of several hundred tokens, cut within and at their ends, with
// pages that hold less than an entry's run, forked and moved in the middle of one.
class EntriesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto run = ReadLongRun(kModel);
    ASSERT_TRUE(run.ok()) << run.status();
    tokens_ = run->tokens;
    auto model = LoadModel(GetParam(), FloatModelPath(kModel), run->context_tokens);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto whole = RunTokens(model_, tokens_);
    ASSERT_TRUE(whole.ok()) << whole.status();
    whole_ = *std::move(whole);
  }

  const std::string kModel = "own-deepseek4";
  std::vector<TokenId> tokens_;
  LoadedModel model_;
  std::vector<float> whole_;
};

TEST_P(EntriesTest, CutsAndPages) {
  const std::vector<std::vector<int64_t>> cuts = {{1}, {127, 1, 5, 123, 3}, {64}, {130}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    RunnerOptions options;
    options.state.page_tokens = i % 2 == 0 ? 16 : 64;
    options.page_seed = 20 + i;
    options.drop_behind_window = i != 1;
    options.executor.n_threads = 1 + static_cast<int>(i % 3);
    const auto logits = RunTokens(model_, tokens_, cuts[i], options);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_TRUE(SameBytes(*logits, whole_)) << cuts[i][0] << " at a time";
  }
}

TEST_P(EntriesTest, ForkedAndMovedWithinARun) {
  const std::span<const TokenId> tokens(tokens_);
  constexpr size_t kSplit = 250;
  for (const DType kv_type : {DType::kF16, DType::kQ8_0}) {
    RunnerOptions options;
    options.state.kv_type = kv_type;
    const auto expected = RunTokens(model_, tokens, {}, options);
    if (expected.status().code() == StatusCode::kInvalidArgument) continue;  // rows too short
    ASSERT_TRUE(expected.ok()) << expected.status();
    const size_t n_vocab = expected->size() / tokens.size();
    const auto tail = std::span(*expected).subspan(kSplit * n_vocab);
    options.page_seed = 5;
    options.drop_behind_window = true;
    const auto runner = ModelRunner::New(model_, options);
    options.page_seed = 6;
    const auto other = ModelRunner::New(model_, options);
    ASSERT_TRUE(runner.ok() && other.ok());
    const int origin = (*runner)->Add();
    ASSERT_TRUE((*runner)->Feed(origin, tokens.first(kSplit)).ok());
    const auto fork = (*runner)->Fork(origin);
    ASSERT_TRUE(fork.ok()) << fork.status();
    ASSERT_TRUE((*runner)->Feed(*fork, tokens.first(20)).ok());
    const auto moved = (*runner)->MoveTo(origin, other->get());
    ASSERT_TRUE(moved.ok()) << moved.status();
    const auto by_origin = (*runner)->Feed(origin, tokens.subspan(kSplit));
    const auto by_moved = (*other)->Feed(*moved, tokens.subspan(kSplit));
    ASSERT_TRUE(by_origin.ok() && by_moved.ok());
    EXPECT_TRUE(SameBytes(*by_origin, tail)) << NameOf(kv_type);
    EXPECT_TRUE(SameBytes(*by_moved, tail)) << NameOf(kv_type);
  }
}

INSTANTIATE_TEST_SUITE_P(Own, EntriesTest, ::testing::Values("cpu", "reference"),
                         [](const auto& info) { return info.param; });

// Weights of 8 and 4 bits: the cpu backend rounds activations, but stays close to the reference.
// Up to this length the index chooses all entries, so that no rounding changes the choice.
TEST(QuantizedEntries, CpuIsCloseToTheReference) {
  const std::string path =
      StrCat(std::filesystem::temp_directory_path().string(), "/weft_entries_", getpid(), ".gguf");
  const auto shape = tools::FindShape("tiny-deepseek4");
  ASSERT_TRUE(shape.ok()) << shape.status();
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 34; ++i) tokens.push_back(300 + i * 37);
  for (const char* type : {"Q8_0", "MXFP4"}) {
    tools::MakeModelOptions options;
    options.type = type;
    const auto made = tools::MakeModel(*shape, options, path);
    ASSERT_TRUE(made.ok()) << made.status();
    std::vector<std::vector<float>> logits;
    int64_t n_vocab = 0;
    for (const char* backend : {"reference", "cpu"}) {
      const auto model = LoadModel(backend, path, 256);
      ASSERT_TRUE(model.ok()) << model.status();
      n_vocab = model->weights->spec().n_vocab;
      const auto run = RunTokens(*model, tokens);
      ASSERT_TRUE(run.ok()) << run.status();
      logits.push_back(*run);
    }
    EXPECT_LT(MeanKl(logits[0], logits[1], n_vocab), 0.1) << type;
    EXPECT_GT(MeanKl(logits[0], logits[1], n_vocab), 0) << "activations are rounded";
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weft::testing
