// What language models do with the rows of a picture: attend to each other, and take positions on a
// plane. On every backend that can, against the reference, and bit for bit in any steps.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_model.h"

namespace weft::testing {
namespace {

constexpr double kTolerance = 1e-3;  // of logits
constexpr int64_t kTokens = 60;
constexpr TokenRun kRun = {10, 30};
constexpr TokenRun kOfTwo[] = {{10, 30}, {41, 43}};

std::vector<std::string> Backends() {
  std::vector<std::string> names;
  for (const std::string_view name : UsableBackends()) {
    if ((*FindBackend(name))->capabilities().mutual) names.emplace_back(name);
  }
  return names;
}

std::vector<TokenId> Tokens(int64_t n = kTokens) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(7 + i * 37 % 200));
  return tokens;
}

class PictureRowsTest : public ::testing::TestWithParam<std::string> {
 protected:
  PictureRowsTest()
      : path_(::testing::TempDir() + "weft_picture_rows_" + std::to_string(getpid()) + ".gguf") {}
  ~PictureRowsTest() override { std::filesystem::remove(path_); }

  void Make(const std::string& shape_name) {
    const auto shape = tools::FindShape(shape_name);
    ASSERT_TRUE(shape.ok()) << shape.status();
    const auto made = tools::MakeModel(*shape, {.type = "F32"}, path_);
    ASSERT_TRUE(made.ok()) << made.status();
  }
  std::unique_ptr<ModelRunner> Runner(const std::string& backend, int n_threads = 1) {
    auto model = LoadModel(backend, path_, 0);
    EXPECT_TRUE(model.ok()) << model.status();
    RunnerOptions options;
    options.executor.n_threads = n_threads;
    auto runner = ModelRunner::New(*model, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
  // All logits of one step.
  static std::vector<float> Logits(ModelRunner* runner, const ModelRunner::Part& part) {
    auto logits = runner->Step(std::span(&part, 1));
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *std::move(logits) : std::vector<float>();
  }
  // The logits of the tokens in one step.
  std::vector<float> Whole(const std::string& backend, const std::vector<TokenId>& tokens,
                           std::span<const TokenRun> mutual) {
    const auto runner = Runner(backend);
    return Logits(runner.get(), {.sequence = runner->Add(), .tokens = tokens, .mutual = mutual});
  }

  const std::string path_;
};

TEST_P(PictureRowsTest, RunsSeeTheirLaterTokensAsTheReferenceSays) {
  for (const char* const shape : {"tiny-gemma3", "tiny-llama"}) {
    Make(shape);
    const std::vector<float> logits = Whole(GetParam(), Tokens(), kOfTwo);
    EXPECT_LE(MaxDifference(logits, Whole("reference", Tokens(), kOfTwo)), kTolerance);
    EXPECT_GT(MaxDifference(logits, Whole(GetParam(), Tokens(), {})), kTolerance);
  }
}

TEST_P(PictureRowsTest, OnlyTokensOfTheRunSeeItsEnd) {
  Make("tiny-gemma3");
  const std::span<const TokenRun> run(&kRun, 1);
  std::vector<TokenId> changed = Tokens();
  changed[kRun.end - 1] = 3;
  const std::vector<float> before = Whole(GetParam(), Tokens(), run);
  const std::vector<float> after = Whole(GetParam(), changed, run);
  const auto n_vocab = static_cast<int64_t>(before.size()) / kTokens;
  for (int64_t token = 0; token < kRun.end; ++token) {
    EXPECT_EQ(SameBytes(LogitRow(before, n_vocab, token), LogitRow(after, n_vocab, token)),
              token < kRun.begin)
        << token;
  }
}

TEST_P(PictureRowsTest, StepsThreadsAndNeighboursChangeNoBit) {
  Make("tiny-gemma3");
  const std::vector<TokenId> tokens = Tokens();
  const std::span<const TokenRun> run(&kRun, 1);
  const std::vector<float> whole = Whole(GetParam(), tokens, run);
  const auto runner = Runner(GetParam(), 2);
  const int sequence = runner->Add(), neighbour = runner->Add();
  const std::vector<TokenId> others = Tokens(100);
  const TokenRun of_neighbour = {0, 90}, moved = {4, 24};
  std::vector<float> in_steps =
      Logits(runner.get(), {.sequence = sequence, .tokens = std::span(tokens).first(6)});
  const ModelRunner::Part parts[] = {{.sequence = sequence,
                                      .tokens = std::span(tokens).subspan(6, 24),
                                      .mutual = std::span(&moved, 1)},
                                     {.sequence = neighbour,
                                      .tokens = others,
                                      .n_logits = 0,
                                      .mutual = std::span(&of_neighbour, 1)}};
  const auto middle = runner->Step(parts);
  ASSERT_TRUE(middle.ok()) << middle.status();
  in_steps.insert(in_steps.end(), middle->begin(), middle->end());
  for (int64_t i = 30; i < kTokens; ++i) {
    const std::vector<float> one =
        Logits(runner.get(), {.sequence = sequence, .tokens = std::span(tokens).subspan(i, 1)});
    in_steps.insert(in_steps.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(SameBytes(in_steps, whole));
}

TEST_P(PictureRowsTest, RunsOutsideOfTheStepAndOtherModelsAreRefused) {
  Make("tiny-gemma3");
  const auto runner = Runner(GetParam());
  const std::vector<TokenId> tokens = Tokens();
  for (const TokenRun run : {TokenRun{-1, 3}, TokenRun{5, 5}, TokenRun{50, kTokens + 1}}) {
    const ModelRunner::Part part = {
        .sequence = runner->Add(), .tokens = tokens, .mutual = std::span(&run, 1)};
    EXPECT_EQ(runner->Step(std::span(&part, 1)).status().code(), StatusCode::kInvalidArgument);
  }
  Make("tiny-lfm2");
  const auto recurrent = Runner(GetParam());
  const ModelRunner::Part part = {
      .sequence = recurrent->Add(), .tokens = tokens, .mutual = std::span(&kRun, 1)};
  EXPECT_EQ(recurrent->Step(std::span(&part, 1)).status().code(), StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(All, PictureRowsTest, ::testing::ValuesIn(Backends()));

}  // namespace
}  // namespace weft::testing
