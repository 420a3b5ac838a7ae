// Finds on the device what the tokens of a step's rows are chosen from: changes rows of logits as
// their sequences ask, finds their best tokens and their weights.
//
// What the step asks for lies in one buffer that is filled before, as in StepBuffer. Owner thread
// only.
#ifndef WEFT_BACKEND_GPU_BEST_FINDER_H_
#define WEFT_BACKEND_GPU_BEST_FINDER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/gpu/step_buffer.h"
#include "device/runtime.h"
#include "kernels_gpu/best.h"

namespace weft::gpu {

class Launches;

// What is found in the rows of a piece: the most best tokens of one, rounded up to a power of two;
// 0: nothing. Whether weights are.
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

  // Takes over what a step asks for and enqueues its way to the device. REQUIRES: the step is
  // valid, and the one before has ended.
  Status Fill(const Step& step, device::Stream* stream);
  // How many of a row's best tokens are wanted; 0: the row. Row i of a piece.
  int64_t n_best(int64_t piece, int64_t i) const { return HostRow<int32_t>(n_best_, piece)[i]; }
  // Whether its weight is.
  bool weighs(int64_t piece, int64_t i) const {
    return HostRow<float>(temperatures_, piece)[i] != 0;
  }

  // Of the first n rows of a piece.
  Asked AskedOf(int64_t piece, int64_t n) const;
  // Adds the work on a piece's rows of logits, which it changes. What is captured serves every step
  // that asks for the same, while base() stays.
  void Launch(int64_t piece, const Asked& asked, const device::Rows& logits, const RowSet& rows,
              const Launches& to);
  const void* base() const { return asked_->data(); }
  // Enqueues the way back of what was found in n rows.
  void EnqueueCopies(const Asked& asked, int64_t n, device::Stream* stream);
  // Once the stream has passed: of row i of that piece.
  const device::BestToken* best(int64_t i) const;
  double weight(int64_t i) const;

  int64_t bytes() const { return asked_->bytes() + work_->bytes(); }

 private:
  BestFinder(device::Device* device, int64_t n_vocab, int64_t max_rows);
  Status Start();
  // Makes room for so many words beside those of the rows.
  Status Reserve(int64_t words);
  // `allowed`: where masks begin.
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
  const int64_t n_vocab_, n_rows_;  // rows: room for them
  const int64_t n_slices_, n_weights_;
  // Offsets in words: per row, then what they refer to.
  const int64_t n_best_, masks_, temperatures_, first_changes_, rest_;
  std::unique_ptr<device::Memory> asked_, staging_;
  std::unique_ptr<device::Memory> work_, results_;
  device::BestArgs args_;
  int64_t weights_offset_ = 0;  // of results_
  int64_t most_ = 0;            // of a row, in results_
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_BEST_FINDER_H_
