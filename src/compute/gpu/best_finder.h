// Reduces logits on the device to the candidates that sampling needs: applies the sequences' logit
// changes, then finds each row's best tokens and its total weight.
//
// The step's requests are written to one buffer before the step begins, as in StepBuffer. Owner
// thread only.
#ifndef WEFT_COMPUTE_GPU_BEST_FINDER_H_
#define WEFT_COMPUTE_GPU_BEST_FINDER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "compute/backend.h"
#include "compute/device/runtime.h"
#include "compute/gpu/step_buffer.h"
#include "compute/kernels_gpu/best.h"

namespace weft::gpu {

class Launches;

// The results wanted from a piece's rows: the largest number of best tokens of any row, rounded up
// to a power of two (0: none), and whether any row needs its weight.
struct Asked {
  int64_t most = 0;
  bool weighs = false;
  auto operator<=>(const Asked&) const = default;  // NOLINT(modernize-use-nullptr)
};

class BestFinder {
 public:
  // REQUIRES: the device outlives the finder.
  static StatusOr<std::unique_ptr<BestFinder>> New(device::Device* device, int64_t n_vocab,
                                                   int64_t max_rows);

  // Takes over a step's requests and enqueues their upload. REQUIRES: the step is valid, and the
  // previous one has ended.
  Status Fill(const Step& step, device::Stream* stream);
  // Number of best tokens wanted for row i of a piece; 0: the whole row.
  int64_t n_best(int64_t piece, int64_t i) const { return HostRow<int32_t>(n_best_, piece)[i]; }
  // Whether the row's weight is wanted.
  bool weighs(int64_t piece, int64_t i) const {
    return HostRow<float>(temperatures_, piece)[i] != 0;
  }

  // For the first n rows of a piece.
  Asked AskedOf(int64_t piece, int64_t n) const;
  // Adds the kernels for a piece's rows of logits, which they change in place. A captured launch
  // serves every step with the same `asked`, as long as base() stays the same.
  void Launch(int64_t piece, const Asked& asked, const device::Rows& logits, const RowSet& rows,
              const Launches& to);
  const void* base() const { return asked_->data(); }
  // Enqueues the download of n rows' results.
  void EnqueueCopies(const Asked& asked, int64_t n, device::Stream* stream);
  // Results of row i of the piece; valid once the stream has passed the download.
  const device::BestToken* best(int64_t i) const;
  double weight(int64_t i) const;

  int64_t bytes() const { return asked_->bytes() + work_->bytes(); }

 private:
  BestFinder(device::Device* device, int64_t n_vocab, int64_t max_rows);
  Status Start();
  // Makes room for `words` words in addition to the rows' own.
  Status Reserve(int64_t words);
  // `allowed`: the offset of the first mask.
  void FillRows(const Step& step, int64_t allowed);
  template <typename T>
  T* HostRow(int64_t array, int64_t piece) const {
    return staging_->As<T>() + array + piece * StepBuffer::kPieceRows;
  }
  template <typename T>
  const T* DeviceRow(int64_t array, int64_t piece) const {
    return asked_->As<T>() + array + piece * StepBuffer::kPieceRows;
  }

  device::Device& device_;
  const int64_t n_vocab_, n_rows_;  // n_rows_: capacity
  const int64_t n_slices_, n_weights_;
  // Offsets in words: the arrays with an entry per row, then the data they refer to.
  const int64_t n_best_, masks_, temperatures_, first_changes_, rest_;
  std::unique_ptr<device::Memory> asked_, staging_;
  std::unique_ptr<device::Memory> work_, results_;
  device::BestArgs args_;
  int64_t weights_offset_ = 0;  // into results_
  int64_t max_ = 0;             // best tokens per row in results_
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_BEST_FINDER_H_
