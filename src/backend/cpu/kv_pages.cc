#include "backend/cpu/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace weft::cpu {

namespace {

// Values of each layer's cache. Those that are the first part of its keys are held a
// second time, position major.
struct ValueDims : OperationVisitor {
  explicit ValueDims(const ModelSpec& spec) {
    for (const KvLayer& layer : spec.kv_layers) of_layer.push_back(layer.v_dim);
    VisitOperations(spec, *this);
  }
  void Kv(const KvUse& use) { of_layer[use.layer] = use.v_dim; }
  std::vector<int64_t> of_layer;
};

}  // namespace

KvPages::KvPages(const ModelSpec& spec, DType type, int page_tokens)
    : page_tokens_(page_tokens),
      tiles_per_page_(page_tokens / kKvTileTokens),
      layers_(spec.kv_layers.size()) {
  const ValueDims v_dims(spec);
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    int64_t bytes = 0;
    for (const int index : spec.kv_groups[group].kv_layers) {
      LayerPlace& place = layers_[index];
      place.group = static_cast<int>(group);
      place.n_heads = spec.kv_layers[index].n_heads;
      place.shape = {type, spec.kv_layers[index].k_dim, v_dims.of_layer[index]};
      place.tile_bytes = KvTileBytes(place.shape);
      place.offset_bytes = bytes;
      bytes += place.n_heads * tiles_per_page_ * place.tile_bytes;
    }
    layers_of_group_.push_back(spec.kv_groups[group].kv_layers);
    page_bytes_.push_back(bytes);
    memory_.emplace_back(std::max<int64_t>(1, bytes));
  }
}

Status KvPages::CheckGroup(int group) const {
  if (group >= 0 && group < static_cast<int>(memory_.size())) return OkStatus();
  return InvalidArgument("page group ", group, " of ", memory_.size());
}

Status KvPages::CheckPage(int group, PageId page) const {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  if (page >= 0 && page < memory_[group].n_pages()) return OkStatus();
  return InvalidArgument("page ", page, " of group ", group, ", which has ",
                         memory_[group].n_pages());
}

Status KvPages::CheckTokens(int n_tokens) const {
  if (n_tokens >= 0 && n_tokens <= page_tokens_) return OkStatus();
  return InvalidArgument(n_tokens, " tokens of a page of ", page_tokens_);
}

Status KvPages::Grow(int group, int64_t n_pages) {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  return memory_[group].Grow(n_pages);
}

void KvPages::Discard(int group, std::span<const PageId> pages) {
  WEFT_CHECK(CheckGroup(group).ok(), "page group out of range");
  memory_[group].Discard(pages);
}

Status KvPages::Copy(int group, PageId from, PageId to, int n_tokens) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, from));
  WEFT_RETURN_IF_ERROR(CheckPage(group, to));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  if (from == to || n_tokens == 0) return OkStatus();
  memory_[group].Touch(to);
  const int64_t n_tiles = (n_tokens + kKvTileTokens - 1) / kKvTileTokens;
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    for (int head = 0; head < place.n_heads; ++head) {
      const int64_t at = place.offset_bytes + head * tiles_per_page_ * place.tile_bytes;
      std::memcpy(memory_[group].page(to) + at, memory_[group].page(from) + at,
                  static_cast<size_t>(n_tiles * place.tile_bytes));
    }
  }
  return OkStatus();
}

Status KvPages::Read(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  if (static_cast<int64_t>(out.size()) != page_bytes_[group]) {
    return InvalidArgument("a page has ", page_bytes_[group], " bytes, not ", out.size());
  }
  std::memcpy(out.data(), memory_[group].page(page), out.size());
  for (const int index : layers_of_group_[group]) {
    const LayerPlace& place = layers_[index];
    for (int64_t i = 0; i < place.n_heads * tiles_per_page_; ++i) {
      const int64_t kept = n_tokens - i % tiles_per_page_ * kKvTileTokens;
      ClearKvTail(place.shape, static_cast<int>(std::clamp<int64_t>(kept, 0, kKvTileTokens)),
                  out.data() + place.offset_bytes + i * place.tile_bytes);
    }
  }
  return OkStatus();
}

Status KvPages::Write(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  if (static_cast<int64_t>(in.size()) != page_bytes_[group]) {
    return InvalidArgument("a page has ", page_bytes_[group], " bytes, not ", in.size());
  }
  memory_[group].Touch(page);
  std::memcpy(memory_[group].page(page), in.data(), in.size());
  return OkStatus();
}

std::vector<int64_t> KvPages::n_pages() const {
  std::vector<int64_t> counts;
  for (const PageMemory& memory : memory_) counts.push_back(memory.n_pages());
  return counts;
}

int64_t KvPages::held_bytes() const {
  int64_t bytes = 0;
  for (const PageMemory& memory : memory_) bytes += memory.held_bytes();
  return bytes;
}

}  // namespace weft::cpu
