// Kernels of models with several streams, and of RWKV 7.
#ifndef WEFT_COMPUTE_KERNELS_GPU_STREAMS_H_
#define WEFT_COMPUTE_KERNELS_GPU_STREAMS_H_

#include "compute/kernels_gpu/recurrent.h"

namespace weft::device {

// Scales each head of x to the length of the row of `like`. x: heads, y: rows; 32 threads.
struct MatchArgs {
  Rows like, x;
  int32_t width = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(MatchLengths, MatchArgs);

// With n streams, the first of which is x: out = the sum of c[j] s_j; the others become
// s_i + the sum of c[n i + j] s_j. x: columns, y: rows.
struct StreamsArgs {
  Rows x, sides, coefficients, out;
  int32_t width = 0, n = 0;
  // For CorrectStreams: news = x - kept; s_i = s_i + (1 + c_i) news; out = c_0 news; scaled = (x +
  // out) scale.
  Rows kept, scaled;
  const float* scale = nullptr;
  const int32_t* n_rows = nullptr;
};
inline constexpr int kMaxStreams = 8;
WEFT_DECLARE_KERNEL(PredictStreams, StreamsArgs);
WEFT_DECLARE_KERNEL(CorrectStreams, StreamsArgs);

// x = max(0, x - mean - sparsity * deviation), over a row's values. y: rows; 32 threads.
struct SparseArgs {
  Rows x;
  int32_t width = 0;
  float sparsity = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(KeepLargest, SparseArgs);

// x = sigmoid(x + bias); `bias` may be absent. x: columns, y: rows.
struct SigmoidArgs {
  Rows x;
  const float* bias = nullptr;
  int32_t width = 0;
  const int32_t* n_rows = nullptr;
};
WEFT_DECLARE_KERNEL(SigmoidRows, SigmoidArgs);

// Part p of out = x + (before - x) lerp[p]. `before` is the row before x's; for a sequence's first
// row in the step, its state. x: columns, y: rows.
struct ShiftArgs {
  StepView step;
  SlotView state;
  Rows x, out;
  const float* lerp = nullptr;  // (part, width)
  int32_t width = 0, n_parts = 0;
};
WEFT_DECLARE_KERNEL(ShiftRows, ShiftArgs);

// The time mix of RWKV 7, on projected rows; w, a and mix are already sigmoids.
// PrepareMix: w = exp(-e^-0.5 w); v = v + (first - v) mix, or without mix first = v; d = k removal;
//   k = k (1 + (a - 1) renewal). x: columns, y: rows.
// AdvanceMix: y of each head and row. x: runs of kAdvanceThreads columns, y: heads, z: sequences.
// FinishMix: y = (y + v sum(k r bonus)) g. x: heads, y: rows; 32 threads.
struct TimeMixArgs {
  StepView step;
  SlotView state;
  Rows r, w, k, v, a, d, g, y, first, mix;
  const float *removal = nullptr, *renewal = nullptr, *bonus = nullptr;
  int32_t n_heads = 0, head_dim = 0;
};
WEFT_DECLARE_KERNEL(PrepareMix, TimeMixArgs);
WEFT_DECLARE_KERNEL(AdvanceMix, TimeMixArgs);
WEFT_DECLARE_KERNEL(FinishMix, TimeMixArgs);

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_STREAMS_H_
