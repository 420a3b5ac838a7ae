#include "compute/cpu/cpu_state.h"

#include <algorithm>
#include <cstring>

#include "model/operations.h"

namespace weft::cpu {

CpuState::CpuState(const ModelSpec& spec, DType type, int page_tokens)
    : HostState(page_tokens, SlotFloats(spec)),
      tiles_per_page_(page_tokens / kKvTileTokens),
      layers_(spec.kv_layers.size()) {
  if (type == DType::kQ8_0) layout_.form = 2;  // form 1 stored keys dimension by dimension
  // If values are the first part of the keys, they are also stored separately, position by
  // position, for the kernels.
  const std::vector<int64_t> v_dims = ValueDims(spec);
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    int64_t bytes = 0;
    for (const int index : spec.kv_groups[group].kv_layers) {
      LayerPlace& place = layers_[index];
      place.group = static_cast<int>(group);
      place.n_heads = spec.kv_layers[index].n_heads;
      place.shape = {type, spec.kv_layers[index].k_dim, v_dims[index]};
      place.tile_bytes = KvTileBytes(place.shape);
      place.offset_bytes = bytes;
      bytes += place.n_heads * tiles_per_page_ * place.tile_bytes;
    }
    layers_of_group_.push_back(spec.kv_groups[group].kv_layers);
    AddGroup(bytes);
  }
}

void CpuState::CopyTokens(int group, const std::byte* from, std::byte* to, int n_tokens) const {
  const int64_t n_tiles = (n_tokens + kKvTileTokens - 1) / kKvTileTokens;
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    for (int head = 0; head < place.n_heads; ++head) {
      const int64_t at = place.offset_bytes + head * tiles_per_page_ * place.tile_bytes;
      std::memcpy(to + at, from + at, static_cast<size_t>(n_tiles * place.tile_bytes));
    }
  }
}

void CpuState::ClearFrom(int group, int n_tokens, std::byte* page) const {
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    for (int64_t i = 0; i < place.n_heads * tiles_per_page_; ++i) {
      const int64_t kept = n_tokens - i % tiles_per_page_ * kKvTileTokens;
      ClearKvTail(place.shape, static_cast<int>(std::clamp<int64_t>(kept, 0, kKvTileTokens)),
                  page + place.offset_bytes + i * place.tile_bytes);
    }
  }
}

}  // namespace weft::cpu
