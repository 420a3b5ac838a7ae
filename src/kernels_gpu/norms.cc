// Norms: sums over a row, in an order that follows from its width.
//
// Thread t of T adds values t, t + T ... in order; the lanes of a warp are added as a tree, and
// the warps in order.
#include "device/dialect.h"
#include "kernels_gpu/kernels.h"
#include "kernels_gpu/math.h"

namespace weft::device {

constexpr int kMostWarps = kMostNormThreads / 32;

// The sum of all threads' values, in all of them. `sums`: shared, kMostWarps words.
template <typename Shared>
WEFT_DEVICE float BlockSum(float value, Shared& sums) {
  const float warp = WarpSum(value);
  const int n_warps = ThreadCount() / 32;
  if (n_warps == 1) return warp;
  if (ThreadIndex() % 32 == 0) sums[ThreadIndex() / 32] = warp;
  Barrier();
  float total = sums[0];
  for (int i = 1; i < n_warps; ++i) total = total + sums[i];
  Barrier();
  return total;
}

WEFT_COOPERATIVE_KERNEL(NormRows, NormArgs, kMostNormThreads) {
  WEFT_SHARED(float, sums, kMostWarps);
  const int row = BlockY(), group = BlockX(), first = ThreadIndex(), step = ThreadCount();
  if (row >= *a.n_rows) return;
  const float* const x = a.x.values + row * a.x.stride + group * a.group;
  float* const out = a.out.values + row * a.out.stride + group * a.group;
  const float n = static_cast<float>(a.width);
  float mean = 0.0f;
  if (a.layer != 0) {
    float sum = 0.0f;
    for (int i = first; i < a.width; i += step) sum = sum + x[i];
    mean = BlockSum(sum, sums) / n;
  }
  float squares = 0.0f;
  for (int i = first; i < a.width; i += step) {
    const float v = x[i] - mean;
    squares = Fma(v, v, squares);
  }
  const float scale = a.factor / SquareRoot(BlockSum(squares, sums) / n + a.epsilon);
  // A weight of one group serves all groups; a longer one spans the row.
  const int offset = a.weight_values > 0 ? group * a.width % a.weight_values : 0;
  for (int i = first; i < a.width; i += step) {
    float v = (x[i] - mean) * scale;
    if (a.weight != nullptr) v = v * a.weight[offset + i];
    if (a.bias != nullptr) v = v + a.bias[offset + i];
    out[i] = v;
  }
}

WEFT_COOPERATIVE_KERNEL(SetLengths, LengthArgs, 32) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = a.x.values + row * a.x.stride + static_cast<int64_t>(BlockX()) * a.width;
  float squares = 0.0f;
  for (int i = ThreadIndex(); i < a.width; i += 32) squares = Fma(x[i], x[i], squares);
  const float norm = SquareRoot(WarpSum(squares));
  const float scale = a.length / (norm < a.epsilon ? a.epsilon : norm);
  for (int i = ThreadIndex(); i < a.width; i += 32) x[i] = x[i] * scale;
}

}  // namespace weft::device
