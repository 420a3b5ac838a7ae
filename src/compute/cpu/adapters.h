// LoRA adapters on the CPU: their packed pairs of matrices, and the rows of a step that use them.
//
// A product's rows get B (A x) of each of their adapters, in the adapters' order. A row's values
// come from itself alone, whichever rows are computed with it, so its bits do too.
//
// CpuAdapter is immutable once bound; the rest belongs to the owner thread.
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

class CpuAdapter {
 public:
  struct Pair {
    PackedMatrix a, b;
    float factor = 1;
  };

  explicit CpuAdapter(Adapter adapter) : adapter_(std::move(adapter)) {}
  CpuAdapter(CpuAdapter&&) = default;

  // Packs what changes `linear`, whose matrix is packed at `tiles`, if anything does.
  Status Bind(const Linear& linear, const std::byte* tiles);
  Status BindEmbedding();

  // The pair that changes the matrix at `tiles`; null if none does.
  const Pair* Find(const std::byte* tiles) const {
    const auto found = pairs_.find(tiles);
    return found != pairs_.end() ? &found->second : nullptr;
  }
  // Its A is read from the file, row by row. Null if the embedding is not changed.
  const Pair* embedding() const { return embedding_.b.tiles != nullptr ? &embedding_ : nullptr; }
  // Reads A's row of the token.
  Status ReadEmbedding(int64_t token, std::span<float> low) const;
  int64_t memory_bytes() const { return memory_bytes_; }

 private:
  StatusOr<PackedMatrix> Pack(TensorRef ref, int64_t first_row, int64_t n_rows);

  const Adapter adapter_;
  std::unordered_map<const std::byte*, Pair> pairs_;
  std::map<int, PackedMatrix> a_;  // by tensor: matrices that are cut from one share it
  Pair embedding_;
  std::vector<AlignedBuffer> tiles_;
  int64_t memory_bytes_ = 0;
};

// The rows of a step that use an adapter, ascending, and how strongly.
struct AdaptedRows {
  const CpuAdapter* adapter = nullptr;
  std::vector<int64_t> rows;
  std::vector<float> scales;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_ADAPTERS_H_
