#include "compute/kernels_gpu/experts.h"

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/quantize_device.h"

namespace weft::device {

// One thread adds the sum, in order.
WEFT_DEVICE void SoftmaxInPlace(float* x, int n) {
  float max = x[0];
  for (int i = 1; i < n; ++i) max = Max(max, x[i]);
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) {
    x[i] = Exp(x[i] - max);
    sum = sum + x[i];
  }
  for (int i = 0; i < n; ++i) x[i] = x[i] / sum;
}

WEFT_DEVICE int MinOfWarp(int value) {
  WEFT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    value = Min(value, static_cast<int>(ExchangeWord(static_cast<uint32_t>(value), mask)));
  }
  return value;
}

// Routes one row with one warp: lane l has experts l, l + 32 ... In a damaged model scores may be
// NaN, and experts must still be chosen.
template <typename Scores, typename GroupScores>
struct RowRouter {
  const RouteArgs& a;
  Scores& scores;             // shared
  GroupScores& group_scores;  // shared memory, too
  const int lane;
  uint64_t groups = ~uint64_t{0};  // groups to choose from, one bit each
  uint32_t chosen = 0;             // the lane's experts chosen so far, one bit each

  // The same bits as SoftmaxInPlace: only the sum depends on order, and each lane adds all of it.
  WEFT_DEVICE void Softmax() {
    float max = MinusInfinity();
    for (int i = lane; i < a.n_experts; i += 32) max = Max(max, static_cast<float>(scores[i]));
    WEFT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) max = Max(max, ShuffleXor(max, mask));
    const float first = scores[0];
    if (first != first) max = first;
    Barrier();
    for (int i = lane; i < a.n_experts; i += 32) scores[i] = Exp(scores[i] - max);
    Barrier();
    float sum = 0.0f;
    for (int i = 0; i < a.n_experts; ++i) sum = sum + scores[i];
    Barrier();
    for (int i = lane; i < a.n_experts; i += 32) scores[i] = scores[i] / sum;
    Barrier();
  }

  WEFT_DEVICE float Biased(int expert) const {
    const float score = scores[expert];
    return a.selection_bias != nullptr ? score + a.selection_bias[expert] : score;
  }
  // The sum of a group's two best scores.
  WEFT_DEVICE float GroupScore(int group) const {
    const int size = a.n_experts / a.n_groups, begin = group * size;
    int first = begin, second = -1;
    for (int i = begin + 1; i < begin + size; ++i) {
      if (Biased(i) > Biased(first)) first = i;
    }
    for (int i = begin; i < begin + size; ++i) {
      if (i != first && (second < 0 || Biased(i) > Biased(second))) second = i;
    }
    return second < 0 ? Biased(first) : Biased(first) + Biased(second);
  }
  WEFT_DEVICE void ChooseGroups() {
    if (a.n_groups_used >= a.n_groups) return;
    for (int group = lane; group < a.n_groups; group += 32) group_scores[group] = GroupScore(group);
    Barrier();
    groups = 0;
    for (int n = 0; n < a.n_groups_used; ++n) {
      int best = -1;
      for (int group = 0; group < a.n_groups; ++group) {
        if ((groups >> group & 1) != 0) continue;
        if (best < 0 || group_scores[group] > group_scores[best]) best = group;
      }
      groups |= uint64_t{1} << best;
    }
  }

  // The first of the best remaining experts, as a loop finds it that replaces its candidate only by
  // a greater one: a NaN at the start stays, and no other NaN is chosen.
  WEFT_DEVICE int ChooseNext() {
    const int size = a.n_experts / a.n_groups;
    int first = a.n_experts, best = a.n_experts;
    float best_score = MinusInfinity();
    for (int i = lane; i < a.n_experts; i += 32) {
      if (a.n_groups > 1 && (groups >> (i / size) & 1) == 0) continue;
      if ((chosen >> (i / 32) & 1) != 0) continue;
      first = Min(first, i);
      const float score = Biased(i);
      if (score > best_score || (score == best_score && i < best)) {
        best = i;
        best_score = score;
      }
    }
    first = MinOfWarp(first);
    const float first_score = first < a.n_experts ? Biased(first) : 0.0f;
    WEFT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const int other = static_cast<int>(ExchangeWord(static_cast<uint32_t>(best), mask));
      const float score = ShuffleXor(best_score, mask);
      if (score > best_score || (score == best_score && other < best)) {
        best = other;
        best_score = score;
      }
    }
    if (first_score != first_score) best = first;
    if (best % 32 == lane) chosen |= uint32_t{1} << (best / 32);
    return best;
  }
};

// One thread weighs each choice by kSoftmaxOfNear; `logits` are those of all experts.
template <typename Logits>
WEFT_DEVICE void WeighAmongNear(const RouteArgs& a, const Logits& logits, const int32_t* experts,
                                float* weights) {
  for (int i = 0; i < a.n_used; ++i) {
    const float best = logits[experts[i]];
    float sum = 0.0f;
    for (int expert = 0; expert < a.n_experts; ++expert) {
      bool is_taken = false;
      for (int j = 0; j < i; ++j) is_taken = is_taken || experts[j] == expert;
      const float logit = logits[expert];
      const bool is_far = best - logit > kNearLogits * Max(best, Abs(logit));
      if (!is_taken && !is_far) sum = sum + Exp(logit - best);
    }
    weights[i] = 1.0f / sum;
  }
}

