#include "kernels_gpu/experts.h"

#include "device/dialect.h"
#include "kernels_gpu/math.h"

namespace weft::device {

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

// One row's choice. Scores may be NaN in a damaged model: a best one is found all the same.
struct RowRouter {
  const RouteArgs& a;
  const float* scores;
  int32_t* experts;
  int n_chosen;
  uint64_t groups;  // that may be chosen from, a bit each

  WEFT_DEVICE float Biased(int expert) const {
    return a.selection_bias != nullptr ? scores[expert] + a.selection_bias[expert] : scores[expert];
  }
  WEFT_DEVICE bool IsChosen(int expert) const {
    for (int i = 0; i < n_chosen; ++i) {
      if (experts[i] == expert) return true;
    }
    return false;
  }
  // The sum of a group's two best.
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
    if (a.n_groups_used >= a.n_groups) {
      groups = ~uint64_t{0};
      return;
    }
    groups = 0;
    for (int n = 0; n < a.n_groups_used; ++n) {
      int best = -1;
      for (int group = 0; group < a.n_groups; ++group) {
        if ((groups >> group & 1) != 0) continue;
        if (best < 0 || GroupScore(group) > GroupScore(best)) best = group;
      }
      groups |= uint64_t{1} << best;
    }
  }
  WEFT_DEVICE void ChooseNext() {
    const int size = a.n_experts / a.n_groups;
    int best = -1;
    for (int i = 0; i < a.n_experts; ++i) {
      if (a.n_groups > 1 && (groups >> (i / size) & 1) == 0) continue;
      if (IsChosen(i)) continue;
      if (best < 0 || Biased(i) > Biased(best)) best = i;
    }
    experts[n_chosen++] = best;
  }
};

WEFT_KERNEL(RouteRows, RouteArgs) {
  const int row = BlockX() * kRouteThreads + ThreadIndex();
  if (row >= *a.n_rows) return;
  float* const scores = a.scores.values + row * a.scores.stride;
  if (a.router == Router::kSoftmax) SoftmaxInPlace(scores, a.n_experts);
  if (a.router == Router::kSigmoid) {
    for (int i = 0; i < a.n_experts; ++i) scores[i] = Sigmoid(scores[i]);
  }
  RowRouter router = {a, scores, a.experts + row * a.n_used, 0, 0};
  router.ChooseGroups();
  for (int i = 0; i < a.n_used; ++i) router.ChooseNext();

  float* const weights = a.weights + row * a.n_used;
  for (int i = 0; i < a.n_used; ++i) weights[i] = scores[router.experts[i]];
  if (a.router == Router::kSoftmaxOfChosen) SoftmaxInPlace(weights, a.n_used);
  if (a.renormalize != 0) {
    float sum = 0.0f;
    for (int i = 0; i < a.n_used; ++i) sum = sum + weights[i];
    sum = Max(sum, 6.1e-5f);
    for (int i = 0; i < a.n_used; ++i) weights[i] = weights[i] / sum;
  }
  for (int i = 0; i < a.n_used; ++i) weights[i] = weights[i] * a.weight_scale;
}

WEFT_COOPERATIVE_KERNEL(SortPairs, SortArgs, kSortThreads) {
  WEFT_SHARED(int32_t, counts, kMostExperts);
  const int n_pairs = *a.n_rows * a.n_used;
  for (int expert = ThreadIndex(); expert < a.n_experts; expert += kSortThreads) {
    int count = 0;
    for (int pair = 0; pair < n_pairs; ++pair) count += a.experts[pair] == expert ? 1 : 0;
    counts[expert] = count;
  }
  Barrier();
  for (int expert = ThreadIndex(); expert < a.n_experts; expert += kSortThreads) {
    int place = 0, tile = 0;
    for (int i = 0; i < expert; ++i) {
      place += counts[i];
      tile += (counts[i] + kMatmulRows - 1) / kMatmulRows;
    }
    const int count = counts[expert];
    for (int at = 0; at < count; at += kMatmulRows) {
      a.tiles[tile++] = {expert, place + at, Min(kMatmulRows, count - at)};
    }
    for (int pair = 0; pair < n_pairs; ++pair) {
      if (a.experts[pair] != expert) continue;
      a.places[pair] = place;
      a.sources[place++] = pair / a.n_used;
    }
    if (expert == a.n_experts - 1) {
      *a.n_tiles = tile;
      *a.n_pairs = n_pairs;
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
      sum = Fma(a.given.values[a.places[pair] * a.given.stride + column], a.weights[pair], sum);
    }
    a.out.values[row * a.out.stride + column] = sum;
  }
}

}  // namespace weft::device
