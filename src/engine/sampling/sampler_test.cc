#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "engine/sampling/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

SamplingOptions Plain() {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

TokenId SampleOnce(const SamplingOptions& options, std::vector<float> logits,
                   const std::vector<TokenId>& context = {}, int64_t position = 0,
                   uint64_t seed = 7, std::span<const uint32_t> allowed = {}) {
  return Sampler(options, seed).Sample(logits, context, position, allowed);
}

// How often each token is sampled at positions 0..n-1.
std::map<TokenId, int> Draws(const SamplingOptions& options, const std::vector<float>& logits,
                             int n, const std::vector<TokenId>& context = {}) {
  std::map<TokenId, int> counts;
  for (int i = 0; i < n; ++i) ++counts[SampleOnce(options, logits, context, i)];
  return counts;
}

TEST(SamplerTest, GreedyTakesTheBestAndTheLowestOfEquals) {
  EXPECT_EQ(SampleOnce(SamplingOptions::Greedy(), {0, 3, 1, 3}), 1);
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  auto counts = Draws(Plain(), logits, 20000);
  EXPECT_NEAR(counts[0], 10000, 300);
  EXPECT_NEAR(counts[1], 6000, 300);
  EXPECT_NEAR(counts[2], 4000, 300);
}

TEST(SamplerTest, TheDrawIsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(100, 1.0f);
  const TokenId first = SampleOnce(Plain(), logits, {}, 5, 1);
  EXPECT_EQ(SampleOnce(Plain(), logits, {}, 5, 1), first);
  int different = 0;
  for (uint64_t seed = 2; seed < 12; ++seed) {
    different += SampleOnce(Plain(), logits, {}, 5, seed) != first;
  }
  EXPECT_GE(different, 8);
  EXPECT_NE(ChoiceSeed(1, 1), ChoiceSeed(1, 0));
}

TEST(SamplerTest, TopKKeepsTheBest) {
  SamplingOptions options = Plain();
  options.top_k = 2;
  const auto counts = Draws(options, {1, 5, 4.9f, 4.8f, 0}, 500);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2));
}

TEST(SamplerTest, TopKOneIsGreedyAmongEquals) {
  SamplingOptions options = Plain();
  options.top_k = 1;
  EXPECT_EQ(SampleOnce(options, {2, 9, 9, 9}), 1);
}

TEST(SamplerTest, TopPKeepsTheSmallestSufficientSet) {
  SamplingOptions options = Plain();
  options.top_p = 0.7f;
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.1f)};
  const auto counts = Draws(options, logits, 500);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2));
}

TEST(SamplerTest, MinPDropsTheImprobable) {
  SamplingOptions options = Plain();
  options.min_p = 0.5f;
  const std::vector<float> logits = {std::log(0.6f), std::log(0.29f), std::log(0.11f)};
  EXPECT_EQ(Draws(options, logits, 500).size(), 1u);
  options.min_p = 0.4f;
  EXPECT_EQ(Draws(options, logits, 500).size(), 2u);
}

