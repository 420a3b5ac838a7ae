#include "compute/cpu/adapters.h"

#include <algorithm>

#include "compute/kernels/quants/quants.h"

namespace weft::cpu {
namespace {

// Large enough for the system's large pages.
constexpr size_t kMinBufferBytes = size_t{8} << 20;

}  // namespace

std::byte* CpuAdapter::Take(size_t size) {
  if (room_.size() < size) {
    AlignedBuffer buffer(std::max(size, kMinBufferBytes));
    if (buffer.data() == nullptr) return nullptr;
    room_ = buffer.As<std::byte>();
    memory_.push_back(std::move(buffer));
  }
  std::byte* const taken = room_.data();
  room_ = room_.subspan(size);
  return taken;
}

// Types whose products quantize the activations are decoded: an adapter is small.
StatusOr<PackedMatrix> CpuAdapter::PackRows(TensorRef ref, int64_t first_row, int64_t n_rows) {
  const TensorInfo& tensor = adapter_.file->tensors()[static_cast<size_t>(ref.index)];
  const bool decodes = ActivationFormOf(tensor.type) != ActivationForm::kFloat;
  PackedMatrix matrix;
  matrix.type = decodes ? DType::kF32 : tensor.type;
  matrix.n_in = tensor.dims[0];
  matrix.n_out = n_rows;
  const int64_t tile_bytes = PackedTileBytes(matrix.type, matrix.n_in);
  const int64_t bytes = TileCount(n_rows) * tile_bytes;
  std::byte* const tiles = Take(static_cast<size_t>(bytes));  // whole cache lines, as all tiles
  if (tiles == nullptr) {
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
    PackTile(matrix.type, rows.data(), static_cast<int>(n), matrix.n_in, tiles + tile * tile_bytes);
  }
  matrix.tiles = tiles;
  memory_bytes_ += bytes;
  return matrix;
}

StatusOr<AdapterPair> CpuAdapter::Pack(const Linear& linear) {
  const LowRankPair* const spec = adapter_.spec.Find(linear.weight);
  if (spec == nullptr) return AdapterPair();
  PackedMatrix& a = a_[spec->a.index];
  if (a.tiles == nullptr) {
    WEFT_ASSIGN_OR_RETURN(a, PackRows(spec->a, 0, spec->rank));
  }
  WEFT_ASSIGN_OR_RETURN(const PackedMatrix b, PackRows(spec->b, linear.first_row, linear.n_out));
  return AdapterPair{a, b, spec->factor};
}

Status CpuAdapter::PackEmbedding() {
  if (!adapter_.spec.embedding) return OkStatus();
  const LowRankPair& spec = *adapter_.spec.embedding;
  const TensorInfo& b = adapter_.file->tensors()[static_cast<size_t>(spec.b.index)];
  WEFT_ASSIGN_OR_RETURN(embedding_.b, PackRows(spec.b, 0, b.dims[1]));
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

Status CpuAdapters::Bind(const Linear& linear, const std::byte* tiles) {
  if (adapters_.empty() || pairs_.contains(tiles)) return OkStatus();
  std::vector<AdapterPair> pairs;
  for (CpuAdapter& adapter : adapters_) {
    WEFT_ASSIGN_OR_RETURN(pairs.emplace_back(), adapter.Pack(linear));
  }
  const bool is_changed = std::ranges::any_of(
      pairs, [](const AdapterPair& pair) -> bool { return static_cast<bool>(pair); });
  if (is_changed) pairs_[tiles] = std::move(pairs);
  return OkStatus();
}

Status CpuAdapters::BindEmbedding() {
  for (CpuAdapter& adapter : adapters_) WEFT_RETURN_IF_ERROR(adapter.PackEmbedding());
  return OkStatus();
}

int64_t CpuAdapters::memory_bytes() const {
  int64_t bytes = 0;
  for (const CpuAdapter& adapter : adapters_) bytes += adapter.memory_bytes();
  return bytes;
}

}  // namespace weft::cpu
