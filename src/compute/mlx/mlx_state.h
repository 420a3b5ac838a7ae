// KV cache and recurrent state as MLX arrays.
//
// Each layer has a pool for keys and one for values. In a pool, each head has its own rows: row
// page * page_tokens + i is position i of the page. This is the layout that MLX's products read
// without copying. Each of the spec's SlotStates has a pool whose row s is slot s.
//
// A step writes in place: it builds an array that is the pool with the new rows, and stores it as
// the pool. MLX reuses the old array's memory if nobody else holds it. So keep no second handle of
// a pool; all pools are computed before a part of a step ends.
//
// Outside of steps, pools are plain memory that anybody may read and write, because MLX's devices
// share their memory with the CPU.
#ifndef WEFT_COMPUTE_MLX_MLX_STATE_H_
#define WEFT_COMPUTE_MLX_MLX_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/state_ids.h"
#include "base/status.h"
#include "compute/mlx/mlx_include.h"
#include "compute/state_store.h"
#include "model/model_spec.h"

namespace weft::mlx {

class MlxState final : public StateStore {
 public:
  // REQUIRES: the type is f32, f16 or bf16.
  MlxState(const ModelSpec& spec, DType type, int page_tokens);

  int page_tokens() const { return layout_.page_tokens; }

  // For steps. A layer's keys or values: [heads, n_pages * page_tokens, values of a head].
  // REQUIRES: the group has pages; for values, the layer stores some.
  mx::array& keys(int kv_layer) { return *layers_[static_cast<size_t>(kv_layer)].keys.rows; }
  mx::array& values(int kv_layer) { return *layers_[static_cast<size_t>(kv_layer)].values.rows; }
  // [n_slots, floats of the state]. REQUIRES: there are slots.
  mx::array& slot_states(int index) { return *states_[static_cast<size_t>(index)].rows; }
  // All pools, to compute them.
  std::vector<mx::array> Pools() const;
  // After a failed step: restores pools whose writes were not computed.
  void TakeBack();

  int64_t n_pages(int group) const override { return n_pages_[static_cast<size_t>(group)]; }
  Status GrowPages(int group, int64_t n_pages) override;
  // A pool is one array, so single pages free no memory.
  void DiscardPages(int group, std::span<const PageId> pages) override {}
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override;
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const override;
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override;

  int64_t n_slots() const override { return n_slots_; }
  Status GrowSlots(int64_t n_slots) override;
  Status ClearSlot(SlotId slot) override;
  Status CopySlot(SlotId from, SlotId to) override;
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override;
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override;

  int64_t held_bytes() const override;

 private:
  struct Pool {
    int64_t n_heads = 0;    // 0: there is no pool
    int64_t width = 0;      // values per head and row
    int64_t row_bytes = 0;  // bytes per head and row
    std::optional<mx::array> rows;
    std::byte* row(int64_t head, int64_t i) const {
      return const_cast<std::byte*>(rows->data<std::byte>()) +
             (head * rows->shape(-2) + i) * row_bytes;
    }
  };
  struct LayerPools {
    Pool keys, values;
  };

  static Pool MakePool(int64_t n_heads, int64_t width, mx::Dtype type);
  // The pools of a group, in the order in which a page lists their rows.
  std::vector<Pool*> PoolsOf(int group) const;
  // `by_head`: the arrays' first dimension is the head.
  Status Grow(std::span<Pool* const> pools, int64_t n_kept, int64_t n_rows, mx::Dtype type,
              bool by_head);

  const mx::Dtype type_;
  std::vector<std::vector<int>> group_layers_;
  mutable std::vector<LayerPools> layers_;
  std::vector<int64_t> n_pages_;  // per group
  std::vector<int64_t> pages_held_;
  mutable std::vector<Pool> states_;
  int64_t n_slots_ = 0;
  int64_t slots_held_ = 0;
};

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_MLX_STATE_H_
