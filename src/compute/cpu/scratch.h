// Scratch memory of steps: an arena that hands out named, sized views.
//
// A user declares its needs once, as a struct of views that it takes from an arena on construction.
// Over memory, these are usable views; without memory the arena only counts bytes, which is how the
// needed memory is planned.
#ifndef WEFT_COMPUTE_CPU_SCRATCH_H_
#define WEFT_COMPUTE_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "compute/kernels/matmul/matmul.h"

namespace weft::cpu {

// `count` rows of `width` floats in scratch memory, `stride` apart.
struct RowsView {
  float* values = nullptr;
  int64_t stride = 0;
  int64_t width = 0;
  float* row(int64_t i) const { return values + i * stride; }
  // The values [first, first + n) of each row.
  RowsView Columns(int64_t first, int64_t n) const { return {values + first, stride, n}; }
};

// Memory for quantized rows of `width` values, in whole panels.
struct Int8View {
  ActivationBlock* blocks = nullptr;
  int64_t width = 0;
  // The blocks of the panel that holds `row`.
  ActivationBlock* Panel(int64_t row) const { return blocks + row / kPanelRows * (width / 32); }
  // The quantized rows from `row` on, a multiple of kPanelRows.
  Int8Rows Rows(int64_t row) const { return {Panel(row)}; }
};
// Rounds up to whole panels, for rows that begin a new panel.
inline int64_t WholePanels(int64_t n_rows) { return PanelCount(n_rows) * kPanelRows; }

class Arena {
 public:
  // For steps of n_rows rows. Without memory it only counts bytes. REQUIRES: the memory begins at a
  // cache line, and has at least the bytes counted for this number of rows.
  explicit Arena(int64_t n_rows, std::span<std::byte> memory = {})
      : n_rows_(n_rows), memory_(memory) {}

  // `n_rows` rows, by default one per row of the step; every view begins at a cache line.
  RowsView Rows(int64_t width) { return Rows(width, n_rows_); }
  RowsView Rows(int64_t width, int64_t n_rows) {
    return {Take<float>(width * n_rows), width, width};
  }
  Int8View Int8(int64_t width) { return Int8(width, n_rows_); }
  Int8View Int8(int64_t width, int64_t n_rows) {
    return {Take<ActivationBlock>(PanelCount(n_rows) * (width / 32)), width};
  }

  int64_t n_rows() const { return n_rows_; }
  size_t bytes() const { return bytes_; }

 private:
  template <typename T>
  T* Take(int64_t count) {
    const size_t begin = bytes_;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + kCacheLineBytes - 1) / kCacheLineBytes *
              kCacheLineBytes;
    if (memory_.empty()) return nullptr;
    WEFT_CHECK(bytes_ <= memory_.size(), "a step takes the scratch memory that was planned");
    return reinterpret_cast<T*>(memory_.data() + begin);
  }

  const int64_t n_rows_;
  const std::span<std::byte> memory_;
  size_t bytes_ = 0;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_SCRATCH_H_