// Sampling from the top candidates, banned ones among them, equals sampling from the whole row.
TEST(SamplerTest, TheBestTokensAreEnoughWhereItSaysSo) {
  constexpr int64_t kVocab = 300;
  std::mt19937 random(9);
  const std::vector<TokenId> banned = {3, 17, 250};
  const auto is_banned = [&](TokenId token) {
    return std::binary_search(banned.begin(), banned.end(), token);
  };
  for (int round = 0; round < 400; ++round) {
    SamplingOptions options;
    options.temperature = round % 5 == 0 ? 0 : 0.25f * static_cast<float>(1 + random() % 8);
    options.top_k = static_cast<int>(1 + random() % 60);
    options.top_p = random() % 2 == 0 ? 1 : 0.9f;
    options.min_p = random() % 2 == 0 ? 0 : 0.1f;
    Sampler sampler(options, random());
    const int64_t needed = sampler.BestNeeded(kVocab);
    ASSERT_EQ(needed, round % 5 == 0 ? 1 : options.top_k);
    std::vector<float> row(kVocab);
    for (float& logit : row) logit = static_cast<float>(random() % 200) / 20;
    for (const TokenId token : banned) {
      if (random() % 2 == 0) row[static_cast<size_t>(token)] = 20;
    }
    if (round % 7 == 0) {  // fewer tokens are allowed than wanted
      std::fill(row.begin() + 20, row.end(), -std::numeric_limits<float>::infinity());
    }
    std::vector<TokenLogit> best(static_cast<size_t>(needed) + banned.size());
    const size_t found = FindBest(row, best);
    if (found < best.size()) best[found].logit = std::numeric_limits<float>::quiet_NaN();
    for (const TokenId token : banned) {
      row[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
    const TokenId from_best = sampler.SampleBest(best, round, is_banned);
    EXPECT_EQ(from_best, sampler.Sample(row, {}, round, {})) << round;
  }
  SamplingOptions options;
  options.top_k = 5;
  options.logit_bias = {{1, 2.0f}};
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 0);
  options.logit_bias.clear();
  options.frequency_penalty = 0.5f;
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 0);
  options.penalty_window = 0;
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 5);
  options.top_k = 0;
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 0);
  options.top_k = kVocab;
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 0);
  options.temperature = 0;
  EXPECT_EQ(Sampler(options, 1).BestNeeded(kVocab), 1);
}

TEST(SamplerTest, LowTemperatureSharpens) {
  SamplingOptions options = Plain();
  options.temperature = 0.1f;
  auto counts = Draws(options, {1.0f, 1.5f}, 1000);
  EXPECT_GT(counts[1], 980);
}

// Incremental counts over a growing context equal counts from scratch.
TEST(SamplerTest, PenaltiesOfAGrowingContextAreThoseOfTheWhole) {
  std::mt19937 random(3);
  for (const int window : {-1, 1, 5, 64}) {
    SamplingOptions options = SamplingOptions::Greedy();
    options.repetition_penalty = 1.25f;
    options.frequency_penalty = 0.5f;
    options.presence_penalty = 0.25f;
    options.penalty_window = window;
    Sampler growing(options, 1);
    std::vector<TokenId> context;
    for (int step = 0; step < 150; ++step) {
      for (uint32_t more = random() % 4; more > 0; --more) {
        context.push_back(random() % 9 == 0 ? kAnyRow : static_cast<TokenId>(random() % 20));
      }
      std::vector<float> logits(20);
      for (float& logit : logits) logit = static_cast<float>(random() % 100) / 10 - 5;
      std::vector<float> same = logits;
      growing.Sample(logits, context, 0, {});
      Sampler(options, 1).Sample(same, context, 0, {});
      ASSERT_EQ(logits, same) << "window " << window << ", step " << step;
    }
  }
}

TEST(SamplerTest, PenaltiesLookAtTheWindowOnly) {
  SamplingOptions options = SamplingOptions::Greedy();
  options.presence_penalty = 2;
  options.penalty_window = 2;
  EXPECT_EQ(SampleOnce(options, {3, 2, 0}, {0, 1, 1}), 0);      // 0 is outside the window
  EXPECT_EQ(SampleOnce(options, {3, 2, 0}, {1, 1, 0}), 0 + 0);  // 3-2 = 1 > 2-2 = 0
  EXPECT_EQ(SampleOnce(options, {3, 2, 0}, {0, -7, -8}), 0);    // embeddings have no penalty
  options.frequency_penalty = 1;
  EXPECT_EQ(SampleOnce(options, {3, 2.5f, 0.1f}, {0, 0}), 1);
  options = SamplingOptions::Greedy();
  options.repetition_penalty = 2;
  EXPECT_EQ(SampleOnce(options, {3, 2, -1}, {0}), 1);
  EXPECT_EQ(SampleOnce(options, {-1, -1.5f, -9}, {0}), 1);  // negative logits move away from 0
}

