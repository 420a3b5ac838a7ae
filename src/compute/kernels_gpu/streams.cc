#include "compute/kernels_gpu/streams.h"

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/math.h"
#include "compute/kernels_gpu/slot_device.h"

namespace weft::device {

// Column number `i` of this thread's kColumnsEach columns.
WEFT_DEVICE int ColumnOf(int i) {
  return BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
}
WEFT_DEVICE float* RowOf(const Rows& rows, int row) {
  return rows.values != nullptr ? rows.values + row * rows.stride : nullptr;
}

WEFT_DEVICE float LengthOf(const float* x, int width) {
  float squares = 0.0f;
  for (int i = ThreadIndex(); i < width; i += 32) squares = Fma(x[i], x[i], squares);
  return SquareRoot(WarpSum(squares));
}

WEFT_COOPERATIVE_KERNEL(MatchLengths, MatchArgs, 32) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = RowOf(a.x, row) + static_cast<int64_t>(BlockX()) * a.width;
  const float scale = LengthOf(RowOf(a.like, row), a.width) / Max(LengthOf(x, a.width), 1e-20f);
  for (int i = ThreadIndex(); i < a.width; i += 32) x[i] = x[i] * scale;
}

WEFT_KERNEL(PredictStreams, StreamsArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  const float *const x = RowOf(a.x, row), *const c = RowOf(a.coefficients, row);
  float *const sides = RowOf(a.sides, row), *const out = RowOf(a.out, row);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = ColumnOf(i);
    if (column >= a.width) return;
    float before[kMaxStreams];
    before[0] = x[column];
    for (int j = 1; j < a.n; ++j) {
      before[j] = sides[static_cast<int64_t>(j - 1) * a.width + column];
    }
    for (int to = 0; to < a.n; ++to) {
      float sum = to == 0 ? 0.0f : before[to];
      for (int j = 0; j < a.n; ++j) sum = Fma(c[to * a.n + j], before[j], sum);
      if (to == 0) {
        out[column] = sum;
      } else {
        sides[static_cast<int64_t>(to - 1) * a.width + column] = sum;
      }
    }
  }
}

WEFT_KERNEL(CorrectStreams, StreamsArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  const float *const x = RowOf(a.x, row), *const c = RowOf(a.coefficients, row);
  const float* const kept = RowOf(a.kept, row);
  float *const sides = RowOf(a.sides, row), *const out = RowOf(a.out, row);
  float* const scaled = RowOf(a.scaled, row);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = ColumnOf(i);
    if (column >= a.width) return;
    const float news = x[column] - kept[column];
    for (int to = 1; to < a.n; ++to) {
      float* const side = sides + static_cast<int64_t>(to - 1) * a.width + column;
      *side = Fma(1.0f + c[to], news, *side);
    }
    const float own = c[0] * news;
    out[column] = own;
    scaled[column] = (x[column] + own) * a.scale[column];
  }
}

WEFT_COOPERATIVE_KERNEL(KeepLargest, SparseArgs, 32) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = RowOf(a.x, row);
  const float n = static_cast<float>(a.width);
  float sum = 0.0f, squares = 0.0f;
  for (int i = ThreadIndex(); i < a.width; i += 32) sum = sum + x[i];
  const float mean = WarpSum(sum) / n;
  for (int i = ThreadIndex(); i < a.width; i += 32) {
    squares = Fma(x[i] - mean, x[i] - mean, squares);
  }
  const float least = Fma(a.sparsity, SquareRoot(WarpSum(squares) / (n - 1.0f)), mean);
  for (int i = ThreadIndex(); i < a.width; i += 32) x[i] = Max(0.0f, x[i] - least);
}

WEFT_KERNEL(SigmoidRows, SigmoidArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = RowOf(a.x, row);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = ColumnOf(i);
    if (column >= a.width) return;
    x[column] = Sigmoid(a.bias != nullptr ? x[column] + a.bias[column] : x[column]);
  }
}

