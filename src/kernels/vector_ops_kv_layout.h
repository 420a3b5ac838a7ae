// Where things lie inside a tile of keys and values. Internal to vector_ops*.
#ifndef WEFT_KERNELS_VECTOR_OPS_KV_LAYOUT_H_
#define WEFT_KERNELS_VECTOR_OPS_KV_LAYOUT_H_

#include "kernels/vector_ops.h"

namespace weft {

inline constexpr int64_t kKvGroupDims = 32;  // dimensions that share a Q8_0 scale

// Byte offsets in a tile. Keys: element (dim, position) at dim * 16 + position, its
// scale (dim / 32, position) likewise. Values: element (position, dim) at
// position * v_stride + dim, its scale at position * v_groups + dim / 32.
struct KvTileLayout {
  int64_t k_dim;
  int64_t element_bytes;
  int64_t v_stride;  // elements
  int64_t k_groups, v_groups;
  int64_t k_scales, values, v_scales, end, bytes;
};

constexpr KvTileLayout KvTileLayoutOf(DType type, int64_t k_dim, int64_t v_dim) {
  KvTileLayout layout{};
  layout.k_dim = k_dim;
  const bool scaled = type == DType::kQ8_0;
  layout.element_bytes = type == DType::kF32 ? 4 : scaled ? 1 : 2;
  layout.v_stride = (v_dim + 15) / 16 * 16;
  layout.k_groups = scaled ? (k_dim + kKvGroupDims - 1) / kKvGroupDims : 0;
  layout.v_groups = scaled ? (v_dim + kKvGroupDims - 1) / kKvGroupDims : 0;
  layout.k_scales = k_dim * 16 * layout.element_bytes;
  layout.values = layout.k_scales + layout.k_groups * 16 * 2;
  layout.v_scales = layout.values + layout.v_stride * 16 * layout.element_bytes;
  layout.end = layout.v_scales + layout.v_groups * 16 * 2;
  layout.bytes = (layout.end + 63) / 64 * 64;
  return layout;
}

}  // namespace weft

#endif  // WEFT_KERNELS_VECTOR_OPS_KV_LAYOUT_H_
