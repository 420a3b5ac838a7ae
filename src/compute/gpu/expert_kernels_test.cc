// The kernels of mixtures of experts against plain loops: each row's experts, their weights, and
// the order of the pairs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "compute/gpu/kernel_test_util.h"
#include "compute/kernels_gpu/experts.h"
#include "compute/kernels_gpu/math.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::gpu {
namespace {

using device::Router;

void SoftmaxInOrder(float* x, int n) {
  float max = x[0];
  for (int i = 1; i < n; ++i) max = max < x[i] ? x[i] : max;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] = device::Exp(x[i] - max);
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

// Routes one row in a plain loop over the experts.
struct PlainRouter {
  const device::RouteArgs& a;
  std::vector<float> scores;
  std::vector<int32_t> experts;
  std::vector<float> weights;

  float Biased(int i) const {
    const auto at = static_cast<size_t>(i);
    return a.selection_bias != nullptr ? scores[at] + a.selection_bias[i] : scores[at];
  }
  // The first of the best allowed experts; -1: none is allowed.
  template <typename May>
  int Best(int begin, int end, const May& may) const {
    int best = -1;
    for (int i = begin; i < end; ++i) {
      if (may(i) && (best < 0 || Biased(i) > Biased(best))) best = i;
    }
    return best;
  }
  std::vector<bool> Groups() const {
    std::vector<bool> used(static_cast<size_t>(a.n_groups), a.n_groups_used >= a.n_groups);
    if (used[0]) return used;
    const int size = a.n_experts / a.n_groups;
    std::vector<float> of(used.size());
    for (int group = 0; group < a.n_groups; ++group) {
      const int begin = group * size, end = begin + size;
      const int first = Best(begin, end, [](int) { return true; });
      const int second = Best(begin, end, [&](int i) { return i != first; });
      of[static_cast<size_t>(group)] = Biased(first) + (second < 0 ? 0 : Biased(second));
    }
    for (int n = 0; n < a.n_groups_used; ++n) {
      int best = -1;
      for (int group = 0; group < a.n_groups; ++group) {
        const auto at = static_cast<size_t>(group);
        if (!used[at] && (best < 0 || of[at] > of[static_cast<size_t>(best)])) best = group;
      }
      used[static_cast<size_t>(best)] = true;
    }
    return used;
  }

  void WeighAmongNear() {
    for (size_t i = 0; i < experts.size(); ++i) {
      float sum = 0;
      const float best = weights[i];
      for (int expert = 0; expert < a.n_experts; ++expert) {
        const float logit = scores[static_cast<size_t>(expert)];
        if (std::find(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(i), expert) !=
            experts.begin() + static_cast<std::ptrdiff_t>(i)) {
          continue;
        }
        const float size = std::fabs(logit) > best ? std::fabs(logit) : best;
        if (!(best - logit > 0.02f * size)) sum += device::Exp(logit - best);
      }
      weights[i] = 1 / sum;
    }
  }