WEFT_KERNEL(ShiftRows, ShiftArgs) {
  const int row = BlockY();
  if (row >= *a.step.n_rows) return;
  const int sequence = a.step.sequences[row];
  const float* const x = RowOf(a.x, row);
  const float* const before = row > a.step.first_rows[sequence]
                                  ? RowOf(a.x, row - 1)
                                  : SlotStateOf(a.step, a.state, sequence);
  float* const out = RowOf(a.out, row);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = ColumnOf(i);
    if (column >= a.width) return;
    const float value = x[column], difference = before[column] - value;
    for (int part = 0; part < a.n_parts; ++part) {
      const int64_t at = static_cast<int64_t>(part) * a.width + column;
      out[at] = Fma(difference, a.lerp[at], value);
    }
  }
}

WEFT_KERNEL(PrepareMix, TimeMixArgs) {
  const int row = BlockY();
  if (row >= *a.step.n_rows) return;
  float *const w = RowOf(a.w, row), *const k = RowOf(a.k, row), *const v = RowOf(a.v, row);
  float *const d = RowOf(a.d, row), *const first = RowOf(a.first, row);
  const float *const rate = RowOf(a.a, row), *const mix = RowOf(a.mix, row);
  for (int i = 0; i < kColumnsEach; ++i) {
    const int c = ColumnOf(i);
    if (c >= a.n_heads * a.head_dim) return;
    w[c] = Exp(w[c] * -0.60653066f);
    if (mix != nullptr) {
      v[c] = Fma(first[c] - v[c], mix[c], v[c]);
    } else {
      first[c] = v[c];
    }
    d[c] = k[c] * a.removal[c];
    k[c] = k[c] * Fma(rate[c] - 1.0f, a.renewal[c], 1.0f);
  }
}

WEFT_KERNEL(AdvanceMix, TimeMixArgs) {
  const int sequence = BlockZ(), head = BlockY();
  const int column = BlockX() * kAdvanceThreads + ThreadIndex(), dim = a.head_dim;
  if (sequence >= *a.step.n_sequences || column >= dim) return;
  float* const state =
      SlotStateOf(a.step, a.state, sequence) + static_cast<int64_t>(head) * dim * dim + column;
  for (int row = a.step.first_rows[sequence]; row < a.step.first_rows[sequence + 1]; ++row) {
    const int at = head * dim;
    const float *const r = RowOf(a.r, row) + at, *const w = RowOf(a.w, row) + at;
    const float *const k = RowOf(a.k, row) + at, *const d = RowOf(a.d, row) + at;
    const float* const rate = RowOf(a.a, row) + at;
    const float value = RowOf(a.v, row)[at + column];
    float removed = 0.0f, sum = 0.0f;
    for (int j = 0; j < dim; ++j) {
      removed = Fma(state[static_cast<int64_t>(j) * dim], d[j], removed);
    }
    for (int j = 0; j < dim; ++j) {
      float* const s = state + static_cast<int64_t>(j) * dim;
      *s = Fma(k[j], value, Fma(-(d[j] * rate[j]), removed, w[j] * *s));
      sum = Fma(*s, r[j], sum);
    }
    RowOf(a.y, row)[at + column] = sum;
  }
}

WEFT_COOPERATIVE_KERNEL(FinishMix, TimeMixArgs, 32) {
  const int row = BlockY(), at = BlockX() * a.head_dim;
  if (row >= *a.step.n_rows) return;
  const float *const r = RowOf(a.r, row) + at, *const k = RowOf(a.k, row) + at;
  const float *const v = RowOf(a.v, row) + at, *const g = RowOf(a.g, row) + at;
  float* const y = RowOf(a.y, row) + at;
  float sum = 0.0f;
  for (int i = ThreadIndex(); i < a.head_dim; i += 32) {
    sum = Fma(k[i] * r[i], a.bonus[at + i], sum);
  }
  sum = WarpSum(sum);
  for (int i = ThreadIndex(); i < a.head_dim; i += 32) y[i] = Fma(v[i], sum, y[i]) * g[i];
}

}  // namespace weft::device
