// KV cache and recurrent state of all sequences, in the kernels' layout.
//
// A page of a group holds, for each KvLayer of the group and each of its heads, the tiles of the
// page's positions one after the other. Keys of a KvLayer with a stride are few and read one by
// one, so they lie in rows, one after the other.
#ifndef WEFT_COMPUTE_CPU_CPU_STATE_H_
#define WEFT_COMPUTE_CPU_CPU_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/state_ids.h"
#include "compute/host_state.h"
#include "compute/kernels/vector_ops.h"
#include "model/model_spec.h"

namespace weft::cpu {

class CpuState final : public HostState {
 public:
  // REQUIRES: page_tokens is a multiple of kKvTileTokens, IsKvType(type).
  CpuState(const ModelSpec& spec, KvTypes type, int page_tokens);

  const KvShape& shape(int kv_layer) const { return layers_[kv_layer].shape; }
  int group(int kv_layer) const { return layers_[kv_layer].group; }

  // The tile that holds `position` of a sequence, whose page table of the layer's group is `table`.
  // REQUIRES: its page is in the pool.
  std::byte* Tile(int kv_layer, int head, std::span<const PageId> table, int64_t position) const {
    const LayerPlace& place = layers_[kv_layer];
    const int64_t page_tokens = layout_.page_tokens;
    const int64_t tile = position % page_tokens / kKvTileTokens;
    return page(place.group, table[position / page_tokens]) + place.offset_bytes +
           (head * tiles_per_page_ + tile) * place.tile_bytes;
  }

  // The same for the key at a `position` of a KvLayer with a stride: StoreRow encodes k_dim values,
  // LoadRow decodes them. `padded`: row_values() floats of scratch memory.
  int64_t row_values(int kv_layer) const { return layers_[kv_layer].row_values; }
  void StoreRow(int kv_layer, std::span<const PageId> table, int64_t position, const float* key,
                float* padded) const;
  void LoadRow(int kv_layer, std::span<const PageId> table, int64_t position, float* padded) const;

 private:
  struct LayerPlace {
    int group = 0;
    int n_heads = 0;
    KvShape shape;
    int64_t tile_bytes = 0;
    int64_t offset_bytes = 0;  // within a page
    // With a stride only:
    int64_t row_tokens = 0;  // positions of a page for each row
    int64_t row_values = 0;  // of a row, in whole blocks of the type
    DType row_type = DType::kF32;
    bool has_rows() const { return row_tokens > 0; }
    int64_t row_bytes() const { return RowBytes(row_type, row_values); }
  };

  std::byte* RowAt(const LayerPlace& place, std::span<const PageId> table, int64_t position) const {
    const int64_t page_tokens = layout_.page_tokens;
    return page(place.group, table[position / page_tokens]) + place.offset_bytes +
           position % page_tokens / place.row_tokens * place.row_bytes();
  }

  void CopyTokens(int group, const std::byte* from, std::byte* to, int n_tokens) const override;
  void ClearFrom(int group, int n_tokens, std::byte* page) const override;

  const int64_t tiles_per_page_;
  std::vector<LayerPlace> layers_;  // per KvLayer
  std::vector<std::vector<int>> layers_of_group_;
};

// Number of floats of each SlotState in this backend: rows of inputs for convolutions, states in
// the kernels' layout for heads.
std::vector<int64_t> SlotFloats(const ModelSpec& spec);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_CPU_STATE_H_
