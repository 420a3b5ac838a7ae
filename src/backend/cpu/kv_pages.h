// Keys and values of all sequences, by page id, as the attention kernels want them.
//
// A page of a group holds, for each KvLayer of the group and each of its heads, the
// tiles of the page's positions one after the other. Belongs to the executor;
// Tile() may be called by its helper threads.
#ifndef WEFT_BACKEND_CPU_KV_PAGES_H_
#define WEFT_BACKEND_CPU_KV_PAGES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/page_memory.h"
#include "kernels/vector_ops.h"

namespace weft::cpu {

class KvPages {
 public:
  // REQUIRES: page_tokens is a multiple of kKvTileTokens, IsKvType(type).
  KvPages(const ModelSpec& spec, DType type, int page_tokens);

  int page_tokens() const { return page_tokens_; }
  const KvShape& shape(int kv_layer) const { return layers_[kv_layer].shape; }
  int group(int kv_layer) const { return layers_[kv_layer].group; }

  // The tile that holds `position` of a sequence whose page table of the layer's
  // group is `table`. REQUIRES: its page is in the pool.
  std::byte* Tile(int kv_layer, int head, std::span<const PageId> table, int64_t position) const {
    const LayerPlace& place = layers_[kv_layer];
    const int64_t page = position / page_tokens_;
    const int64_t tile = position % page_tokens_ / kKvTileTokens;
    return memory_[place.group].page(table[page]) + place.offset_bytes +
           (head * tiles_per_page_ + tile) * place.tile_bytes;
  }

  // Counts a page as held before it is written.
  void Touch(int group, PageId page) { memory_[group].Touch(page); }

  // The executor's page calls; see backend.h.
  Status Grow(int group, int64_t n_pages);
  void Discard(int group, std::span<const PageId> pages);
  Status Copy(int group, PageId from, PageId to, int n_tokens);
  Status Read(int group, PageId page, int n_tokens, std::span<std::byte> out) const;
  Status Write(int group, PageId page, std::span<const std::byte> in);

  const std::vector<int64_t>& page_bytes() const { return page_bytes_; }  // per group
  std::vector<int64_t> n_pages() const;
  int64_t held_bytes() const;

 private:
  struct LayerPlace {
    int group = 0;
    int n_heads = 0;
    KvShape shape;
    int64_t tile_bytes = 0;
    int64_t offset_bytes = 0;  // within a page
  };

  Status CheckGroup(int group) const;
  Status CheckPage(int group, PageId page) const;
  Status CheckTokens(int n_tokens) const;

  const int page_tokens_;
  const int64_t tiles_per_page_;
  std::vector<LayerPlace> layers_;  // per KvLayer
  std::vector<std::vector<int>> layers_of_group_;
  std::vector<int64_t> page_bytes_;
  std::vector<PageMemory> memory_;
};

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_KV_PAGES_H_
