// Everything that differs from step to step, in one device buffer that is filled before the step
// begins: rows, sequences, page tables, rope tables, wanted results. Launches refer to sessions
// only through this buffer, so they are captured once for all steps.
//
// Owner thread only.
#ifndef WEFT_COMPUTE_GPU_STEP_BUFFER_H_
#define WEFT_COMPUTE_GPU_STEP_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compute/backend.h"
#include "compute/device/runtime.h"
#include "compute/gpu/attend_list.h"
#include "compute/kernels_gpu/kernels.h"

namespace weft::gpu {

// The rows of a launch: device memory at `n` holds their actual number, which is at most `most`.
struct RowSet {
  const int32_t* n = nullptr;
  int64_t most = 0;
};

// Cosines and sines by position: n_pairs cosines, then as many sines. Computed once, when a step
// first needs the position; 512 bytes for a position of 64 pairs.
class RopeTable {
 public:
  explicit RopeTable(const Rope& rope) : rope_(rope) {}
  const float* Of(int64_t position);

 private:
  static constexpr int64_t kChunk = 16;  // positions computed together
  const Rope& rope_;
  std::vector<std::vector<float>> chunks_;
};

class StepBuffer {
 public:
  // Results are computed for this many rows at a time.
  static constexpr int64_t kPieceRows = 32;

  // REQUIRES: device and spec outlive the buffer. `text_kv`: memory for a KV cache that lasts only
  // as long as one operation; null if the model needs none.
  static StatusOr<std::unique_ptr<StepBuffer>> New(device::Device* device, const ModelSpec& spec,
                                                   int page_tokens, int64_t max_rows,
                                                   std::byte* text_kv);

  // Takes over a step and enqueues its upload. REQUIRES: the step is valid, and the previous one
  // has ended. If the step has more pages than any before, the buffer moves and generation()
  // changes.
  Status Fill(const Step& step, device::Stream* stream);
  int64_t generation() const { return generation_; }

  // --- of the current step ------------------------------------------------------------------
  int64_t n_rows() const { return n_rows_; }
  int64_t n_sequences() const { return n_sequences_; }
  // Attention items: the max over all groups of layers, of single rows (0) or of several (1).
  int64_t n_items(int list) const { return n_items_[list]; }
  // Max parts of attention of any step.
  int64_t max_parts() const { return attend_list_.max_parts(); }
  int64_t n_logits() const { return n_logits_; }
  int64_t n_vectors() const { return n_vectors_; }
  // Whether vector i is taken from before the output norm.
  bool is_raw(int64_t i) const { return raw_vectors_[static_cast<size_t>(i)]; }

  // --- addresses ----------------------------------------------------------------------------
  const device::StepView& view() const { return view_; }
  const float* rope(int index) const { return At<float>(ropes_[static_cast<size_t>(index)]); }
  // Piece i of the rows whose logits (or vectors) are wanted, as row numbers of the step.
  const int32_t* logit_rows(int64_t piece) const {
    return At<int32_t>(logit_rows_ + piece * kPieceRows);
  }
  const int32_t* vector_rows(int64_t piece) const {
    return At<int32_t>(vector_rows_ + piece * kPieceRows);
  }
  RowSet logit_piece(int64_t piece) const {
    return {At<int32_t>(logit_counts_ + piece), kPieceRows};
  }
  RowSet vector_piece(int64_t piece) const {
    return {At<int32_t>(vector_counts_ + piece), kPieceRows};
  }
  // Pages of one token for texts, whose KV cache lasts only as long as one operation: row r has
  // page r, as the page tables of text_group() say.
  device::PoolView text_pool(int64_t page_bytes) const {
    return {At<std::byte*>(text_slab_), 30, page_bytes};
  }
  int text_group() const { return static_cast<int>(spec_.kv_groups.size()); }
  int64_t bytes() const { return memory_->bytes(); }

 private:
  StepBuffer(device::Device* device, const ModelSpec& spec, int page_tokens, int64_t max_rows,
             std::byte* text_kv)
      : device_(*device),
        spec_(spec),
        max_rows_(max_rows),
        text_kv_(text_kv),
        attend_list_(spec, page_tokens, max_rows),
        rope_tables_(spec.ropes.begin(), spec.ropes.end()) {}

  // Lays everything out for `max_pages` page table entries, and allocates the memory.
  Status LayOut(int64_t max_pages);
  void FillRows(const Step& step);
  void FillTables(const Step& step);
  void FillItems(const Step& step);
  void FillRopes();
  // Words per row.
  int64_t RopeWords(size_t rope) const { return 2 * std::ssize(spec_.ropes[rope].frequencies); }
  void FillWanted(const Step& step);
  template <typename T>
  const T* At(int64_t word) const {
    return reinterpret_cast<const T*>(memory_->data() + word * 4);
  }
  template <typename T>
  T* HostAt(int64_t word) const {
    return reinterpret_cast<T*>(staging_->data() + word * 4);
  }
  template <typename T>
  T* Host(const T* on_device) const {
    return reinterpret_cast<T*>(staging_->data() +
                                (reinterpret_cast<const std::byte*>(on_device) - memory_->data()));
  }

  device::Device& device_;
  const ModelSpec& spec_;
  const int64_t max_rows_;
  std::byte* const text_kv_;
  AttendList attend_list_;
  std::vector<RopeTable> rope_tables_;
  std::vector<int32_t> item_rows_;
  std::vector<bool> raw_vectors_;
  int64_t generation_ = 0, max_pages_ = 0;
  std::unique_ptr<device::Memory> memory_, staging_;
  device::StepView view_;
  // Offsets in words.
  std::vector<int64_t> ropes_;
  int64_t logit_rows_ = 0, vector_rows_ = 0, logit_counts_ = 0, vector_counts_ = 0;
  int64_t text_slab_ = 0, pages_ = 0, items_ = 0;
  int64_t n_items_[2] = {};
  int64_t item_words_ = 0;  // total of all items of the step
  int64_t n_rows_ = 0, n_sequences_ = 0, n_logits_ = 0, n_vectors_ = 0;
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_STEP_BUFFER_H_
