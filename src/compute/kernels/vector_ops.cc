#include "compute/kernels/vector_ops.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/vector_ops_kv_layout.h"
#include "compute/kernels/vector_ops_tables.h"

namespace weft {

bool IsKvType(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || type == DType::kQ8_0;
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

void ReadInt8Kv(const KvShape& shape, const KvTileLayout& layout, const std::byte* tile, int index,
                float* key, float* value) {
  const auto scale_at = [&](int64_t scales, int64_t dim) {
    return ElementAt(DType::kF16, tile + scales + (dim / kKvGroupDims * 16 + index) * 2);
  };
  for (int64_t dim = 0; dim < shape.k_dim; ++dim) {
    const int level = static_cast<int>(tile[dim / 4 * 64 + index * 4 + dim % 4]) - 128;
    key[dim] = static_cast<float>(level) * scale_at(layout.k_scales, dim);
  }
  if (value == nullptr) return;
  const std::byte* const column = tile + layout.values + index / 4 * 64 + index % 4;
  for (int64_t dim = 0; dim < shape.v_dim; ++dim) {
    const auto level = static_cast<int8_t>(column[dim / 16 * 256 + dim % 16 * 4]);
    value[dim] = static_cast<float>(level) * scale_at(layout.v_scales, dim);
  }
}

}  // namespace

void ReadKv(const KvShape& shape, const std::byte* tile, int index, float* key, float* value) {
  const KvTileLayout layout = KvTileLayoutOf(shape.type, shape.k_dim, shape.v_dim);
  if (shape.type == DType::kQ8_0) return ReadInt8Kv(shape, layout, tile, index, key, value);
  const int64_t size = layout.element_bytes;
  for (int64_t dim = 0; dim < shape.k_dim; ++dim) {
    key[dim] = ElementAt(shape.type, tile + (dim * 16 + index) * size);
  }
  if (value == nullptr) return;
  const std::byte* const row = tile + layout.values + index * layout.v_stride * size;
  for (int64_t dim = 0; dim < shape.v_dim; ++dim) {
    value[dim] = ElementAt(shape.type, row + dim * size);
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
  if (shape.type == DType::kQ8_0) {
    clear_columns(0, layout.k_quads, 4);
    clear_columns(layout.k_scales, layout.k_groups, 2);
    clear_quads(layout.values, layout.v_stride);
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
