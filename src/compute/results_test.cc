// A step's reduced results, on every backend: the same as those computed from whole rows of logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/best_tokens.h"
#include "compute/backend.h"
#include "compute/checks.h"
#include "engine/sampling/sampler.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"

namespace weft {
namespace {

using testing::ModelRunner;

std::vector<std::string> BackendsWithBest() {
  std::vector<std::string> names;
  for (const std::string_view name : testing::UsableBackends()) {
    if ((*FindBackend(name))->capabilities().max_best > 0) names.emplace_back(name);
  }
  return names;
}

class ResultsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto model = testing::LoadModel(GetParam(), testing::TinyModelFile("llama"), 512);
    ASSERT_TRUE(model.ok()) << model.status();
    auto runner = ModelRunner::New(*model, {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }
  static std::vector<TokenLogit> Sorted(std::span<const float> row) {
    std::vector<TokenLogit> sorted;
    for (const float logit : row) sorted.push_back({static_cast<TokenId>(sorted.size()), logit});
    std::sort(sorted.begin(), sorted.end(), IsBetter);
    return sorted;
  }

  bool same_bits() const { return (*FindBackend(GetParam()))->capabilities().same_bits; }
  // A backend that adds in another order in another step may swap two close tokens.
  void ExpectSame(const TokenLogit& got, const TokenLogit& wanted) const {
    if (same_bits()) {
      EXPECT_EQ(got.token, wanted.token);
      EXPECT_EQ(got.logit, wanted.logit);
    } else {
      EXPECT_NEAR(got.logit, wanted.logit, kTolerance);
    }
  }

  static constexpr double kTolerance = 1e-4;
  std::unique_ptr<ModelRunner> runner_;
  const std::vector<TokenId> tokens_ = testing::RandomTokens(12, 1);
};

TEST_P(ResultsTest, TheBestTokensAreThoseOfTheWholeRow) {
  const auto whole = runner_->Feed(runner_->Add(), tokens_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const size_t n_vocab = testing::kTinyVocab;
  for (const int64_t n_best : {int64_t{1}, int64_t{5}, int64_t{40}, testing::kTinyVocab}) {
    const std::vector<ModelRunner::Part> parts = {{runner_->Add(), tokens_, 3, n_best}};
    const auto results = runner_->StepFor(parts);
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_TRUE(results->logits.empty());
    ASSERT_EQ(std::ssize(results->best), 3 * n_best);
    for (size_t row = 0; row < 3; ++row) {
      const auto sorted =
          Sorted(std::span(*whole).subspan((tokens_.size() - 3 + row) * n_vocab, n_vocab));
      for (size_t i = 0; i < static_cast<size_t>(n_best); ++i) {
        const TokenLogit& got = results->best[row * static_cast<size_t>(n_best) + i];
        ExpectSame(got, sorted[i]);
      }
    }
  }
}

// Sequences that want whole rows, the best tokens of some rows, or nothing, in any order.
TEST_P(ResultsTest, ASequenceGetsWhatItWantsBesideOthers) {
  const auto whole = runner_->Feed(runner_->Add(), tokens_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const size_t n_vocab = testing::kTinyVocab;
  const auto last = std::span(*whole).last(n_vocab);
  const auto sorted = Sorted(last);
  const auto check_best = [&](std::span<const TokenLogit> best) {
    for (size_t i = 0; i < best.size(); ++i) ExpectSame(best[i], sorted[i]);
  };
  for (int order = 0; order < 6; ++order) {
    std::vector<ModelRunner::Part> parts = {{runner_->Add(), tokens_, 2, 0},
                                            {runner_->Add(), tokens_, 1, 7},
                                            {runner_->Add(), tokens_, 0, 0},
                                            {runner_->Add(), tokens_, 1, 2}};
    std::rotate(parts.begin(), parts.begin() + order % 4, parts.end());
    if (order > 3) std::swap(parts[0], parts[order - 2]);
    const auto results = runner_->StepFor(parts);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->logits.size(), 2 * n_vocab);
    const auto wanted = std::span(*whole).last(2 * n_vocab);
    if (same_bits()) {
      EXPECT_TRUE(std::ranges::equal(results->logits, wanted));
    } else {
      EXPECT_LE(testing::MaxDifference(results->logits, wanted), kTolerance);
    }
    ASSERT_EQ(results->best.size(), 9u);
    const bool seven_first = std::ranges::find(parts, 7, &ModelRunner::Part::n_best) <
                             std::ranges::find(parts, 2, &ModelRunner::Part::n_best);
    check_best(std::span(results->best).first(seven_first ? 7 : 2));
    check_best(std::span(results->best).last(seven_first ? 2 : 7));
  }
}

// Sampling from the best tokens chooses the same token as sampling from the whole row.
TEST_P(ResultsTest, TheSamplerChoosesTheSame) {
  const auto whole = runner_->Feed(runner_->Add(), tokens_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto last = std::span(*whole).last(testing::kTinyVocab);
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    SamplingOptions options;
    options.temperature = temperature;
    Sampler sampler(options, 42);
    const int64_t n_best = sampler.BestNeeded(testing::kTinyVocab);
    ASSERT_GT(n_best, 0);
    const std::vector<ModelRunner::Part> parts = {{runner_->Add(), tokens_, 1, n_best}};
    const auto results = runner_->StepFor(parts);
    ASSERT_TRUE(results.ok()) << results.status();
    for (int64_t position = 0; position < 50; ++position) {
      std::vector<float> row(last.begin(), last.end());
      const TokenId from_row = sampler.Sample(row, {}, position, {});
      EXPECT_EQ(sampler.SampleBest(results->best, position, [](TokenId) { return false; }),
                from_row);
    }
  }
}

TEST_P(ResultsTest, MoreThanItAdvertisesIsRefused) {
  const int64_t most = (*FindBackend(GetParam()))->capabilities().max_best;
  const std::vector<ModelRunner::Part> parts = {{runner_->Add(), tokens_, 1, most + 1}};
  EXPECT_EQ(runner_->StepFor(parts).status().code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, ResultsTest, ::testing::ValuesIn(BackendsWithBest()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(PutBestTest, WhereTheRowIsBrokenOrShortItSaysSo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<TokenLogit> best(3);
  for (const float broken : {std::nanf(""), kInfinity}) {
    PutBest(std::vector<float>{1, broken, 2, 3}, best);
    EXPECT_TRUE(std::isnan(best[0].logit));
  }
  PutBest(std::vector<float>(4, -kInfinity), best);
  EXPECT_TRUE(std::isnan(best[0].logit));
  PutBest(std::vector<float>{1, -kInfinity, 2, -kInfinity}, best);
  EXPECT_EQ(best[0].token, 2);
  EXPECT_EQ(best[1].token, 0);
  EXPECT_TRUE(std::isnan(best[2].logit));
}

}  // namespace
}  // namespace weft
