#include "compute/mlx/mlx_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/system.h"

namespace weft::mlx {

MlxState::MlxState(const ModelSpec& spec, DType type, int page_tokens)
    : type_(FloatTypeOf(type)),
      layers_(spec.kv_layers.size()),
      n_pages_(spec.kv_groups.size()),
      pages_held_(spec.kv_groups.size()) {
  layout_.page_tokens = page_tokens;
  for (const KvGroup& group : spec.kv_groups) {
    int64_t bytes = 0;
    for (const int index : group.kv_layers) {
      const KvLayer& layer = spec.kv_layers[static_cast<size_t>(index)];
      LayerPools& pools = layers_[static_cast<size_t>(index)];
      pools.keys = MakePool(layer.n_heads, layer.k_dim, type_);
      pools.values = MakePool(layer.n_heads, layer.v_dim, type_);
      bytes += layer.n_heads * (pools.keys.row_bytes + pools.values.row_bytes) * page_tokens;
    }
    group_layers_.push_back(group.kv_layers);
    layout_.page_bytes.push_back(bytes);
  }
  for (const SlotState& slot : spec.slots) {
    states_.push_back(MakePool(1, slot.n_floats, mx::float32));
    layout_.slot_bytes += states_.back().row_bytes;
  }
}

MlxState::Pool MlxState::MakePool(int64_t n_heads, int64_t width, mx::Dtype type) {
  if (width == 0) return {};
  return {.n_heads = n_heads,
          .width = width,
          .row_bytes = width * static_cast<int64_t>(mx::size_of(type)),
          .rows = {}};
}

std::vector<MlxState::Pool*> MlxState::PoolsOf(int group) const {
  std::vector<Pool*> pools;
  for (const int layer : group_layers_[static_cast<size_t>(group)]) {
    LayerPools& both = layers_[static_cast<size_t>(layer)];
    for (Pool* const pool : {&both.keys, &both.values}) {
      if (pool->n_heads > 0) pools.push_back(pool);
    }
  }
  return pools;
}

std::vector<mx::array> MlxState::Pools() const {
  std::vector<mx::array> all;
  for (const LayerPools& both : layers_) {
    if (both.keys.rows) all.push_back(*both.keys.rows);
    if (both.values.rows) all.push_back(*both.values.rows);
  }
  for (const Pool& state : states_) {
    if (state.rows) all.push_back(*state.rows);
  }
  return all;
}

void MlxState::TakeBack() {
  const auto take_back = [](Pool* pool) {
    // Until it is computed, a pool's new array holds the array it was made from as its first input.
    while (pool->rows && pool->rows->status() == mx::array::Status::unscheduled &&
           pool->rows->has_primitive()) {
      const mx::array before = pool->rows->inputs()[0];
      pool->rows = before;
    }
  };
  for (LayerPools& both : layers_) {
    take_back(&both.keys);
    take_back(&both.values);
  }
  for (Pool& state : states_) take_back(&state);
}

// --- growing ---------------------------------------------------------------------------

Status MlxState::Grow(std::span<Pool* const> pools, int64_t n_kept, int64_t n_rows, mx::Dtype type,
                      bool by_head) {
  int64_t bytes = 0;
  for (const Pool* const pool : pools) bytes += pool->n_heads * pool->row_bytes * n_rows;
  const int64_t machine_bytes = HostMemoryBytes();
  if (bytes > machine_bytes) {
    return ResourceExhausted("state of ", HumanBytes(static_cast<uint64_t>(bytes)),
                             " does not fit into this machine's ",
                             HumanBytes(static_cast<uint64_t>(machine_bytes)));
  }
  if (n_rows > INT32_MAX) return ResourceExhausted("more positions than MLX can number");
  return WithoutExceptions("state", [&]() -> Status {
    // All pools grow, or none.
    std::vector<mx::array> larger;
    for (const Pool* const pool : pools) {
      mx::Shape shape = {Size(n_rows), Size(pool->width)};
      if (by_head) shape.insert(shape.begin(), Size(pool->n_heads));
      larger.emplace_back(
          mx::allocator::malloc(static_cast<size_t>(pool->n_heads * pool->row_bytes * n_rows)),
          std::move(shape), type);
    }
    for (size_t i = 0; i < pools.size(); ++i) {
      Pool* const pool = pools[i];
      for (int64_t head = 0; n_kept > 0 && head < pool->n_heads; ++head) {
        std::memcpy(larger[i].data<std::byte>() + head * n_rows * pool->row_bytes,
                    pool->row(head, 0), static_cast<size_t>(n_kept * pool->row_bytes));
      }
      pool->rows = std::move(larger[i]);
    }
    return OkStatus();
  });
}

namespace {

// Some extra room, so that growing one by one rarely copies.
int64_t Roomier(int64_t wanted) { return wanted + wanted / 4; }

}  // namespace

Status MlxState::GrowPages(int group, int64_t n_pages) {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  int64_t& usable = n_pages_[static_cast<size_t>(group)];
  int64_t& held = pages_held_[static_cast<size_t>(group)];
  if (n_pages > held) {
    const int64_t wanted = held == 0 ? n_pages : Roomier(n_pages);
    WEFT_RETURN_IF_ERROR(
        Grow(PoolsOf(group), usable * page_tokens(), wanted * page_tokens(), type_, true));
    held = wanted;
  }
  usable = std::max(usable, n_pages);
  return OkStatus();
}

Status MlxState::GrowSlots(int64_t n_slots) {
  if (states_.empty() && n_slots > 0) return Unimplemented("this model has no recurrent state");
  if (n_slots > slots_held_) {
    const int64_t wanted = slots_held_ == 0 ? n_slots : Roomier(n_slots);
    std::vector<Pool*> pools;
    for (Pool& state : states_) {
      if (state.n_heads > 0) pools.push_back(&state);
    }
    WEFT_RETURN_IF_ERROR(Grow(pools, n_slots_, wanted, mx::float32, false));
    slots_held_ = wanted;
  }
  n_slots_ = std::max(n_slots_, n_slots);
  return OkStatus();
}

int64_t MlxState::held_bytes() const {
  int64_t bytes = 0;
  for (const mx::array& pool : Pools()) bytes += static_cast<int64_t>(pool.nbytes());
  return bytes;
}

// --- pages -----------------------------------------------------------------------------

Status MlxState::CopyPage(int group, PageId from, PageId to, int n_tokens) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, from));
  WEFT_RETURN_IF_ERROR(CheckPage(group, to));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  if (from == to) return OkStatus();
  for (const Pool* const pool : PoolsOf(group)) {
    for (int64_t head = 0; head < pool->n_heads; ++head) {
      std::memcpy(pool->row(head, int64_t{to} * page_tokens()),
                  pool->row(head, int64_t{from} * page_tokens()),
                  static_cast<size_t>(n_tokens * pool->row_bytes));
    }
  }
  return OkStatus();
}

