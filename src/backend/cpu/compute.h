// What the operations of a step share: threads, kernels, and the products of rows
// with packed matrices. One per executor; its owner's thread only.
#ifndef WEFT_BACKEND_CPU_COMPUTE_H_
#define WEFT_BACKEND_CPU_COMPUTE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_weights.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/vector_ops.h"

namespace weft::cpu {

// `count` rows of `width` floats in scratch memory, `stride` apart.
struct RowsView {
  float* values = nullptr;
  int64_t stride = 0;
  int64_t width = 0;
  float* row(int64_t i) const { return values + i * stride; }
};
// Rows without gaps.
inline RowsView View(float* values, int64_t width) { return {values, width, width}; }

// Memory for quantized rows of any width, up to `capacity` values in whole panels.
class Int8Buffer {
 public:
  Int8Buffer() = default;
  explicit Int8Buffer(int64_t capacity)
      : blocks_(static_cast<size_t>(capacity / (32 * kPanelRows) + 1) * sizeof(ActivationBlock)) {}
  bool ok() const { return blocks_.data() != nullptr; }
  int64_t bytes() const { return static_cast<int64_t>(blocks_.size()); }

  // Of rows of n values: the blocks of the panel that holds `row`.
  ActivationBlock* Panel(int64_t row, int64_t n) {
    return blocks_.As<ActivationBlock>().data() + row / kPanelRows * (n / 32);
  }
  // Those rows from `row`, a multiple of kPanelRows, on.
  Int8Rows Rows(int64_t row, int64_t n) { return {Panel(row, n)}; }

 private:
  AlignedBuffer blocks_;
};
// Rows that begin a panel of their own end at a multiple of its rows.
inline int64_t WholePanels(int64_t n_rows) { return PanelCount(n_rows) * kPanelRows; }

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
  Compute(int n_threads, Isa isa)
      : pool_(n_threads), vec_(VectorKernelsFor(isa)), mat_(MatmulKernelsFor(isa)) {}

  int n_threads() const { return pool_.n_threads(); }
  const VectorKernels& vec() const { return vec_; }
  StageStats& stats() { return stats_; }
  const StageStats& stats() const { return stats_; }

  // Calls fn(i, worker) for i in [0, n), on the caller alone where `floats_each`
  // values of work an item would not pay for waking the others.
  template <typename Fn>
  void ForEach(int64_t n, int64_t floats_each, Fn fn) {
    const int64_t parts = pool_.n_threads() * int64_t{4};
    const bool alone = n * floats_each < kFloatsWorthSharing;
    pool_.ParallelFor(n, alone ? n : std::max<int64_t>(1, n / parts),
                      [&](int64_t begin, int64_t end, int worker) {
                        for (int64_t i = begin; i < end; ++i) fn(i, worker);
                      });
  }

  // The rows as activations for any of `matrices`: quantized to `int8` where one of
  // them wants that.
  ActivationRows Input(const RowsView& x, int64_t n_rows,
                       std::initializer_list<const BoundLinear*> linears, Int8Buffer* int8);

  // All products side by side: one piece of work for the threads.
  void Multiply(std::span<const Product> products);
  void Multiply(std::initializer_list<Product> products) {
    Multiply(std::span<const Product>(products.begin(), products.size()));
  }

  // Applies a norm to the groups of one row; nothing when there is none and `out`
  // is `x`, a copy when it is not.
  void NormRow(const BoundNorm& norm, const float* x, int64_t width, float* out) const;

  // Quantizes n values to row `row` of `to`.
  void QuantizeRow(const float* values, int64_t n, Int8Buffer* to, int64_t row) const {
    mat_.quantize_row(values, n, static_cast<int>(row % kPanelRows), to->Panel(row, n));
  }

  template <typename Fn>
  void TimeAttention(Fn fn) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    stats_.attention_ns += NanosSince(start);
  }
  void RunTasks(int64_t n, FunctionRef<void(int64_t, int64_t, int)> body) {
    pool_.ParallelFor(n, 1, body);
  }

  static int64_t NanosSince(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start)
        .count();
  }

 private:
  // A few microseconds of vector work.
  static constexpr int64_t kFloatsWorthSharing = 32768;

  void RunTiles(std::span<const Product> products, int64_t begin, int64_t end) const;

  ThreadPool pool_;
  const VectorKernels& vec_;
  const MatmulKernels& mat_;
  StageStats stats_;
};

inline bool WantsInt8(const PackedMatrix& matrix) {
  return matrix.tiles != nullptr && ActivationFormOf(matrix.type) == ActivationForm::kInt8;
}

inline Product MakeProduct(const BoundLinear& linear, const ActivationRows& x, int64_t n_rows,
                           const RowsView& out) {
  return {linear.matrix, linear.bias, 1, x, n_rows, out.values, out.stride};
}

ActivationKind KindOf(Activation activation);

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_COMPUTE_H_
