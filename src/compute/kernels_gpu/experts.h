// Mixtures of experts: the kernels that choose experts, sort rows by them, and add results.
#ifndef WEFT_COMPUTE_KERNELS_GPU_EXPERTS_H_
#define WEFT_COMPUTE_KERNELS_GPU_EXPERTS_H_

#include "compute/kernels_gpu/kernels.h"

namespace weft::device {

// Values as in RouterWeights of model/operations.h.
enum class Router : int32_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSoftmaxOfNear };
inline constexpr float kNearLogits = 0.02f;

// Chooses each row's experts; `scores` are the router's logits. x: rows, one warp each.
struct RouteArgs {
  Rows scores;
  const float* selection_bias = nullptr;
  Router router = Router::kSoftmax;
  int32_t n_experts = 0, n_used = 0, n_groups = 1, n_groups_used = 1;
  int32_t renormalize = 0;
  float weight_scale = 1;
  int32_t* experts = nullptr;  // (row, choice)
  float* weights = nullptr;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kRouteThreads = 32;
inline constexpr int kMaxGroups = 64;
WEFT_DECLARE_KERNEL(RouteRows, RouteArgs);

// Gives every pair (row, choice) a place among the pairs of its expert, in the order of pairs, and
// divides each expert's places into tiles. x: runs of kSortPairs pairs; kSortThreads threads. If
// there may be several runs, CountPairs counts each run's pairs first.
struct SortArgs {
  const int32_t* experts = nullptr;  // (row, choice)
  int32_t n_experts = 0, n_used = 0;
  int32_t* places = nullptr;       // per pair
  int32_t* sources = nullptr;      // per place: its row
  const float* weights = nullptr;  // per pair
  float* factors = nullptr;        // per place: its pair's weight; or null
  MemberTile* tiles = nullptr;
  int32_t* n_tiles = nullptr;
  int32_t* n_pairs = nullptr;
  int32_t* counts = nullptr;  // (run, expert)
  const int32_t* n_rows = nullptr;
};
inline constexpr int kSortThreads = 128;
inline constexpr int kSortPairs = 512;
inline constexpr int kMaxExperts = 1024;
WEFT_DECLARE_KERNEL(CountPairs, SortArgs);
WEFT_DECLARE_KERNEL(SortPairs, SortArgs);

// out = the sum of the chosen experts' outputs times their weights (absent: 1), in the order of
// choice. x: columns, y: rows.
struct MixArgs {
  Rows given;  // per place
  const int32_t* places = nullptr;
  const float* weights = nullptr;
  Rows out;
  int32_t width = 0, n_used = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(MixRows, MixArgs);

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_EXPERTS_H_