TEST(SamplerTest, BiasAndMaskBan) {
  SamplingOptions options = SamplingOptions::Greedy();
  options.logit_bias = {{1, -std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(SampleOnce(options, {1, 9, 2}), 2);
  EXPECT_EQ(SampleOnce(options, {1, 9, 2}, {}, 0, 7, std::vector<uint32_t>{0b011}), 0);
  EXPECT_EQ(SampleOnce(options, {1, 9, 2}, {}, 0, 7, std::vector<uint32_t>{0b010}), kNoToken);
  EXPECT_EQ(SampleOnce(Plain(), {1, 9, 2}, {}, 0, 7, std::vector<uint32_t>{0b000}), kNoToken);
}

TEST(SamplerTest, ForcedTokenByInfiniteBias) {
  SamplingOptions options = Plain();
  options.logit_bias = {{2, std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(SampleOnce(options, {1, 9, 2}), 2);
  for (const int top_k : {0, 2}) {
    options.top_k = top_k;
    options.top_p = 0.5f;
    options.min_p = 0.1f;
    EXPECT_EQ(SampleOnce(options, {1, 9, 2}), 2) << "whatever cuts come before the draw";
  }
}

TEST(SamplerTest, RowsThatHoldNoNumbersAreNotSound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const size_t n : {1u, 15u, 16u, 100u}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> row(n, -2.5f);
      EXPECT_TRUE(IsSound(row));
      row[at] = -kInfinity;
      EXPECT_EQ(IsSound(row), n > 1) << "a banned token is no damage, a row of them is";
      for (const float broken : {kInfinity, std::nanf(""), -std::nanf("")}) {
        row[at] = broken;
        EXPECT_FALSE(IsSound(row)) << n << " " << at;
      }
    }
  }
}

TEST(SamplerTest, ArgMaxFindsTheFirstOfTheGreatestWhereverItIs) {
  for (const size_t n : {1u, 16u, 17u, 50u}) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> row(n, -7);
      row[at] = row[n - 1] = -1;
      EXPECT_EQ(ArgMax(row), static_cast<TokenId>(at));
    }
  }
  EXPECT_EQ(ArgMax(std::vector<float>(20, -std::numeric_limits<float>::infinity())), kNoToken);
}

TEST(SamplerTest, LogprobsAreALogSoftmax) {
  const std::vector<float> logits = {1, 3, 2, 3};
  const double lse = LogSumExp(logits);
  EXPECT_NEAR(lse, std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0)), 1e-9);
  const auto top = TopLogprobs(logits, lse, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  EXPECT_NEAR(top[0].logprob, 3 - lse, 1e-6);
  EXPECT_EQ(TopLogprobs(logits, lse, 9).size(), 4u);
}

TEST(SamplerTest, TheProbabilitiesOfTheDrawAreThoseAfterAllCuts) {
  SamplingOptions options;
  options.temperature = 2;
  options.top_k = 3;
  options.top_p = 1;
  options.min_p = 0;
  Sampler sampler(options, 1);
  std::vector<float> logits = {0, 4, 2, -1, 3};
  const TokenId token = sampler.Sample(logits, {}, 7, {});
  const double total = 1 + std::exp(-0.5) + std::exp(-1.0);
  const Sampler::Draws draws = sampler.DrawsOf(token, 10);
  ASSERT_EQ(draws.best.size(), 3u);
  const TokenId order[] = {1, 4, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(draws.best[i].token, order[i]);
    EXPECT_NEAR(std::exp(draws.best[i].logprob), std::exp(-0.5 * static_cast<double>(i)) / total,
                1e-6);
    if (order[i] == token) {
      EXPECT_EQ(draws.logprob, draws.best[i].logprob);
    }
  }
  EXPECT_EQ(sampler.DrawsOf(token, 1).best.size(), 1u);
}

