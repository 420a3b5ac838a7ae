#include "compute/cpu/adapters.h"

#include <algorithm>

#include "compute/kernels/quants/quants.h"

namespace weft::cpu {
// Types whose products quantize the activations are decoded: an adapter is small.
StatusOr<PackedMatrix> CpuAdapter::Pack(TensorRef ref, int64_t first_row, int64_t n_rows) {
  const TensorInfo& tensor = adapter_.file->tensors()[static_cast<size_t>(ref.index)];
  const bool decodes = ActivationFormOf(tensor.type) != ActivationForm::kFloat;
  PackedMatrix matrix;
  matrix.type = decodes ? DType::kF32 : tensor.type;
  matrix.n_in = tensor.dims[0];
  matrix.n_out = n_rows;
  const int64_t tile_bytes = PackedTileBytes(matrix.type, matrix.n_in);
  const int64_t bytes = TileCount(n_rows) * tile_bytes;
  AlignedBuffer memory(static_cast<size_t>(bytes));
  if (memory.data() == nullptr) {
    return ResourceExhausted("no memory for an adapter's tensor ", Printable(tensor.name),
                             "; use fewer adapters");
  }
  const int64_t row_bytes = RowBytes(matrix.type, matrix.n_in);
  std::vector<std::byte> rows(static_cast<size_t>(kTileOutputs * row_bytes));
  for (int64_t tile = 0; tile < TileCount(n_rows); ++tile) {
    const int64_t n = std::min<int64_t>(kTileOutputs, n_rows - tile * kTileOutputs);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = first_row + tile * kTileOutputs + i;
      const std::byte* const from = tensor.data.data() + row * tensor.row_bytes();
      std::byte* const to = rows.data() + i * row_bytes;
      if (decodes) {
        Dequantize(tensor.type, from, matrix.n_in, reinterpret_cast<float*>(to));
      } else {
        std::copy_n(from, row_bytes, to);
      }
    }
    PackTile(matrix.type, rows.data(), static_cast<int>(n), matrix.n_in,
             memory.data() + tile * tile_bytes);
  }
  matrix.tiles = memory.data();
  memory_bytes_ += bytes;
  tiles_.push_back(std::move(memory));
  return matrix;
}

Status CpuAdapter::Bind(const Linear& linear, const std::byte* tiles) {
  const LowRankPair* const spec = adapter_.spec.Find(linear.weight);
  if (spec == nullptr || pairs_.contains(tiles)) return OkStatus();
  PackedMatrix& a = a_[spec->a.index];
  if (a.tiles == nullptr) {
    WEFT_ASSIGN_OR_RETURN(a, Pack(spec->a, 0, spec->rank));
  }
  WEFT_ASSIGN_OR_RETURN(const PackedMatrix b, Pack(spec->b, linear.first_row, linear.n_out));
  pairs_[tiles] = {a, b, spec->factor};
  return OkStatus();
}

Status CpuAdapter::BindEmbedding() {
  if (!adapter_.spec.embedding) return OkStatus();
  const LowRankPair& spec = *adapter_.spec.embedding;
  const TensorInfo& b = adapter_.file->tensors()[static_cast<size_t>(spec.b.index)];
  WEFT_ASSIGN_OR_RETURN(embedding_.b, Pack(spec.b, 0, b.dims[1]));
  embedding_.factor = spec.factor;
  return OkStatus();
}

Status CpuAdapter::ReadEmbedding(int64_t token, std::span<float> low) const {
  const LowRankPair& spec = *adapter_.spec.embedding;
  const TensorInfo& a = adapter_.file->tensors()[static_cast<size_t>(spec.a.index)];
  std::vector<std::byte> raw(static_cast<size_t>(a.row_bytes()));
  WEFT_RETURN_IF_ERROR(adapter_.file->Read(a, token * a.row_bytes(), raw));
  Dequantize(a.type, raw.data(), a.dims[0], low.data());
  return OkStatus();
}

}  // namespace weft::cpu