  void Run(const float* logits) {
    scores.assign(logits, logits + a.n_experts);
    if (a.router == Router::kSoftmax) SoftmaxInOrder(scores.data(), a.n_experts);
    if (a.router == Router::kSigmoid) {
      for (float& score : scores) score = device::Sigmoid(score);
    }
    const std::vector<bool> groups = Groups();
    for (int i = 0; i < a.n_used; ++i) {
      const int best = Best(0, a.n_experts, [&](int expert) {
        return groups[static_cast<size_t>(expert / (a.n_experts / a.n_groups))] &&
               std::ranges::count(experts, expert) == 0;
      });
      experts.push_back(best);
      weights.push_back(scores[static_cast<size_t>(best)]);
    }
    if (a.router == Router::kSoftmaxOfChosen) SoftmaxInOrder(weights.data(), a.n_used);
    if (a.router == Router::kSoftmaxOfNear) WeighAmongNear();
    float sum = 0;
    for (const float weight : weights) sum += weight;
    sum = sum < 6.1e-5f ? 6.1e-5f : sum;
    for (float& weight : weights) {
      if (a.renormalize != 0) weight /= sum;
      weight *= a.weight_scale;
    }
  }
};

class ExpertKernelsTest : public ::testing::Test {
 protected:
  int Between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937_64 random_{5};
};

// Every other round has scores that are equal, infinite or NaN.
TEST_F(ExpertKernelsTest, RowsGoWhereAPlainLoopSendsThem) {
  for (int round = 0; round < 120; ++round) {
    const int n_rows = Between(1, 3), size = Between(2, 40);
    device::RouteArgs args;
    args.n_groups = round % 3 == 0 ? Between(2, 9) : 1;
    args.n_groups_used = Between(1, args.n_groups);
    args.n_experts = args.n_groups * size;
    args.n_used = Between(1, std::min(12, args.n_groups_used * size));
    args.router = static_cast<Router>(round % 4);
    args.renormalize = Between(0, 1);
    args.weight_scale = 1.25f;
    std::vector<float> scores(static_cast<size_t>(n_rows * args.n_experts));
    std::vector<float> bias(static_cast<size_t>(args.n_experts));
    std::normal_distribution<float> normal;
    for (float& score : scores) score = normal(random_);
    for (float& value : bias) value = normal(random_);
    if (round % 5 == 1 && args.router != Router::kSoftmaxOfNear) args.selection_bias = bias.data();
    const float odd[] = {0, 1, -INFINITY, NAN, INFINITY};
    for (float& score : scores) {
      if (round % 2 == 1 && Between(0, 2) == 0) score = odd[Between(0, 4)];
    }
    const std::vector<float> logits = scores;
    const auto n_pairs = static_cast<size_t>(n_rows) * static_cast<size_t>(args.n_used);
    std::vector<int32_t> experts(n_pairs, -7);
    std::vector<float> weights(n_pairs, -7);
    args.scores = {scores.data(), args.n_experts};
    args.experts = experts.data();
    args.weights = weights.data();
    args.n_rows = &n_rows;
    RunKernel(device::RouteRows, {n_rows + 1, 1, 1, device::kRouteThreads}, args);
    for (int row = 0; row < n_rows; ++row) {
      PlainRouter router = {args, {}, {}, {}};
      router.Run(logits.data() + row * args.n_experts);
      for (int i = 0; i < args.n_used; ++i) {
        const auto at =
            static_cast<size_t>(row) * static_cast<size_t>(args.n_used) + static_cast<size_t>(i);
        const float expected = router.weights[static_cast<size_t>(i)];
        ASSERT_EQ(experts[at], router.experts[static_cast<size_t>(i)]) << round;
        ASSERT_TRUE(std::bit_cast<uint32_t>(weights[at]) == std::bit_cast<uint32_t>(expected) ||
                    (std::isnan(weights[at]) && std::isnan(expected)))
            << round << ": " << weights[at] << ", " << expected;
      }
    }
  }
}

// One run of pairs, several, and more than 65,536; also with fewer pairs than the launch's maximum.
TEST_F(ExpertKernelsTest, PairsAreSortedByExpertInTheirOrder) {
  for (int round = 0; round < 24; ++round) {
    const int n_experts = round % 4 == 0 ? Between(1, 300) : Between(1, 12), n_used = Between(1, 8);
    const int n_rows = round == 0 ? 70'001 / n_used : Between(0, round % 2 == 0 ? 60 : 700);
    const auto n_pairs = static_cast<size_t>(n_rows) * static_cast<size_t>(n_used);
    std::vector<int32_t> experts(n_pairs + 1), places(n_pairs + 1, -1), sources(n_pairs + 1, -1);
    for (int32_t& expert : experts) expert = Between(0, n_experts - 1);
    const int most = round % 3 == 0 ? 2 * n_rows * n_used + 1 : std::max(1, n_rows * n_used);
    const int n_runs = device::CeilDiv(most, device::kSortPairs);
    std::vector<device::MemberTile> tiles(n_pairs + static_cast<size_t>(n_experts));
    std::vector<int32_t> counts(static_cast<size_t>(n_runs * n_experts), 1 << 20);
    int32_t n_tiles = -1, n = -1;
    device::SortArgs args;
    args.experts = experts.data();
    args.n_experts = n_experts;
    args.n_used = n_used;
    args.places = places.data();
    args.sources = sources.data();
    args.tiles = tiles.data();
    args.n_tiles = &n_tiles;
    args.n_pairs = &n;
    args.counts = counts.data();
    args.n_rows = &n_rows;
    const device::LaunchShape shape = {n_runs, 1, 1, device::kSortThreads};
    if (n_runs > 1) RunKernel(device::CountPairs, shape, args);
    RunKernel(device::SortPairs, shape, args);

    ASSERT_EQ(n, n_rows * n_used);
    int32_t place = 0;
    size_t tile = 0;
    for (int expert = 0; expert < n_experts; ++expert) {
      const int32_t begin = place;
      for (size_t pair = 0; pair < n_pairs; ++pair) {
        if (experts[pair] != expert) continue;
        ASSERT_EQ(sources[static_cast<size_t>(place)], static_cast<int32_t>(pair) / n_used);
        ASSERT_EQ(places[pair], place++) << round;
      }
      for (int32_t at = begin; at < place; at += device::kMatmulRows, ++tile) {
        ASSERT_EQ(tiles[tile].member, expert);
        ASSERT_EQ(tiles[tile].first, at);
        ASSERT_EQ(tiles[tile].count, std::min(device::kMatmulRows, place - at));
      }
    }
    ASSERT_EQ(n_tiles, static_cast<int32_t>(tile));
    ASSERT_EQ(sources[n_pairs], -1);
  }
}

}  // namespace
}  // namespace weft::gpu
