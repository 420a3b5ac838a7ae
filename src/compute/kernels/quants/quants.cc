// Decoding. Each multiplication or addition here is one rounding in the type's definition, so the
// order of operations is part of it.
#include "compute/kernels/quants/quants.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/quants/quant_types.h"

namespace weft {
namespace {

// out[i] = scale * the value of level i.
template <Format kFormat, int kN>
inline void ScaleLevels(const uint8_t* levels, float scale, float* out) {
  if constexpr (kFormat.table == LevelTable::kNone) {
    constexpr int kZero = kFormat.offset_shift < 0 ? 0 : 1 << kFormat.offset_shift;
    for (int i = 0; i < kN; ++i) out[i] = scale * static_cast<float>(levels[i] - kZero);
  } else {
    float scaled[16];
    for (int k = 0; k < 16; ++k) {
      scaled[k] = scale * static_cast<float>(ValuesOf(kFormat.table)[k]);
    }
    for (int i = 0; i < kN; ++i) out[i] = scaled[levels[i]];
  }
}

// The scale of part `s` of a block.
template <Format kFormat>
inline float ScaleOf(const BlockParts& parts, int s) {
  if constexpr (kFormat.scales == ScaleForm::kF16) return F16ToF32(parts.scale16[s]);
  const uint32_t e = parts.scale8[s];
  // 2^(e - 128); the two smallest are subnormal floats.
  if constexpr (kFormat.scales == ScaleForm::kE8M0) {
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
  const int scale = kFormat.mins ? parts.scale8[s] : static_cast<int8_t>(parts.scale8[s]);
  return F16ToF32(parts.d) * PowerOfHalf(kFormat.super_shift) * static_cast<float>(scale);
}

template <DType kType>
void DecodeRow(const std::byte* row, int64_t n, float* out) {
  using Type = Quantized<kType>;
  constexpr Format kFormat = Type::kFormat;
  constexpr int kPart = kFormat.halves ? 16 : 32;
  BlockParts parts;
  for (int64_t i = 0; i < n; i += Type::kValues, row += sizeof(typename Type::Block)) {
    Type::Read(BlockAt<kType>(row), 0, &parts);
    for (int s = 0; s < Type::kValues / kPart; ++s, out += kPart) {
      ScaleLevels<kFormat, kPart>(parts.levels + s * kPart, ScaleOf<kFormat>(parts, s), out);
      if constexpr (kFormat.mins) {
        const float min = kFormat.scales == ScaleForm::kF16
                              ? F16ToF32(parts.min16[s])
                              : -(F16ToF32(parts.dmin) * PowerOfHalf(kFormat.min_shift) *
                                  static_cast<float>(parts.min8[s]));
        for (int j = 0; j < kPart; ++j) out[j] += min;
      }
    }
  }
}

template <float (*Convert)(uint16_t)>
void ConvertRow(const std::byte* row, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof(half));
    out[i] = Convert(half);
  }
}

void CopyRow(const std::byte* row, int64_t n, float* out) {
  if (n > 0) std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
}

using Decoder = void (*)(const std::byte* row, int64_t n, float* out);

Decoder FindDecoder(DType type) {
  if (type == DType::kF32) return CopyRow;
  if (type == DType::kF16) return ConvertRow<F16ToF32>;
  if (type == DType::kBF16) return ConvertRow<BF16ToF32>;
  Decoder decode = nullptr;
  WithQuantized(type, [&]<DType kType>() { decode = DecodeRow<kType>; });
  return decode;
}

}  // namespace

bool CanDequantize(DType type) { return FindDecoder(type) != nullptr; }

void Dequantize(DType type, const std::byte* row, int64_t n, float* out) {
  const Decoder decode = FindDecoder(type);
  WEFT_CHECK(decode != nullptr, "this type cannot be decoded");
  WEFT_CHECK(n >= 0 && n % InfoOf(type).block_values == 0, "a row is whole blocks");
  decode(row, n, out);
}

}  // namespace weft
