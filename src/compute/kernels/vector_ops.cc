#include "compute/kernels/vector_ops.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/vector_ops_kv_layout.h"
#include "compute/kernels/vector_ops_tables.h"

namespace weft {

bool IsKvType(KvTypes type) {
  if (HoldsLevels(type)) return LevelBits(type.values) > 0;
  const DType both = type.keys;
  return type.values == both &&
         (both == DType::kF32 || both == DType::kF16 || both == DType::kBF16);
}

int64_t KvTileBytes(const KvShape& shape) {
  return KvTileLayoutOf(shape.type, shape.k_dim, shape.v_dim).bytes;
}

namespace {

float ElementAt(DType type, const std::byte* at) {
  if (type == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return type == DType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
}

// The number that stands for a level, of the position `index` and a dimension of its group.
int StoredKeyLevel(const std::byte* group, int bits, int index, int64_t dim) {
  const int64_t run = dim / 4, at = index * 4 + dim % 4;
  const int halves = static_cast<int>(group[run / 2 * 64 + at]) >> (run % 2 * 4) & 15;
  if (bits == 4) return halves;
  return halves | (static_cast<int>(group[kHalvesBytes + at]) >> (7 - run) & 1) << 4;
}
int StoredValueLevel(const std::byte* group, int bits, int index, int64_t dim) {
  const int64_t row = index / 4, of_four = index % 4;
  const std::byte both = group[row * 64 + dim % 16 * 4 + of_four];
  const int halves = static_cast<int>(both) >> (dim / 16 * 4) & 15;
  if (bits == 4) return halves;
  const std::byte fifths = group[kHalvesBytes + row * 16 + dim / 8 * 4 + of_four];
  return halves | (static_cast<int>(fifths) >> (dim % 8) & 1) << 4;
}

// Reads n dimensions: level(dim) of each, times its group's scale.
template <typename Fn>
void ReadLevels(DType type, const std::byte* scales, int index, int64_t n, float* out, Fn level) {
  for (int64_t dim = 0; dim < n; ++dim) {
    const float scale = ElementAt(DType::kF16, scales + (dim / kKvGroupDims * 16 + index) * 2);
    out[dim] = static_cast<float>(level(dim)) * scale;
  }
  if (RotatesHeads(type)) RotateHead(out, n);
}

void ReadLevelKv(const KvShape& shape, const KvTileLayout& layout, const std::byte* tile, int index,
                 float* key, float* value) {
  const int k_bits = LevelBits(shape.type.keys), v_bits = LevelBits(shape.type.values);
  ReadLevels(shape.type.keys, tile + layout.k_scales, index, shape.k_dim, key, [&](int64_t dim) {
    if (k_bits == 8) return static_cast<int>(tile[dim / 4 * 64 + index * 4 + dim % 4]) - 128;
    const std::byte* const group = tile + dim / kKvGroupDims * KvGroupBytes(k_bits);
    return 2 * StoredKeyLevel(group, k_bits, index, dim % kKvGroupDims) - MaxLevel(k_bits);
  });
  if (value == nullptr) return;
  const std::byte* const v = tile + layout.values;
  const auto level = [&](int64_t dim) {
    if (v_bits == 8) {
      const std::byte at = v[dim / 16 * 256 + index / 4 * 64 + dim % 16 * 4 + index % 4];
      return int{static_cast<int8_t>(at)};
    }
    const std::byte* const group = v + dim / kKvGroupDims * KvGroupBytes(v_bits);
    return 2 * StoredValueLevel(group, v_bits, index, dim % kKvGroupDims) - MaxLevel(v_bits);
  };
  ReadLevels(shape.type.values, tile + layout.v_scales, index, shape.v_dim, value, level);
}

}  // namespace

void ReadKv(const KvShape& shape, const std::byte* tile, int index, float* key, float* value) {
  const KvTileLayout layout = KvTileLayoutOf(shape.type, shape.k_dim, shape.v_dim);
  if (HoldsLevels(shape.type)) return ReadLevelKv(shape, layout, tile, index, key, value);
  const DType type = shape.type.keys;
  const int64_t size = layout.element_bytes;
  for (int64_t dim = 0; dim < shape.k_dim; ++dim) {
    key[dim] = ElementAt(type, tile + (dim * 16 + index) * size);
  }
  if (value == nullptr) return;
  const std::byte* const row = tile + layout.values + index * layout.v_stride * size;
  for (int64_t dim = 0; dim < shape.v_dim; ++dim) {
    value[dim] = ElementAt(type, row + dim * size);
  }
}

void ClearKvTail(const KvShape& shape, int n_tokens, std::byte* tile) {
  const KvTileLayout layout = KvTileLayoutOf(shape.type, shape.k_dim, shape.v_dim);
  const auto clear = [&](int64_t offset, int64_t bytes) {
    std::memset(tile + offset, 0, static_cast<size_t>(bytes));
  };
  // Rows of 16 positions, and rows that are positions.
  const auto clear_columns = [&](int64_t offset, int64_t n_rows, int64_t element_bytes) {
    for (int64_t row = 0; row < n_rows; ++row) {
      clear(offset + (row * 16 + n_tokens) * element_bytes, (16 - n_tokens) * element_bytes);
    }
  };
  const auto clear_rows = [&](int64_t offset, int64_t row_bytes) {
    clear(offset + n_tokens * row_bytes, (16 - n_tokens) * row_bytes);
  };
  // Four positions of each dimension side by side.
  const auto clear_quads = [&](int64_t offset, int64_t n_dims) {
    for (int64_t row = 0; row < n_dims / 16 * 4; ++row) {
      const int64_t kept = std::clamp<int64_t>(n_tokens - row % 4 * 4, 0, 4);
      for (int64_t dim = 0; dim < 16; ++dim) clear(offset + row * 64 + dim * 4 + kept, 4 - kept);
    }
  };
  const auto clear_values = [&](int bits) {
    for (int64_t group = 0; group < layout.v_groups; ++group) {
      const int64_t at = layout.values + group * KvGroupBytes(bits);
      clear_quads(at, 16);
      for (int index = n_tokens; bits == 5 && index < 16; ++index) {
        for (int64_t i = 0; i < 4; ++i) {
          clear(at + kHalvesBytes + index / 4 * 16 + i * 4 + index % 4, 1);
        }
      }
    }
  };
  if (HoldsLevels(shape.type)) {
    const int k_bits = LevelBits(shape.type.keys), v_bits = LevelBits(shape.type.values);
    clear_columns(0, k_bits == 8 ? layout.k_quads : layout.k_groups * KvGroupBytes(k_bits) / 64, 4);
    clear_columns(layout.k_scales, layout.k_groups, 2);
    if (v_bits == 8) {
      clear_quads(layout.values, layout.v_stride);
    } else {
      clear_values(v_bits);
    }
    clear_columns(layout.v_scales, layout.v_groups, 2);
  } else {
    clear_columns(0, shape.k_dim, layout.element_bytes);
    clear_rows(layout.values, layout.v_stride * layout.element_bytes);
  }
  clear(layout.end, layout.bytes - layout.end);
}

int64_t AttentionScratchFloats(const KvShape& shape, int64_t n_queries) {
  return AttentionScratchOf(shape, n_queries).end;
}

int64_t AttentionPartFloats(int64_t v_dim) { return AttentionPartLayoutOf(v_dim).floats; }

const VectorKernels& VectorKernelsFor(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return kVectorKernelsAvx512;
    case Isa::kAvxVnni:
      return kVectorKernelsAvxVnni;
    case Isa::kAvx2:
      return kVectorKernelsAvx2;
#elif defined(__aarch64__)
    case Isa::kNeon:
    case Isa::kI8mm:  // which adds nothing to floats
      return kVectorKernelsNeon;
#endif
    default:
      WEFT_CHECK(isa == Isa::kScalar, "no vector kernels for this instruction set");
      return kVectorKernelsScalar;
  }
}

}  // namespace weft
