// Where things lie inside a tile of keys and values, and in the scratch memory of an
// attention job. Internal to vector_ops*.
//
// Functions are static: they are compiled for several instruction sets, and the linker must never
// choose one copy for all.
#ifndef WEFT_COMPUTE_KERNELS_VECTOR_OPS_KV_LAYOUT_H_
#define WEFT_COMPUTE_KERNELS_VECTOR_OPS_KV_LAYOUT_H_

#include "compute/kernels/vector_ops.h"

namespace weft {

inline constexpr int64_t kKvGroupDims = 32;  // dimensions that share a scale

// Byte offsets in a tile.
//
// Floats. Key element (dim, position) is element dim * 16 + position; value element
// (position, dim) is element position * v_stride + dim.
//
// Q8_0. Bytes lie in fours that a dot product takes at once: those of a key are four
// dimensions of one position, byte (dim, position) at dim / 4 * 64 + position * 4 + dim % 4;
// those of a value four positions of one dimension, byte (position, dim) at
// (dim / 16 * 4 + position / 4) * 64 + dim % 16 * 4 + position % 4. A key's bytes are 128
// above its levels, because some instructions take one unsigned factor. F16 scales, of
// keys and of values: (dim / 32, position) at (dim / 32 * 16 + position) * 2.
//
// Q5_0 and Q4_0. The levels of 32 dimensions, a group, take 256 bytes, two in each. They are both
// of one position, because threads store positions at the same time. Keys: 8 runs of 64 in the
// order of Q8_0's bytes; run 2 i has the lower halves of bytes 64 i on, run 2 i + 1 the upper ones.
// Values: dimensions 0 to 15 have the lower halves, in the order of Q8_0's bytes, and 16 to 31 the
// upper ones. In Q5_0, 64 bytes follow with the fifth bits. Of keys: bit 7 - r of byte j is that of
// the level j of run r. Of values: byte position / 4 * 16 + dim / 8 * 4 + position % 4, bit dim
// % 8. Groups are whole; what a level without a dimension holds is never used.
struct KvTileLayout {
  int64_t k_dim;
  int64_t element_bytes;  // floats only
  int64_t v_stride;       // floats of a query's sums; of float types, elements too
  int64_t k_quads;        // Q8_0 only
  int64_t k_groups, v_groups;
  int64_t k_scales, values, v_scales, end, bytes;
};

inline constexpr int64_t kHalvesBytes = 4 * 64;  // of a group of Q5_0 or Q4_0

static constexpr int64_t KvGroupBytes(int bits) { return kHalvesBytes + (bits == 5 ? 64 : 0); }

static constexpr KvTileLayout KvTileLayoutOf(KvTypes type, int64_t k_dim, int64_t v_dim) {
  KvTileLayout layout{};
  layout.k_dim = k_dim;
  const bool scaled = HoldsLevels(type);
  layout.element_bytes = type.keys == DType::kF32 ? 4 : 2;
  layout.v_stride = (v_dim + 15) / 16 * 16;
  if (scaled) {
    layout.k_quads = (k_dim + 3) / 4;
    layout.k_groups = (k_dim + kKvGroupDims - 1) / kKvGroupDims;
    layout.v_groups = (v_dim + kKvGroupDims - 1) / kKvGroupDims;
    const int k_bits = LevelBits(type.keys), v_bits = LevelBits(type.values);
    layout.k_scales = k_bits == 8 ? layout.k_quads * 64 : layout.k_groups * KvGroupBytes(k_bits);
    layout.values = layout.k_scales + layout.k_groups * 16 * 2;
    layout.v_scales = layout.values +
                      (v_bits == 8 ? layout.v_stride * 16 : layout.v_groups * KvGroupBytes(v_bits));
  } else {
    layout.k_scales = layout.values = k_dim * 16 * layout.element_bytes;
    layout.v_scales = layout.values + layout.v_stride * 16 * layout.element_bytes;
  }
  layout.end = layout.v_scales + layout.v_groups * 16 * 2;
  layout.bytes = (layout.end + 63) / 64 * 64;
  return layout;
}

// A query's sums over some positions, as offsets in floats.
struct AttentionPartLayout {
  int64_t sums;     // 16 sums of p, by lane; before them v_stride sums of p v
  int64_t maximum;  // the largest logit, which all p are relative to
  int64_t floats;
};

static constexpr AttentionPartLayout AttentionPartLayoutOf(int64_t v_dim) {
  const int64_t v_stride = (v_dim + 15) / 16 * 16;
  return {v_stride, v_stride + 16, v_stride + 32};
}

// The parts of a job's scratch memory, as offsets in floats; every one a multiple of 16.
struct AttentionScratch {
  int64_t floats;   // a block's keys and values, of float types
  int64_t parts;    // n_queries: the current span
  int64_t totals;   // n_queries: the spans before it
  int64_t scores;   // n_queries: kAttentionBlock positions each
  int64_t rotated;  // a query, of types that rotate
  // Of types with levels. The instruction set decides how many bytes a level and a weight take.
  int64_t levels;        // (n_queries, k_groups): 32 levels of a query
  int64_t level_sums;    // (n_queries, k_groups), integers
  int64_t level_scales;  // (n_queries, k_groups)
  int64_t ratios;        // (v_groups, kAttentionBlock), see ScaleValues
  int64_t steps;         // v_groups
  int64_t weights;       // (v_groups, n_queries): kAttentionBlock weights
  int64_t decays;        // n_queries
  int64_t shares;        // n_queries
  int64_t end;
};
inline constexpr int64_t kMaxLevelBytes = 2, kMaxWeightBytes = 2;

static constexpr AttentionScratch AttentionScratchOf(const KvShape& shape, int64_t n_queries) {
  const KvTileLayout layout = KvTileLayoutOf(shape.type, shape.k_dim, shape.v_dim);
  const bool scaled = HoldsLevels(shape.type);
  AttentionScratch at{};
  const auto take = [&](int64_t n_floats) {
    const int64_t begin = at.end;
    at.end += (n_floats + 15) / 16 * 16;
    return begin;
  };
  const int64_t n_scaled = scaled ? n_queries : 0;
  at.floats = take(scaled ? 0 : (shape.k_dim + layout.v_stride) * kAttentionBlock);
  at.parts = take(n_queries * AttentionPartLayoutOf(shape.v_dim).floats);
  at.totals = take(n_queries * AttentionPartLayoutOf(shape.v_dim).floats);
  at.scores = take(n_queries * kAttentionBlock);
  at.rotated = take(RotatesHeads(shape.type.keys) ? shape.k_dim : 0);
  at.levels = take(n_scaled * layout.k_groups * kKvGroupDims * kMaxLevelBytes / 4);
  at.level_sums = take(n_scaled * layout.k_groups);
  at.level_scales = take(n_scaled * layout.k_groups);
  at.ratios = take(layout.v_groups * kAttentionBlock);
  at.steps = take(layout.v_groups);
  at.weights = take(n_scaled * layout.v_groups * kAttentionBlock * kMaxWeightBytes / 4);
  at.decays = take(n_scaled);
  at.shares = take(n_scaled);
  return at;
}

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_VECTOR_OPS_KV_LAYOUT_H_
