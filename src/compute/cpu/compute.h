// Shared by the operations of a step: threads, kernels, and products of rows with packed matrices.
// One per executor; its owner's thread only.
#ifndef WEFT_COMPUTE_CPU_COMPUTE_H_
#define WEFT_COMPUTE_CPU_COMPUTE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "compute/cpu/adapter_sums.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/scratch.h"
#include "compute/kernels/matmul/matmul.h"
#include "compute/kernels/vector_ops.h"

namespace weft::cpu {

// Costs of work on one value, relative to vector work on a float, for ForEach. The cost of a row is
// the sum over its values.
inline constexpr int64_t kStep = 1;        // an addition, a product, a copy, rounding to bytes
inline constexpr int64_t kDecode = 2;      // from a stored type
inline constexpr int64_t kNormRotate = 2;  // norm and rope
inline constexpr int64_t kExp = 4;         // exp, tanh, sigmoid and the like
inline constexpr int64_t kConvolve = 6;    // a convolution with a few taps
inline constexpr int64_t kAngle = 50;      // a cosine and a sine in double

// One product of a batch: out = W x + bias, then times `scale`.
struct Product {
  PackedMatrix matrix;
  const float* bias = nullptr;
  float scale = 1;
  ActivationRows x;
  int64_t n_rows = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

class Compute {
 public:
  Compute(std::shared_ptr<ThreadPool> pool, Isa isa)
      : pool_(std::move(pool)), vec_(VectorKernelsFor(isa)), mat_(MatmulKernelsFor(isa)) {}

  int n_threads() const { return pool_->n_threads(); }
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }
  const VectorKernels& vec() const { return vec_; }
  const MatmulKernels& mat() const { return mat_; }
  StageStats& stats() { return stats_; }
  const StageStats& stats() const { return stats_; }

  // Calls fn(i, worker) for i in [0, n). Runs on the caller alone if the items, at `cost_each`
  // (values times the cost of one), are not worth waking the other threads.
  template <typename Fn>
  void ForEach(int64_t n, int64_t cost_each, Fn fn) {
    const int64_t parts = pool_->n_threads() * int64_t{4};
    const bool alone = n * cost_each < kCostWorthSharing;
    pool_->ParallelFor(n, alone ? n : std::max<int64_t>(1, n / parts),
                       [&](int64_t begin, int64_t end, int worker) {
                         for (int64_t i = begin; i < end; ++i) fn(i, worker);
                       });
  }

  // Prepares rows as input of `linears`: quantized to `int8` if one of them needs that.
  ActivationRows Input(const RowsView& x, int64_t n_rows,
                       std::initializer_list<const BoundLinear*> linears, const Int8View& int8);

  // Computes all products as one parallel loop over their tiles, and adds what the rows' adapters
  // change.
  void Multiply(std::span<const Product> products);
  void Multiply(std::initializer_list<Product> products) {
    Multiply(std::span<const Product>(products.begin(), products.size()));
  }
  // The same without what adapters change.
  void MultiplyAlone(std::span<const Product> products);
  // Adds the product to the statistics.
  void Count(const Product& product);
  AdapterSums& adapters() { return adapters_; }
  const AdapterSums& adapters() const { return adapters_; }

  // Calls `observe` with all products before they are computed.
  void Observe(std::function<void(std::span<const Product>)> observe) {
    observe_ = std::move(observe);
  }

  // Applies a norm to the groups of one row. Without a norm, copies x to `out` unless they are the
  // same.
  void NormRow(const BoundNorm& norm, const float* x, int64_t width, float* out) const;

  // Quantizes to.width values to row `row` of `to`.
  void QuantizeRow(const float* values, const Int8View& to, int64_t row) const {
    mat_.quantize_row(values, to.width, static_cast<int>(row % kPanelRows), to.Panel(row));
  }

  template <typename Fn>
  void TimeAttention(Fn fn) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    stats_.attention_ns += NanosSince(start);
  }
  void RunTasks(int64_t n, FunctionRef<void(int64_t, int64_t, int)> body) {
    pool_->ParallelFor(n, 1, body);
  }

  static int64_t NanosSince(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start)
        .count();
  }

 private:
  // A few microseconds of vector work, about the cost of waking threads.
  static constexpr int64_t kCostWorthSharing = 32768;

  // Counts the products, and returns how many tiles they have.
  int64_t CountTiles(std::span<const Product> products);
  // Calls body(begin, end, worker) for runs of all of `n` tiles; its time is that of products.
  void ForTiles(int64_t n, FunctionRef<void(int64_t, int64_t, int)> body);
  // Tiles [begin, end), counted across all products. Calls computed(i, from, to) after tiles
  // [from, to) of product i.
  void MultiplyTiles(std::span<const Product> products, int64_t begin, int64_t end,
                     FunctionRef<void(size_t, int64_t, int64_t)> computed) const;
  // Bias and scale of tiles that are multiplied.
  void Finish(const Product& product, int64_t from, int64_t to) const;

  const std::shared_ptr<ThreadPool> pool_;
  const VectorKernels& vec_;
  const MatmulKernels& mat_;
  StageStats stats_;
  AdapterSums adapters_;
  std::function<void(std::span<const Product>)> observe_;  // may be empty
};

inline bool WantsInt8(const PackedMatrix& matrix) {
  return matrix.tiles != nullptr && ActivationFormOf(matrix.type) == ActivationForm::kInt8;
}

// Rows as input of `matrix`; `int8` holds the quantized rows if the matrix needs them.
inline ActivationRows Quantized(const RowsView& x, const PackedMatrix& matrix,
                                const Int8View& int8) {
  return {x.values, x.stride, WantsInt8(matrix) ? int8.Rows(0) : Int8Rows()};
}

inline Product MakeProduct(const BoundLinear& linear, const ActivationRows& x, int64_t n_rows,
                           const RowsView& out) {
  const float scale = linear.scale != nullptr ? *linear.scale : 1;
  return {linear.matrix, linear.bias, scale, x, n_rows, out.values, out.stride};
}

ActivationShape ShapeOf(Activation activation, const ActivationNumbers& numbers = {});

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_COMPUTE_H_
