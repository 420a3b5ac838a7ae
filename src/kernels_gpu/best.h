// What tokens are chosen from: rows of logits, changed by biases, penalties and masks, their best
// tokens and their weights, so that a step sends a few numbers to the host in place of
// vocabularies. All are those of base/best_tokens.h, by its definitions.
#ifndef WEFT_KERNELS_GPU_BEST_H_
#define WEFT_KERNELS_GPU_BEST_H_

#include "kernels_gpu/kernels.h"

namespace weft::device {

// As TokenLogit. The first that a row does not have has a logit of NaN; or of minus infinity, if it
// is the first of all and only changes took the others.
struct BestToken {
  int32_t token;
  float logit;
};
// As LogitChange.
struct TokenChange {
  int32_t token;
  float bias, repetition, penalty;
};

// In order: ChangeRows, in place; FindBest, of each slice of a row; MergeBest, of the row;
// WeighRows. x: slices, or 1 (MergeBest), y: rows; kBestThreads threads, or kWeightThreads
// (WeighRows).
struct BestArgs {
  Rows logits;
  int32_t n_vocab = 0;
  int32_t n_slices = 0;
  const int32_t* n_best = nullptr;         // per row; 0: nobody asks
  const int32_t* first_changes = nullptr;  // per row, and the end: into `changes`
  const int32_t* masks = nullptr;          // per row: where its bits begin in `allowed`; -1: all
  const float* temperatures = nullptr;     // per row; 0: nobody asks for its weight
  const TokenChange* changes = nullptr;    // of a row: each token once
  const uint32_t* allowed = nullptr;
  int32_t* sound = nullptr;    // (row, slice): see ChangeRows
  BestToken* parts = nullptr;  // (row, slice, most)
  BestToken* out = nullptr;    // (row, most)
  int32_t most = 0;
  double* weights = nullptr;  // (row, n_weights): of parts of kWeightPart values
  int32_t n_weights = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kBestThreads = 128;
inline constexpr int kBestEach = 32;
inline constexpr int kBestSlice = kBestThreads * kBestEach;
inline constexpr int kMostBest = 512;
inline constexpr int kMostBestSlices = 1024;
inline constexpr int kWeightPart = 1024;
inline constexpr int kWeightLanes = 16;
inline constexpr int kWeightThreads = kBestSlice / kWeightPart * kWeightLanes;
WEFT_DECLARE_KERNEL(ChangeRows, BestArgs);
WEFT_DECLARE_KERNEL(FindBest, BestArgs);
WEFT_DECLARE_KERNEL(MergeBest, BestArgs);
WEFT_DECLARE_KERNEL(WeighRows, BestArgs);

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_BEST_H_