Status MlxState::ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckTokens(n_tokens));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, out.size()));
  for (const Pool* const pool : PoolsOf(group)) {
    const auto row_bytes = static_cast<size_t>(pool->row_bytes);
    for (int64_t i = 0; i < page_tokens(); ++i) {
      for (int64_t head = 0; head < pool->n_heads; ++head, out = out.subspan(row_bytes)) {
        if (i < n_tokens) {
          std::memcpy(out.data(), pool->row(head, int64_t{page} * page_tokens() + i), row_bytes);
        } else {
          std::ranges::fill(out.first(row_bytes), std::byte{0});
        }
      }
    }
  }
  return OkStatus();
}

Status MlxState::WritePage(int group, PageId page, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckPage(group, page));
  WEFT_RETURN_IF_ERROR(CheckPageBytes(group, in.size()));
  for (const Pool* const pool : PoolsOf(group)) {
    const auto row_bytes = static_cast<size_t>(pool->row_bytes);
    for (int64_t i = 0; i < page_tokens(); ++i) {
      for (int64_t head = 0; head < pool->n_heads; ++head, in = in.subspan(row_bytes)) {
        std::memcpy(pool->row(head, int64_t{page} * page_tokens() + i), in.data(), row_bytes);
      }
    }
  }
  return OkStatus();
}

// --- slots -----------------------------------------------------------------------------

Status MlxState::ClearSlot(SlotId slot) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  for (const Pool& state : states_) {
    if (state.n_heads == 0) continue;
    std::memset(state.row(0, slot), 0, static_cast<size_t>(state.row_bytes));
  }
  return OkStatus();
}

Status MlxState::CopySlot(SlotId from, SlotId to) {
  WEFT_RETURN_IF_ERROR(CheckSlot(from));
  WEFT_RETURN_IF_ERROR(CheckSlot(to));
  if (from == to) return OkStatus();
  for (const Pool& state : states_) {
    if (state.n_heads == 0) continue;
    std::memcpy(state.row(0, to), state.row(0, from), static_cast<size_t>(state.row_bytes));
  }
  return OkStatus();
}

Status MlxState::ReadSlot(SlotId slot, std::span<std::byte> out) const {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(out.size()));
  for (const Pool& state : states_) {
    if (state.n_heads == 0) continue;
    std::memcpy(out.data(), state.row(0, slot), static_cast<size_t>(state.row_bytes));
    out = out.subspan(static_cast<size_t>(state.row_bytes));
  }
  return OkStatus();
}

Status MlxState::WriteSlot(SlotId slot, std::span<const std::byte> in) {
  WEFT_RETURN_IF_ERROR(CheckSlot(slot));
  WEFT_RETURN_IF_ERROR(CheckSlotBytes(in.size()));
  for (const Pool& state : states_) {
    if (state.n_heads == 0) continue;
    std::memcpy(state.row(0, slot), in.data(), static_cast<size_t>(state.row_bytes));
    in = in.subspan(static_cast<size_t>(state.row_bytes));
  }
  return OkStatus();
}

}  // namespace weft::mlx
