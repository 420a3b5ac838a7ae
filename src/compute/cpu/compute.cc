#include "compute/cpu/compute.h"

#include <cstring>

#include "base/check.h"

namespace weft::cpu {

ActivationRows Compute::Input(const RowsView& x, int64_t n_rows,
                              std::initializer_list<const BoundLinear*> linears,
                              const Int8View& int8) {
  ActivationRows rows;
  rows.values = x.values;
  rows.values_stride = x.stride;
  const bool wanted = std::any_of(linears.begin(), linears.end(), [](const BoundLinear* linear) {
    return WantsInt8(linear->matrix);
  });
  if (!wanted) return rows;
  ForEach(n_rows, x.width * kStep, [&](int64_t i, int) { QuantizeRow(x.row(i), int8, i); });
  rows.int8 = int8.Rows(0);
  return rows;
}

void Compute::Multiply(std::span<const Product> products) {
  if (observe_) observe_(products);
  if (adapters_.is_idle()) return MultiplyAlone(products);
  adapters_.Plan(products, this);
  const int64_t n_low = adapters_.n_low_tiles();
  ForTiles(n_low + CountTiles(products), [&](int64_t begin, int64_t end, int worker) {
    const int64_t low_end = std::min(end, n_low);
    if (begin < low_end) adapters_.MultiplyLow(begin, low_end, worker, mat_);
    MultiplyTiles(
        products, std::max(begin, n_low) - n_low, end - n_low,
        [&](size_t i, int64_t from, int64_t to) { adapters_.AddTo(i, from, to, worker, *this); });
  });
}

void Compute::MultiplyAlone(std::span<const Product> products) {
  ForTiles(CountTiles(products), [&](int64_t begin, int64_t end, int) {
    MultiplyTiles(products, begin, end, [](size_t, int64_t, int64_t) {});
  });
}

int64_t Compute::CountTiles(std::span<const Product> products) {
  int64_t n_tiles = 0;
  for (const Product& product : products) {
    n_tiles += TileCount(product.matrix.n_out);
    Count(product);
  }
  return n_tiles;
}

void Compute::Count(const Product& product) {
  const PackedMatrix& matrix = product.matrix;
  stats_.weight_bytes += TileCount(matrix.n_out) * PackedTileBytes(matrix.type, matrix.n_in);
  (WantsInt8(matrix) ? stats_.int8_macs : stats_.float_macs) +=
      product.n_rows * matrix.n_out * matrix.n_in;
}

void Compute::ForTiles(int64_t n, FunctionRef<void(int64_t, int64_t, int)> body) {
  const auto start = std::chrono::steady_clock::now();
  // Runs of tiles long enough to stream from memory, but short enough that the threads finish
  // together.
  const int64_t grain = std::max<int64_t>(1, n / (pool_->n_threads() * int64_t{8}));
  pool_->ParallelFor(n, pool_->n_threads() == 1 ? n : grain, body);
  stats_.matmul_ns += NanosSince(start);
}

void Compute::MultiplyTiles(std::span<const Product> products, int64_t begin, int64_t end,
                            FunctionRef<void(size_t, int64_t, int64_t)> computed) const {
  int64_t first = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const int64_t count = TileCount(product.matrix.n_out);
    const int64_t from = std::max(begin, first) - first;
    const int64_t to = std::min(end, first + count) - first;
    first += count;
    if (from >= to || product.n_rows == 0) continue;
    mat_.matmul(product.matrix, product.x, product.n_rows, from, to, product.out,
                product.out_stride);
    Finish(product, from, to);
    computed(i, from, to);
  }
}

void Compute::Finish(const Product& product, int64_t from, int64_t to) const {
  if (product.bias == nullptr && product.scale == 1) return;
  const int64_t column = from * kTileOutputs;
  const int64_t width = std::min(to * kTileOutputs, product.matrix.n_out) - column;
  for (int64_t i = 0; i < product.n_rows; ++i) {
    float* const out = product.out + i * product.out_stride + column;
    if (product.bias != nullptr) vec_.add(product.bias + column, width, out);
    if (product.scale != 1) vec_.scale(product.scale, width, out);
  }
}

void Compute::NormRow(const BoundNorm& norm, const float* x, int64_t width, float* out) const {
  if (!norm) {
    if (out != x) std::memcpy(out, x, static_cast<size_t>(width) * sizeof(float));
    return;
  }
  const Norm& spec = norm.spec;
  for (int64_t at = 0; at < width; at += spec.width) {
    // A weight of one group serves all groups; a longer one spans the row.
    const int64_t offset = norm.weight_values > 0 ? at % norm.weight_values : 0;
    const float* const weight = norm.weight != nullptr ? norm.weight + offset : nullptr;
    const float* const bias = norm.bias != nullptr ? norm.bias + offset : nullptr;
    if (spec.kind == NormKind::kLayer) {
      vec_.layer_norm(x + at, spec.width, spec.epsilon, spec.factor, weight, bias, out + at);
    } else {
      vec_.rms_norm(x + at, spec.width, spec.epsilon, spec.factor, weight, out + at);
      if (bias != nullptr) vec_.add(bias, spec.width, out + at);
    }
  }
}

namespace {

ActivationKind KindOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return ActivationKind::kSilu;
    case Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case Activation::kGeluErf:
      return ActivationKind::kGeluErf;
    case Activation::kRelu:
      return ActivationKind::kRelu;
    case Activation::kReluSquared:
      return ActivationKind::kReluSquared;
    case Activation::kClampedSwiglu:
      return ActivationKind::kClampedSwiglu;
    case Activation::kClampedSilu:
      return ActivationKind::kClampedSilu;
    case Activation::kSiluOfClamped:
      return ActivationKind::kSiluOfClamped;
    case Activation::kXielu:
      return ActivationKind::kXielu;
  }
  WEFT_CHECK(false, "an activation outside its enum");
}

}  // namespace

ActivationShape ShapeOf(Activation activation, const ActivationNumbers& numbers) {
  return {KindOf(activation), numbers.limit, numbers.rise, numbers.fall, numbers.slope};
}

}  // namespace weft::cpu
