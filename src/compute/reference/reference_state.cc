#include "compute/reference/reference_state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/kernels/quants/quants.h"

namespace weft {

namespace {

DType EncodedAs(DType type) { return RotatesHeads(type) ? DType::kF32 : type; }

// Encodes a row of heads.
void Encode(DType type, DType encoded, int n_heads, std::span<const float> row, std::byte* out) {
  std::vector<float> rounded(row.begin(), row.end());
  if (type != encoded) {
    const int64_t n = std::ssize(row) / n_heads;
    for (int head = 0; head < n_heads; ++head) RoundAsStored(type, rounded.data() + head * n, n);
  }
  Quantize(encoded, rounded.data(), std::ssize(rounded), nullptr, out);
}

std::vector<int64_t> SlotFloats(const ModelSpec& spec) {
  std::vector<int64_t> n_floats;
  for (const SlotState& slot : spec.slots) n_floats.push_back(slot.n_floats);
  return n_floats;
}

}  // namespace

Status ReferenceState::Check(const ModelSpec& spec, KvTypes type) {
  const int64_t key_block = InfoOf(EncodedAs(type.keys)).block_values;
  const int64_t value_block = InfoOf(EncodedAs(type.values)).block_values;
  for (const KvLayer& layer : spec.kv_layers) {
    if (layer.exact) continue;
    const int64_t n_key = layer.n_heads * layer.k_dim;
    const int64_t n_value = layer.n_heads * layer.v_dim;
    if (n_key % key_block != 0 || n_value % value_block != 0) {
      return InvalidArgument("keys of ", n_key, " and values of ", n_value, " cannot be stored as ",
                             NameOf(type), ", which comes in blocks of ",
                             std::max(key_block, value_block), "; use another KV type");
    }
  }
  return OkStatus();
}

ReferenceState::ReferenceState(const ModelSpec& spec, KvTypes type, int page_tokens)
    : HostState(page_tokens, SlotFloats(spec)), layers_(spec.kv_layers.size()) {
  layout_.form = 2;  // form 1 stored all layers of a position side by side
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    int64_t offset_bytes = 0;
    for (const int index : spec.kv_groups[group].kv_layers) {
      const KvLayer& layer = spec.kv_layers[index];
      LayerPlace& place = layers_[index];
      place.group = static_cast<int>(group);
      place.type = layer.exact ? KvTypes(DType::kF32) : type;
      place.key_type = EncodedAs(place.type.keys);
      place.value_type = EncodedAs(place.type.values);
      place.n_heads = layer.n_heads;
      place.row_tokens = layer.RowTokens(page_tokens);
      place.offset_bytes = offset_bytes;
      place.n_key = layer.n_heads * layer.k_dim;
      place.n_value = layer.n_heads * layer.v_dim;
      place.key_bytes = RowBytes(place.key_type, place.n_key);
      place.row_bytes = place.key_bytes + RowBytes(place.value_type, place.n_value);
      offset_bytes += page_tokens / place.row_tokens * place.row_bytes;
    }
    layers_of_group_.push_back(spec.kv_groups[group].kv_layers);
    AddGroup(offset_bytes);
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
  Encode(place.type.keys, place.key_type, place.n_heads, key, at);
  if (!value.empty()) {
    Encode(place.type.values, place.value_type, place.n_heads, value, at + place.key_bytes);
  }
}

void ReferenceState::Load(int kv_layer, std::span<const PageId> table, int64_t position,
                          std::span<float> key, std::span<float> value) const {
  const LayerPlace& place = layers_[kv_layer];
  const std::byte* const at = At(place, table, position);
  Dequantize(place.key_type, at, place.n_key, key.data());
  if (value.empty()) return;
  Dequantize(place.value_type, at + place.key_bytes, place.n_value, value.data());
}

void ReferenceState::CopyTokens(int group, const std::byte* from, std::byte* to,
                                int n_tokens) const {
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    const int64_t kept = n_tokens / place.row_tokens * place.row_bytes;
    std::memcpy(to + place.offset_bytes, from + place.offset_bytes, static_cast<size_t>(kept));
    // The rest may never be written, and pages are saved whole.
    std::fill(to + place.offset_bytes + kept,
              to + place.offset_bytes + page_tokens() / place.row_tokens * place.row_bytes,
              std::byte{0});
  }
}

void ReferenceState::ClearFrom(int group, int n_tokens, std::byte* page) const {
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    std::byte* const rows = page + place.offset_bytes;
    std::fill(rows + n_tokens / place.row_tokens * place.row_bytes,
              rows + page_tokens() / place.row_tokens * place.row_bytes, std::byte{0});
  }
}

}  // namespace weft
