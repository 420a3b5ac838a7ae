// Keys and values of all sequences, by page id, in the plainest layout there is.
//
// A page of a group holds its positions one after the other; a position holds, for
// each KvLayer of the group in order, the key row (n_heads * k_dim values) and the
// value row (n_heads * v_dim values), each encoded in the KV type. What is read
// back is what the encoding kept. One owner thread.
#ifndef WEFT_BACKEND_REFERENCE_KV_STORE_H_
#define WEFT_BACKEND_REFERENCE_KV_STORE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/page_memory.h"
#include "base/dtype.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace weft {

class KvStore {
 public:
  // An error when rows of the spec are not whole blocks of the type.
  static Status Check(const ModelSpec& spec, DType type);

  // REQUIRES: Check(spec, type) is OK; `spec` outlives the store.
  KvStore(const ModelSpec& spec, DType type, int page_tokens);

  // One position of one KvLayer. `table` is the sequence's page table of the
  // layer's group; ids were checked. `value` is empty where the layer has no values.
  void Store(int kv_layer, std::span<const PageId> table, int64_t position,
             std::span<const float> key, std::span<const float> value);
  void Load(int kv_layer, std::span<const PageId> table, int64_t position, std::span<float> key,
            std::span<float> value) const;

  // The executor's page calls; see backend.h.
  Status Grow(int group, int64_t n_pages);
  void Discard(int group, std::span<const PageId> pages);
  Status Copy(int group, PageId from, PageId to, int n_tokens);
  Status Read(int group, PageId page, int n_tokens, std::span<std::byte> out) const;
  Status Write(int group, PageId page, std::span<const std::byte> in);

  // Per group.
  const std::vector<int64_t>& page_bytes() const { return page_bytes_; }
  std::vector<int64_t> n_pages() const;
  int64_t held_bytes() const;

 private:
  struct LayerPlace {
    int group;
    int64_t offset_bytes;  // of the key row, within a position
    int64_t key_bytes;
    int64_t n_key, n_value;  // values of a row
  };

  std::byte* Position(int group, PageId page, int64_t slot) const {
    return memory_[group].page(page) + slot * token_bytes_[group];
  }
  Status CheckPage(int group, PageId page) const;

  const DType type_;
  const int page_tokens_;
  std::vector<LayerPlace> layers_;    // per KvLayer
  std::vector<int64_t> token_bytes_;  // per group
  std::vector<int64_t> page_bytes_;
  std::vector<PageMemory> memory_;
};

}  // namespace weft

#endif  // WEFT_BACKEND_REFERENCE_KV_STORE_H_
