// Norms: sums over a row, in an order that depends only on its width.
//
// Thread t of T adds values t, t + T ... in order; the lanes of a warp are added as a tree, and the
// warps in order.
#include "compute/device/dialect.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/quantize_device.h"

namespace weft::device {

constexpr int kMaxWarps = kMaxNormThreads / 32;

// The sum of all threads' values, returned to all. `sums`: shared memory, kMaxWarps words.
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

WEFT_COOPERATIVE_KERNEL(NormRows, NormArgs, kMaxNormThreads) {
  WEFT_SHARED(float, sums, kMaxWarps);
  const NormPart& norm = a.norm;
  const int row = BlockY(), group = BlockX(), first = ThreadIndex(), step = ThreadCount();
  if (row >= *a.n_rows) return;
  const float* const x = a.x.values + row * a.x.stride + group * a.group;
  float* const out = a.out.values + row * a.out.stride + group * a.group;
  const float n = static_cast<float>(norm.width);
  float mean = 0.0f;
  if (norm.layer != 0) {
    float sum = 0.0f;
    for (int i = first; i < norm.width; i += step) sum = sum + x[i];
    mean = BlockSum(sum, sums) / n;
  }
  float squares = 0.0f;
  for (int i = first; i < norm.width; i += step) {
    const float v = x[i] - mean;
    squares = Fma(v, v, squares);
  }
  const float scale = norm.factor / SquareRoot(BlockSum(squares, sums) / n + norm.epsilon);
  // A weight of one group serves all groups; a longer one spans the row.
  const int offset = norm.weight_values > 0 ? group * norm.width % norm.weight_values : 0;
  for (int i = first; i < norm.width; i += step) {
    float v = (x[i] - mean) * scale;
    if (norm.weight != nullptr) v = v * norm.weight[offset + i];
    if (norm.bias != nullptr) v = v + norm.bias[offset + i];
    out[i] = v;
  }
}

// --- the stream between two products -------------------------------------------------------------

// A norm subtracts `mean` from each value and multiplies it by `scale`.
struct NormFactors {
  float mean = 0.0f, scale = 1.0f;
};

// The sum of the first n threads' values, returned to all.
template <typename Shared>
WEFT_DEVICE float SumOfFirst(int n, float value, Shared& sums) {
  const float warp = WarpSum(value);
  if (ThreadIndex() % 32 == 0 && ThreadIndex() < n) sums[ThreadIndex() / 32] = warp;
  Barrier();
  float total = sums[0];
  for (int i = 1; i < n / 32; ++i) total = total + sums[i];
  Barrier();
  return total;
}

// For a row in shared memory, added by as many threads as NormRows has, so the bits are the same.
template <typename Row, typename Shared>
WEFT_DEVICE NormFactors FactorsOf(const NormPart& norm, Row& row, Shared& sums) {
  const int n = NormThreads(norm.width), first = ThreadIndex() < n ? ThreadIndex() : norm.width;
  const float width = static_cast<float>(norm.width);
  NormFactors factors;
  if (norm.layer != 0) {
    float sum = 0.0f;
    for (int i = first; i < norm.width; i += n) sum = sum + row[i];
    factors.mean = SumOfFirst(n, sum, sums) / width;
  }
  float squares = 0.0f;
  for (int i = first; i < norm.width; i += n) {
    const float v = row[i] - factors.mean;
    squares = Fma(v, v, squares);
  }
  factors.scale = norm.factor / SquareRoot(SumOfFirst(n, squares, sums) / width + norm.epsilon);
  return factors;
}

// Norms a thread's kStreamEach values, from column `at` on.
WEFT_DEVICE void NormFour(const NormPart& norm, const NormFactors& factors, int at, float* values) {
  float other[kStreamEach];
  WEFT_UNROLL
  for (int i = 0; i < kStreamEach; ++i) values[i] = (values[i] - factors.mean) * factors.scale;
  if (norm.weight != nullptr) {
    LoadFour(norm.weight + at, other);
    WEFT_UNROLL
    for (int i = 0; i < kStreamEach; ++i) values[i] = values[i] * other[i];
  }
  if (norm.bias != nullptr) {
    LoadFour(norm.bias + at, other);
    WEFT_UNROLL
    for (int i = 0; i < kStreamEach; ++i) values[i] = values[i] + other[i];
  }
}

template <typename Row>
WEFT_DEVICE void ReadFour(Row& row, int at, float* values) {
  const Words4 words = ReadWords4(row, at);
  WEFT_UNROLL
  for (int i = 0; i < kStreamEach; ++i) values[i] = FloatOf(words.w[i]);
}
template <typename Row>
WEFT_DEVICE void WriteFour(Row& row, int at, const float* values) {
  WriteWords4(row, at,
              {{BitsOf(values[0]), BitsOf(values[1]), BitsOf(values[2]), BitsOf(values[3])}});
}

template <typename Row, typename Shared>
WEFT_DEVICE void AdvanceRow(const StreamArgs& a, Row& row, Shared& sums) {
  const int r = BlockY(), first = ThreadIndex() * kStreamEach, step = ThreadCount() * kStreamEach;
  if (r >= *a.n_rows) return;
  const int64_t source = a.index != nullptr ? a.index[r] : r;
  float* const x = a.x.values + source * a.x.stride;
  const bool adds = a.y.values != nullptr, has_post = a.post.width != 0;
  float values[kStreamEach];
  NormFactors factors;
  if (adds && has_post) {
    for (int at = first; at < a.width; at += step) {
      LoadFour(a.y.values + r * a.y.stride + at, values);
      WriteFour(row, at, values);
    }
    Barrier();
    factors = FactorsOf(a.post, row, sums);
  }
  for (int at = first; at < a.width; at += step) {
    LoadFour(x + at, values);
    if (adds) {
      float y[kStreamEach];
      if (has_post) {
        ReadFour(row, at, y);
        NormFour(a.post, factors, at, y);
      } else {
        LoadFour(a.y.values + r * a.y.stride + at, y);
      }
      WEFT_UNROLL
      for (int i = 0; i < kStreamEach; ++i) {
        values[i] = Fma(y[i], a.y_scale, values[i]);
        if (a.scale != 1.0f) values[i] = values[i] * a.scale;
      }
      StoreFour(x + at, values);
    }
    WriteFour(row, at, values);
  }
  Barrier();
  if (a.norm.width != 0) factors = FactorsOf(a.norm, row, sums);
  for (int begin = 0; begin < a.width; begin += step) {
    const int at = begin + first;
    const bool there = at < a.width;
    WEFT_UNROLL
    for (int i = 0; i < kStreamEach; ++i) values[i] = 0.0f;
    if (there) {
      ReadFour(row, at, values);
      if (a.norm.width != 0) NormFour(a.norm, factors, at, values);
      if (a.out.values != nullptr) StoreFour(a.out.values + r * a.out.stride + at, values);
    }
    if (a.bytes.q == nullptr) continue;
    QuantizeBlock(values, a.bytes, r, at / kBlockInputs, a.width / kBlockInputs, there);
  }
}

WEFT_COOPERATIVE_KERNEL(AdvanceShortRows, StreamArgs, kMaxStreamThreads) {
  WEFT_SHARED(float, row, kShortRow);
  WEFT_SHARED(float, sums, kMaxWarps);
  AdvanceRow(a, row, sums);
}
WEFT_COOPERATIVE_KERNEL(AdvanceLongRows, StreamArgs, kMaxStreamThreads) {
  WEFT_SHARED(float, row, kLongRow);
  WEFT_SHARED(float, sums, kMaxWarps);
  AdvanceRow(a, row, sums);
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
