// LoRA adapters on the CPU: their packed pairs of matrices, and the rows of a step that use them.
//
// A product's rows get B (A x) of each of their adapters, in the adapters' order. A row's values
// come from itself alone, whichever rows are computed with it, so its bits do too.
//
// CpuAdapters is immutable once bound; the rest belongs to the owner thread.
#ifndef WEFT_COMPUTE_CPU_ADAPTERS_H_
#define WEFT_COMPUTE_CPU_ADAPTERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "compute/kernels/matmul/matmul.h"
#include "model/adapter_spec.h"
#include "model/operation_parts.h"

namespace weft::cpu {

// The matrices with which an adapter changes one of the model's; none: it does not.
struct AdapterPair {
  PackedMatrix a, b;
  float factor = 1;

  explicit operator bool() const { return b.tiles != nullptr; }
};

// One adapter's matrices.
class CpuAdapter {
 public:
  explicit CpuAdapter(Adapter adapter) : adapter_(std::move(adapter)) {}

  // Packs what changes `linear`.
  StatusOr<AdapterPair> Pack(const Linear& linear);
  Status PackEmbedding();

  // Its A is read from the file, row by row.
  const AdapterPair& embedding() const { return embedding_; }
  // Reads A's row of the token.
  Status ReadEmbedding(int64_t token, std::span<float> low) const;
  int64_t memory_bytes() const { return memory_bytes_; }

 private:
  StatusOr<PackedMatrix> PackRows(TensorRef ref, int64_t first_row, int64_t n_rows);
  // Null if there is no memory.
  std::byte* Take(size_t size);

  const Adapter adapter_;
  std::map<int, PackedMatrix> a_;  // by tensor: matrices that are cut from one share it
  AdapterPair embedding_;
  // A product's matrices lie next to each other, so that what the kernels ask for ahead is of use.
  std::vector<AlignedBuffer> memory_;
  std::span<std::byte> room_;  // of the last buffer
  int64_t memory_bytes_ = 0;
};

// All adapters of a model.
class CpuAdapters {
 public:
  explicit CpuAdapters(const std::vector<Adapter>& adapters)
      : adapters_(adapters.begin(), adapters.end()) {}

  // Packs what changes `linear`, whose matrix is packed at `tiles`.
  Status Bind(const Linear& linear, const std::byte* tiles);
  Status BindEmbedding();

  int64_t count() const { return std::ssize(adapters_); }
  const CpuAdapter& operator[](int i) const { return adapters_[static_cast<size_t>(i)]; }
  // The pairs that change the matrix at `tiles`, by adapter; empty if none does.
  std::span<const AdapterPair> Find(const std::byte* tiles) const {
    const auto found = pairs_.find(tiles);
    if (found == pairs_.end()) return {};
    return found->second;
  }
  int64_t memory_bytes() const;

 private:
  std::vector<CpuAdapter> adapters_;
  std::unordered_map<const std::byte*, std::vector<AdapterPair>> pairs_;
};

// The rows of a step that use an adapter, ascending, and how strongly.
struct AdaptedRows {
  int adapter = 0;
  std::vector<int64_t> rows = {};
  std::vector<float> scales = {};
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ADAPTERS_H_