// Computes weights from the scores of the chosen experts.
WEFT_DEVICE void WeighChosen(const RouteArgs& a, float* weights) {
  if (a.router == Router::kSoftmaxOfChosen) SoftmaxInPlace(weights, a.n_used);
  if (a.renormalize != 0) {
    float sum = 0.0f;
    for (int i = 0; i < a.n_used; ++i) sum = sum + weights[i];
    sum = Max(sum, 6.1e-5f);
    for (int i = 0; i < a.n_used; ++i) weights[i] = weights[i] / sum;
  }
  for (int i = 0; i < a.n_used; ++i) weights[i] = weights[i] * a.weight_scale;
}

WEFT_COOPERATIVE_KERNEL(RouteRows, RouteArgs, kRouteThreads) {
  WEFT_SHARED(float, scores, kMaxExperts);
  WEFT_SHARED(float, group_scores, kMaxGroups);
  const int row = BlockX(), lane = ThreadIndex();
  if (row >= *a.n_rows) return;
  const float* const logits = a.scores.values + row * a.scores.stride;
  for (int i = lane; i < a.n_experts; i += 32) {
    scores[i] = a.router == Router::kSigmoid ? Sigmoid(logits[i]) : logits[i];
  }
  Barrier();
  RowRouter<decltype(scores), decltype(group_scores)> router = {a, scores, group_scores, lane};
  if (a.router == Router::kSoftmax) router.Softmax();
  router.ChooseGroups();
  int32_t* const experts = a.experts + row * a.n_used;
  float* const weights = a.weights + row * a.n_used;
  for (int i = 0; i < a.n_used; ++i) {
    const int expert = router.ChooseNext();
    if (lane != 0) continue;
    experts[i] = expert;
    weights[i] = scores[expert];
  }
  if (lane != 0) return;
  if (a.router == Router::kSoftmaxOfNear) WeighAmongNear(a, scores, experts, weights);
  WeighChosen(a, weights);
}

// Loads the experts of a block's pairs into shared memory.
template <typename Shared>
WEFT_DEVICE int LoadPairs(const SortArgs& a, int n_pairs, Shared& experts) {
  const int first = BlockX() * kSortPairs, n = Min(kSortPairs, n_pairs - first);
  for (int i = ThreadIndex(); i < n; i += kSortThreads) experts[i] = a.experts[first + i];
  Barrier();
  return n;
}
template <typename Shared>
WEFT_DEVICE int CountOf(int expert, const Shared& experts, int n) {
  int count = 0;
  for (int i = 0; i < n; ++i) count += experts[i] == expert ? 1 : 0;
  return count;
}

WEFT_COOPERATIVE_KERNEL(CountPairs, SortArgs, kSortThreads) {
  WEFT_SHARED(int32_t, experts, kSortPairs);
  const int n_pairs = *a.n_rows * a.n_used;
  if (BlockX() * kSortPairs >= n_pairs) return;
  const int n = LoadPairs(a, n_pairs, experts);
  for (int expert = ThreadIndex(); expert < a.n_experts; expert += kSortThreads) {
    a.counts[BlockX() * a.n_experts + expert] = CountOf(expert, experts, n);
  }
}

WEFT_COOPERATIVE_KERNEL(SortPairs, SortArgs, kSortThreads) {
  WEFT_SHARED(int32_t, experts, kSortPairs);
  WEFT_SHARED(int32_t, counts, kMaxExperts);  // counts of all blocks' pairs
  const int n_pairs = *a.n_rows * a.n_used, n_runs = Max(1, CeilDiv(n_pairs, kSortPairs));
  if (BlockX() >= n_runs) return;
  const int n = LoadPairs(a, n_pairs, experts);
  for (int expert = ThreadIndex(); expert < a.n_experts; expert += kSortThreads) {
    int count = n_runs == 1 ? CountOf(expert, experts, n) : 0;
    for (int run = 0; n_runs > 1 && run < n_runs; ++run) {
      count += a.counts[run * a.n_experts + expert];
    }
    counts[expert] = count;
  }
  Barrier();
  for (int expert = ThreadIndex(); expert < a.n_experts; expert += kSortThreads) {
    int place = 0, tile = 0;
    for (int i = 0; i < expert; ++i) {
      place += counts[i];
      tile += CeilDiv(counts[i], kMatmulRows);
    }
    const int count = counts[expert], n_tiles = CeilDiv(count, kMatmulRows);
    for (int i = BlockX(); i < n_tiles; i += n_runs) {
      const int at = i * kMatmulRows;
      a.tiles[tile + i] = {expert, place + at, Min(kMatmulRows, count - at)};
    }
    if (BlockX() == 0 && expert == a.n_experts - 1) {
      *a.n_tiles = tile + n_tiles;
      *a.n_pairs = n_pairs;
    }
    for (int run = 0; run < BlockX(); ++run) place += a.counts[run * a.n_experts + expert];
    for (int i = 0; i < n; ++i) {
      if (experts[i] != expert) continue;
      const int pair = BlockX() * kSortPairs + i;
      a.places[pair] = place;
      if (a.factors != nullptr) a.factors[place] = a.weights[pair];
      a.sources[place++] = pair / a.n_used;
    }
  }
}

WEFT_KERNEL(MixRows, MixArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
    if (column >= a.width) return;
    float sum = 0.0f;
    for (int choice = 0; choice < a.n_used; ++choice) {
      const int pair = row * a.n_used + choice;
      const float weight = a.weights != nullptr ? a.weights[pair] : 1.0f;
      sum = Fma(a.given.values[a.places[pair] * a.given.stride + column], weight, sum);
    }
    a.out.values[row * a.out.stride + column] = sum;
  }
}

}  // namespace weft::device
