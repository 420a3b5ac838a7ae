#include "backend/reference/kv_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/quants.h"

namespace weft {

Status KvStore::Check(const ModelSpec& spec, DType type) {
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

KvStore::KvStore(const ModelSpec& spec, DType type, int page_tokens)
    : type_(type), page_tokens_(page_tokens), layers_(spec.kv_layers.size()) {
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
    page_bytes_.push_back(offset_bytes * page_tokens);
    memory_.emplace_back(std::max<int64_t>(1, page_bytes_.back()));
  }
}

void KvStore::Store(int kv_layer, std::span<const PageId> table, int64_t position,
                    std::span<const float> key, std::span<const float> value) {
  const LayerPlace& place = layers_[kv_layer];
  WEFT_CHECK(static_cast<int64_t>(key.size()) == place.n_key &&
                 static_cast<int64_t>(value.size()) == place.n_value,
             "a layer stores rows of the shape that the spec gives it");
  const PageId page = table[position / page_tokens_];
  memory_[place.group].Touch(page);
  std::byte* const at = Position(place.group, page, position % page_tokens_) + place.offset_bytes;
  Quantize(type_, key.data(), place.n_key, nullptr, at);
  if (!value.empty()) {
    Quantize(type_, value.data(), place.n_value, nullptr, at + place.key_bytes);
  }
}

void KvStore::Load(int kv_layer, std::span<const PageId> table, int64_t position,
                   std::span<float> key, std::span<float> value) const {
  const LayerPlace& place = layers_[kv_layer];
  const PageId page = table[position / page_tokens_];
  const std::byte* const at =
      Position(place.group, page, position % page_tokens_) + place.offset_bytes;
  Dequantize(type_, at, place.n_key, key.data());
  if (!value.empty()) Dequantize(type_, at + place.key_bytes, place.n_value, value.data());
}

Status KvStore::CheckPage(int group, PageId page) const {
  if (group < 0 || group >= static_cast<int>(memory_.size())) {
    return InvalidArgument("page group ", group, " of ", memory_.size());
  }
  if (page < 0 || page >= memory_[group].n_pages()) {
    return InvalidArgument("page ", page, " of group ", group, ", which has ",
                           memory_[group].n_pages());
  }
  return OkStatus();
}

Status KvStore::Grow(int group, int64_t n_pages) {
  if (group < 0 || group >= static_cast<int>(memory_.size())) {
    return InvalidArgument("page group ", group, " of ", memory_.size());
  }
  return memory_[group].Grow(n_pages);
}

void KvStore::Discard(int group, std::span<const PageId> pages) {
  WEFT_CHECK(group >= 0 && group < static_cast<int>(memory_.size()), "page group out of range");
  memory_[group].Discard(pages);
}

Status KvStore::Copy(int group, PageId from, PageId to, int n_tokens) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, from));
  WEFT_RETURN_IF_ERROR(CheckPage(group, to));
  if (n_tokens < 0 || n_tokens > page_tokens_) {
    return InvalidArgument("cannot copy ", n_tokens, " tokens of a page of ", page_tokens_);
  }
  if (from == to || n_tokens == 0) return OkStatus();
  memory_[group].Touch(to);
  std::memcpy(Position(group, to, 0), Position(group, from, 0), n_tokens * token_bytes_[group]);
  return OkStatus();
}

Status KvStore::Read(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  if (n_tokens < 0 || n_tokens > page_tokens_ ||
      static_cast<int64_t>(out.size()) != page_bytes_[group]) {
    return InvalidArgument("cannot read ", n_tokens, " tokens into ", out.size(),
                           " bytes: a page has ", page_tokens_, " tokens in ", page_bytes_[group],
                           " bytes");
  }
  const int64_t n_bytes = n_tokens * token_bytes_[group];
  std::memcpy(out.data(), Position(group, page, 0), n_bytes);
  std::fill(out.begin() + n_bytes, out.end(), std::byte{0});
  return OkStatus();
}

Status KvStore::Write(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  if (static_cast<int64_t>(in.size()) != page_bytes_[group]) {
    return InvalidArgument("a page has ", page_bytes_[group], " bytes, not ", in.size());
  }
  memory_[group].Touch(page);
  std::memcpy(Position(group, page, 0), in.data(), in.size());
  return OkStatus();
}

std::vector<int64_t> KvStore::n_pages() const {
  std::vector<int64_t> counts;
  for (const PageMemory& memory : memory_) counts.push_back(memory.n_pages());
  return counts;
}

int64_t KvStore::held_bytes() const {
  int64_t bytes = 0;
  for (const PageMemory& memory : memory_) bytes += memory.held_bytes();
  return bytes;
}

}  // namespace weft
