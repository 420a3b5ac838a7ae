// Keys, values and recurrent state of all sequences, in the plainest layout there is.
//
// A page of a group holds, for each KvLayer of the group in order, its positions one after the
// other; a position holds the key row (n_heads * k_dim values) and the value row (n_heads * v_dim
// values), each encoded in the KV type, or exactly. Heads of Q5_0 and Q4_0 are rounded as those
// types store them, and held as F32. Reading decodes them, with the encoding's
// loss. A slot's states are as long as the spec says.
#ifndef WEFT_COMPUTE_REFERENCE_REFERENCE_STATE_H_
#define WEFT_COMPUTE_REFERENCE_REFERENCE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "compute/host_state.h"
#include "compute/kernels/kv_types.h"
#include "model/model_spec.h"

namespace weft {

class ReferenceState final : public HostState {
 public:
  // An error when rows of the spec are not whole blocks of the type.
  static Status Check(const ModelSpec& spec, KvTypes type);

  // REQUIRES: Check(spec, type) is OK.
  ReferenceState(const ModelSpec& spec, KvTypes type, int page_tokens);

  // One position of one KvLayer. `table` is the sequence's page table of the
  // layer's group; ids were checked. `value` is empty where the layer has no values.
  void Store(int kv_layer, std::span<const PageId> table, int64_t position,
             std::span<const float> key, std::span<const float> value);
  void Load(int kv_layer, std::span<const PageId> table, int64_t position, std::span<float> key,
            std::span<float> value) const;

 private:
  struct LayerPlace {
    int group;
    KvTypes type;                // as the spec and the options have it
    DType key_type, value_type;  // as encoded
    int n_heads;
    int64_t offset_bytes;  // of the first position, within a page
    int64_t row_bytes;     // of a position's key and value
    int64_t key_bytes;
    int64_t row_tokens;      // positions of a page for each row
    int64_t n_key, n_value;  // values per row
  };

  void CopyTokens(int group, const std::byte* from, std::byte* to, int n_tokens) const override;
  void ClearFrom(int group, int n_tokens, std::byte* page) const override;
  // Where the layer's part of a position begins.
  std::byte* At(const LayerPlace& place, std::span<const PageId> table, int64_t position) const {
    return page(place.group, table[position / page_tokens()]) + place.offset_bytes +
           position % page_tokens() / place.row_tokens * place.row_bytes;
  }

  std::vector<LayerPlace> layers_;  // per KvLayer
  std::vector<std::vector<int>> layers_of_group_;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_REFERENCE_REFERENCE_STATE_H_
