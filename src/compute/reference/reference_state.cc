#include "compute/reference/reference_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/kernels/quants/quants.h"

namespace weft {

namespace {

std::vector<int64_t> SlotFloats(const ModelSpec& spec) {
  std::vector<int64_t> n_floats;
  for (const SlotState& slot : spec.slots) n_floats.push_back(slot.n_floats);
  return n_floats;
}

}  // namespace

Status ReferenceState::Check(const ModelSpec& spec, DType type) {
  const int64_t block = InfoOf(type).block_values;
  for (const KvLayer& layer : spec.kv_layers) {
    const int64_t n_key = layer.n_heads * layer.k_dim;
    const int64_t n_value = layer.n_heads * layer.v_dim;
    if (n_key % block != 0 || n_value % block != 0) {
      return InvalidArgument("keys of ", n_key, " and values of ", n_value, " cannot be stored as ",
                             NameOf(type), ", which comes in blocks of ", block,
                             "; use another KV type");
    }
  }
  return OkStatus();
}

ReferenceState::ReferenceState(const ModelSpec& spec, DType type, int page_tokens)
    : HostState(page_tokens, SlotFloats(spec)), type_(type), layers_(spec.kv_layers.size()) {
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    int64_t offset_bytes = 0;
    for (const int index : spec.kv_groups[group].kv_layers) {
      const KvLayer& layer = spec.kv_layers[index];
      LayerPlace& place = layers_[index];
      place.group = static_cast<int>(group);
      place.offset_bytes = offset_bytes;
      place.n_key = layer.n_heads * layer.k_dim;
      place.n_value = layer.n_heads * layer.v_dim;
      place.key_bytes = RowBytes(type, place.n_key);
      offset_bytes += place.key_bytes + RowBytes(type, place.n_value);
    }
    token_bytes_.push_back(offset_bytes);
    AddGroup(offset_bytes * page_tokens);
  }
}

void ReferenceState::Store(int kv_layer, std::span<const PageId> table, int64_t position,
                           std::span<const float> key, std::span<const float> value) {
  const LayerPlace& place = layers_[kv_layer];
  WEFT_CHECK(static_cast<int64_t>(key.size()) == place.n_key &&
                 static_cast<int64_t>(value.size()) == place.n_value,
             "a layer stores rows of the shape that the spec gives it");
  TouchPage(place.group, table[position / page_tokens()]);
  std::byte* const at = At(place, table, position);
  Quantize(type_, key.data(), place.n_key, nullptr, at);
  if (!value.empty()) {
    Quantize(type_, value.data(), place.n_value, nullptr, at + place.key_bytes);
  }
}

void ReferenceState::Load(int kv_layer, std::span<const PageId> table, int64_t position,
                          std::span<float> key, std::span<float> value) const {
  const LayerPlace& place = layers_[kv_layer];
  const std::byte* const at = At(place, table, position);
  Dequantize(type_, at, place.n_key, key.data());
  if (!value.empty()) Dequantize(type_, at + place.key_bytes, place.n_value, value.data());
}

void ReferenceState::CopyTokens(int group, const std::byte* from, std::byte* to,
                                int n_tokens) const {
  std::memcpy(to, from, static_cast<size_t>(n_tokens * token_bytes_[group]));
}

void ReferenceState::ClearFrom(int group, int n_tokens, std::byte* page) const {
  std::fill(page + n_tokens * token_bytes_[group], page + layout_.page_bytes[group], std::byte{0});
}

}  // namespace weft
