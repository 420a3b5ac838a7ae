// The best tokens of rows of logits, so that a step sends a few numbers to the host in place of
// vocabularies. They are those of base/best_tokens.h, in its order.
#ifndef WEFT_KERNELS_GPU_BEST_H_
#define WEFT_KERNELS_GPU_BEST_H_

#include "kernels_gpu/kernels.h"

namespace weft::device {

// As TokenLogit. The first that a row does not have has a logit of NaN.
struct BestToken {
  int32_t token;
  float logit;
};

// The best of each slice of a row, then those of the row. x: slices (FindBest) or 1 (MergeBest),
// y: rows; kBestThreads threads.
struct BestArgs {
  Rows logits;
  int32_t n_vocab = 0;
  int32_t n_slices = 0;
  const int32_t* n_best = nullptr;  // per row; 0: nobody asks
  BestToken* parts = nullptr;       // (row, slice, most)
  BestToken* out = nullptr;         // (row, most)
  int32_t most = 0;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kBestThreads = 128;
inline constexpr int kBestEach = 32;
inline constexpr int kBestSlice = kBestThreads * kBestEach;
inline constexpr int kMostBest = 512;
inline constexpr int kMostBestSlices = 1024;
WEFT_DECLARE_KERNEL(FindBest, BestArgs);
WEFT_DECLARE_KERNEL(MergeBest, BestArgs);

}  // namespace weft::device

#endif  // WEFT_KERNELS_GPU_BEST_H_