// Samples by definition: sorts all tokens, best first, and leaves none out.
TokenId DrawBySorting(const std::vector<float>& logits, const SamplingOptions& options,
                      int64_t position, uint64_t seed) {
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const auto weight = [&](TokenId id, float temperature) {
    return std::exp((double{logits[id]} - double{logits[order[0]]}) / double{temperature});
  };
  double total = 0, sum = 0;
  for (const TokenId id : order) total += weight(id, 1);
  size_t n = 0;
  while (n < order.size() && (n == 0 || sum < double{options.top_p} * total)) {
    sum += weight(order[n++], 1);
  }
  if (options.top_p < 1) order.resize(n);
  while (options.min_p > 0 && weight(order.back(), 1) < double{options.min_p}) order.pop_back();
  total = 0;
  for (const TokenId id : order) total += weight(id, options.temperature);
  double remaining = RandomUniform(seed, static_cast<uint64_t>(position)) * total;
  for (const TokenId id : order) {
    remaining -= weight(id, options.temperature);
    if (remaining < 0) return id;
  }
  return order.back();
}

TEST(SamplerTest, ALargeVocabularyIsDrawnFromAsIfItWereSorted) {
  std::mt19937 random(5);
  for (const float spread : {0.5f, 3.0f, 12.0f}) {
    std::vector<float> logits(5003);
    std::normal_distribution<float> normal(2, spread);
    for (float& logit : logits) logit = normal(random);
    for (const float temperature : {0.1f, 1.0f, 3.0f}) {
      for (const auto& [top_p, min_p] : {std::pair(1.0f, 0.0f), {0.9f, 0.0f}, {1.0f, 0.02f}}) {
        SamplingOptions options = Plain();
        options.temperature = temperature;
        options.top_p = top_p;
        options.min_p = min_p;
        int different = 0;
        for (int64_t position = 0; position < 60; ++position) {
          different += SampleOnce(options, logits, {}, position, 11) !=
                       DrawBySorting(logits, options, position, 11);
        }
        // A number within rounding error of the border between two tokens may select either.
        EXPECT_LE(different, 1) << spread << " " << temperature << " " << top_p << " " << min_p;
      }
    }
  }
}

TEST(SamplerTest, TheBestAreNamedAlsoWhereTheDrawDidNotNeedThem) {
  Sampler sampler(Plain(), 1);
  std::vector<float> logits = {30, 0, 10, -5, 20};
  const Sampler::Draws draws = sampler.DrawsOf(sampler.Sample(logits, {}, 0, {}), 4);
  ASSERT_EQ(draws.best.size(), 4u);
  const TokenId order[] = {0, 4, 2, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(draws.best[i].token, order[i]);
  EXPECT_NEAR(draws.best[3].logprob, -30, 1e-3);
}

TEST(SamplerTest, TheGreedyChoiceIsCertain) {
  Sampler sampler(SamplingOptions::Greedy(), 1);
  std::vector<float> logits = {0, 4, 2};
  const Sampler::Draws draws = sampler.DrawsOf(sampler.Sample(logits, {}, 0, {}), 5);
  EXPECT_EQ(draws.logprob, 0);
  ASSERT_EQ(draws.best.size(), 1u);
  EXPECT_EQ(draws.best[0].token, 1);
}

TEST(SamplerTest, BadOptionsAreNamed) {
  const auto message = [](auto change) {
    SamplingOptions options;
    change(&options);
    return std::string(Message(ValidateSampling(options, 10)));
  };
  EXPECT_THAT(message([](auto* o) { o->temperature = NAN; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto* o) { o->top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(message([](auto* o) { o->top_k = -1; }), HasSubstr("top_k"));
  EXPECT_THAT(message([](auto* o) { o->min_p = 2; }), HasSubstr("min_p"));
  EXPECT_THAT(message([](auto* o) { o->repetition_penalty = 0; }), HasSubstr("repetition"));
  EXPECT_THAT(message([](auto* o) { o->logit_bias = {{10, 1}}; }), HasSubstr("token 10"));
  EXPECT_TRUE(ValidateSampling(SamplingOptions(), 10).ok());
}

}  // namespace
}  // namespace weft
