// Elementwise kernels: copies, sums, activations, rotation.
#include "compute/device/dialect.h"
#include "compute/kernels_gpu/activate_device.h"
#include "compute/kernels_gpu/kernels.h"
#include "compute/kernels_gpu/math.h"

namespace weft::device {

// Calls fn(column) for the columns of this thread.
template <typename Fn>
WEFT_DEVICE void ForColumns(int width, Fn fn) {
  for (int i = 0; i < kColumnsEach; ++i) {
    const int column = BlockX() * kColumnsPerBlock + i * kColumnThreads + ThreadIndex();
    if (column < width) fn(column);
  }
}

WEFT_KERNEL(CopyRows, CopyArgs) {
  const int row = BlockY(), head = BlockZ();
  if (row >= *a.n_rows) return;
  const int64_t source = a.index != nullptr ? a.index[row] : row;
  const float* const from = a.from.values + source * a.from.stride + head * a.from_head;
  float* const to = a.to.values + row * a.to.stride + head * a.to_head;
  ForColumns(a.width, [&](int c) { to[c] = a.from.values != nullptr ? from[c] : 0.0f; });
}

WEFT_KERNEL(AddRows, CombineArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  const float* const x = a.x.values + row * a.x.stride;
  float* const sum = a.sum.values + row * a.sum.stride;
  ForColumns(a.width, [&](int c) { sum[c] = sum[c] + x[c]; });
}

WEFT_KERNEL(MultiplyRows, CombineArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  const float* const x = a.x.values + row * a.x.stride;
  float* const product = a.sum.values + row * a.sum.stride;
  ForColumns(a.width, [&](int c) { product[c] = product[c] * x[c]; });
}

WEFT_KERNEL(ScaleRows, ScaleArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const stream = a.stream.values + row * a.stream.stride;
  const float* const y = a.y.values + row * a.y.stride;
  ForColumns(a.width, [&](int c) {
    float value = stream[c];
    if (a.y.values != nullptr) value = Fma(y[c], a.y_scale, value);
    if (a.scale != 1.0f) value = value * a.scale;
    if (a.softcap > 0.0f) value = Softcap(a.softcap, value);
    stream[c] = value;
  });
}

WEFT_KERNEL(ActivateRows, ActivateArgs) {
  const int64_t row = static_cast<int64_t>(BlockZ()) * kMaxRunRows + BlockY();
  if (row >= *a.n_rows) return;
  const float* const gate = a.gate.values + row * a.gate.stride;
  const float* const up = a.up.values + row * a.up.stride;
  float* const out = a.out.values + row * a.out.stride;
  const bool has_up = a.up.values != nullptr;
  const float factor = a.factors != nullptr ? a.factors[row] : 1.0f;
  ForColumns(a.width, [&](int c) {
    out[c] = ActivateValue(a, gate[c] * factor, has_up, has_up ? up[c] * factor : 0.0f);
  });
}

WEFT_KERNEL(WarmRows, WarmArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = a.x.values + row * a.x.stride;
  const int run = (a.positions[row] + a.offset) / a.length;
  const float factor = Fma(Log(static_cast<float>(run + 1)), a.scale, 1.0f);
  ForColumns(a.width, [&](int c) { x[c] = x[c] * factor; });
}

WEFT_COOPERATIVE_KERNEL(ActivateBytes, ActivateBytesArgs, kQuantizeThreads) {
  const int64_t row = static_cast<int64_t>(BlockZ()) * kMaxRunRows + BlockY();
  const int block = BlockX() * kQuantizeBlocks + ThreadIndex() / kQuantizeLanes;
  if (row >= *a.rows.n_rows) return;
  ActivateBlock(a, row, Min(block, a.n_blocks - 1), block < a.n_blocks);
}

WEFT_KERNEL(GateRows, GateArgs) {
  const int row = BlockY(), head = BlockZ();
  if (row >= *a.n_rows) return;
  float* const x = a.x.values + row * a.x.stride + head * a.x_head;
  const float* const gate = a.gate.values + row * a.gate.stride + head * a.gate_head;
  ForColumns(a.width, [&](int c) {
    const float input = gate[c * a.gate_step];
    x[c] = x[c] * (a.softplus != 0 ? Softplus(input) : Sigmoid(input));
  });
}

WEFT_KERNEL(RotateRows, RopeArgs) {
  const int row = BlockY();
  if (row >= *a.n_rows) return;
  float* const x = a.x.values + row * a.x.stride + BlockZ() * a.head;
  const float* const cosines = a.table + static_cast<int64_t>(row) * 2 * a.n_pairs;
  const float* const sines = cosines + a.n_pairs;
  ForColumns(a.n_pairs, [&](int i) {
    float* const first = a.adjacent != 0 ? x + 2 * i : x + i;
    float* const second = a.adjacent != 0 ? first + 1 : first + a.n_pairs;
    const float u = *first, v = *second;
    *first = Fma(-v, sines[i], u * cosines[i]);
    *second = Fma(u, sines[i], v * cosines[i]);
  });
}

}  // namespace weft::device
