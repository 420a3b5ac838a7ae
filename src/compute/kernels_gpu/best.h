// Sampling candidates: rows of logits, changed by biases, penalties and masks, then their best
// tokens and weights, so that a step downloads a few numbers instead of whole vocabularies. Defined
// by base/best_tokens.h.
#ifndef WEFT_COMPUTE_KERNELS_GPU_BEST_H_
#define WEFT_COMPUTE_KERNELS_GPU_BEST_H_

#include "compute/kernels_gpu/kernels.h"

namespace weft::device {

// As TokenLogit. The first missing token has a logit of NaN; or of minus infinity, if it is the
// row's first and only changes removed all others.
struct BestToken {
  int32_t token;
  float logit;
};
// As LogitChange.
struct TokenChange {
  int32_t token;
  float bias, repetition, penalty;
};

// Launch in order: ChangeRows (in place), FindBest (per slice of a row), MergeBest (per row),
// WeighRows. x: slices, or 1 (MergeBest), y: rows; kBestThreads threads, or kWeightThreads
// (WeighRows).
struct BestArgs {
  Rows logits;
  int32_t n_vocab = 0;
  int32_t n_slices = 0;
  const int32_t* n_best = nullptr;         // per row; 0: none wanted
  const int32_t* first_changes = nullptr;  // per row, and the end: index into `changes`
  const int32_t* masks = nullptr;          // per row: its mask's first word in `allowed`; -1: none
  const float* temperatures = nullptr;     // per row; 0: no weight wanted
  const TokenChange* changes = nullptr;    // each token at most once per row
  const uint32_t* allowed = nullptr;
  int32_t* sound = nullptr;    // (row, slice): see ChangeRows
  BestToken* parts = nullptr;  // (row, slice, most)
  BestToken* out = nullptr;    // (row, most)
  int32_t most = 0;
  double* weights = nullptr;  // (row, n_weights): sums of kWeightPart values
  int32_t n_weights = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kBestThreads = 128;
inline constexpr int kBestEach = 32;
inline constexpr int kBestSlice = kBestThreads * kBestEach;
inline constexpr int kMaxBest = 512;
inline constexpr int kMaxBestSlices = 1024;
inline constexpr int kWeightPart = 1024;
inline constexpr int kWeightLanes = 16;
inline constexpr int kWeightThreads = kBestSlice / kWeightPart * kWeightLanes;
WEFT_DECLARE_KERNEL(ChangeRows, BestArgs);
WEFT_DECLARE_KERNEL(FindBest, BestArgs);
WEFT_DECLARE_KERNEL(MergeBest, BestArgs);
WEFT_DECLARE_KERNEL(WeighRows, BestArgs);

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_BEST_H_
