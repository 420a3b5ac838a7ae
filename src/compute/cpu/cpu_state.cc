#include "compute/cpu/cpu_state.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/quants/quants.h"

namespace weft::cpu {

namespace {

// Tiles, which follow the rows, are aligned.
int64_t WholeTiles(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

CpuState::CpuState(const ModelSpec& spec, KvTypes type, int page_tokens)
    : HostState(page_tokens, SlotFloats(spec)),
      tiles_per_page_(page_tokens / kKvTileTokens),
      layers_(spec.kv_layers.size()) {
  if (type == KvTypes(DType::kQ8_0)) layout_.form = 2;  // form 1 stored keys dimension by dimension
  // If values are the first part of the keys, they are also stored separately, position by
  // position, for the kernels.
  const std::vector<int64_t> v_dims = ValueDims(spec);
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    int64_t bytes = 0;
    for (const int index : spec.kv_groups[group].kv_layers) {
      LayerPlace& place = layers_[index];
      place.group = static_cast<int>(group);
      const KvLayer& layer = spec.kv_layers[index];
      place.n_heads = layer.n_heads;
      place.shape = {layer.exact ? KvTypes(DType::kF32) : type, layer.k_dim, v_dims[index]};
      place.offset_bytes = bytes;
      if (layer.stride > 1) {
        // Rows are not rotated; and they are few.
        const DType keys = place.shape.type.keys;
        place.row_type = HoldsLevels(keys) ? DType::kQ8_0 : keys;
        const int64_t block = InfoOf(place.row_type).block_values;
        place.row_tokens = layer.RowTokens(page_tokens);
        place.row_values = (layer.k_dim + block - 1) / block * block;
        bytes += WholeTiles(page_tokens / place.row_tokens * place.row_bytes());
        continue;
      }
      place.tile_bytes = KvTileBytes(place.shape);
      bytes += place.n_heads * tiles_per_page_ * place.tile_bytes;
    }
    layers_of_group_.push_back(spec.kv_groups[group].kv_layers);
    AddGroup(bytes);
  }
}

void CpuState::StoreRow(int kv_layer, std::span<const PageId> table, int64_t position,
                        const float* key, float* padded) const {
  const LayerPlace& place = layers_[kv_layer];
  std::fill(std::copy_n(key, place.shape.k_dim, padded), padded + place.row_values, 0.0f);
  Quantize(place.row_type, padded, place.row_values, nullptr, RowAt(place, table, position));
}

void CpuState::LoadRow(int kv_layer, std::span<const PageId> table, int64_t position,
                       float* padded) const {
  const LayerPlace& place = layers_[kv_layer];
  Dequantize(place.row_type, RowAt(place, table, position), place.row_values, padded);
}

void CpuState::CopyTokens(int group, const std::byte* from, std::byte* to, int n_tokens) const {
  const int64_t n_tiles = (n_tokens + kKvTileTokens - 1) / kKvTileTokens;
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    if (place.has_rows()) {
      const int64_t kept = n_tokens / place.row_tokens * place.row_bytes();
      std::memcpy(to + place.offset_bytes, from + place.offset_bytes, static_cast<size_t>(kept));
      // The rest may never be written, and pages are saved whole.
      const int64_t end = WholeTiles(page_tokens() / place.row_tokens * place.row_bytes());
      std::fill(to + place.offset_bytes + kept, to + place.offset_bytes + end, std::byte{0});
      continue;
    }
    for (int head = 0; head < place.n_heads; ++head) {
      const int64_t at = place.offset_bytes + head * tiles_per_page_ * place.tile_bytes;
      std::memcpy(to + at, from + at, static_cast<size_t>(n_tiles * place.tile_bytes));
    }
  }
}

void CpuState::ClearFrom(int group, int n_tokens, std::byte* page) const {
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    if (place.has_rows()) {
      std::byte* const rows = page + place.offset_bytes;
      std::fill(rows + n_tokens / place.row_tokens * place.row_bytes(),
                rows + WholeTiles(page_tokens() / place.row_tokens * place.row_bytes()),
                std::byte{0});
      continue;
    }
    for (int64_t i = 0; i < place.n_heads * tiles_per_page_; ++i) {
      const int64_t kept = n_tokens - i % tiles_per_page_ * kKvTileTokens;
      ClearKvTail(place.shape, static_cast<int>(std::clamp<int64_t>(kept, 0, kKvTileTokens)),
                  page + place.offset_bytes + i * place.tile_bytes);
    }
  }
}

}  // namespace weft::cpu
