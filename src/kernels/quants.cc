// Decoding. What is one multiplication or addition here is one rounding in the
// definition of the type: the order of operations is part of it.
#include "kernels/quants.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/quant_blocks.h"

namespace weft {
namespace {

// out[i] = scale * (levels[i] - zero).
template <int kCount>
inline void ScaleLevels(const uint8_t* levels, int zero, float scale, float* out) {
  for (int i = 0; i < kCount; ++i) out[i] = scale * static_cast<float>(levels[i] - zero);
}

void DecodeBlock(const BlockQ4_0& block, float* out) {
  uint8_t levels[32];
  SplitNibbles(block.qs, levels);
  ScaleLevels<32>(levels, 8, F16ToF32(block.d), out);
}

void DecodeBlock(const BlockQ4_1& block, float* out) {
  uint8_t levels[32];
  SplitNibbles(block.qs, levels);
  const float d = F16ToF32(block.d), m = F16ToF32(block.m);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(levels[i]) + m;
}

void DecodeBlock(const BlockQ5_0& block, float* out) {
  uint8_t levels[32];
  SplitNibbles(block.qs, levels);
  AddFifthBits(block.qh, levels);
  ScaleLevels<32>(levels, 16, F16ToF32(block.d), out);
}

void DecodeBlock(const BlockQ5_1& block, float* out) {
  uint8_t levels[32];
  SplitNibbles(block.qs, levels);
  AddFifthBits(block.qh, levels);
  const float d = F16ToF32(block.d), m = F16ToF32(block.m);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(levels[i]) + m;
}

void DecodeBlock(const BlockQ8_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.q[i]);
}

// A run of 32 values whose nibbles choose from a table.
inline void LookUpNibbles(const uint8_t qs[16], const int8_t table[16], float scale, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(table[qs[j] & 15]);
    out[j + 16] = scale * static_cast<float>(table[qs[j] >> 4]);
  }
}

void DecodeBlock(const BlockIQ4_NL& block, float* out) {
  LookUpNibbles(block.qs, kIQ4Values, F16ToF32(block.d), out);
}

void DecodeBlock(const BlockMXFP4& block, float* out) {
  // 2^(e - 128); the two smallest are subnormal floats.
  const uint32_t e = block.e;
  const float scale = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  LookUpNibbles(block.qs, kFP4Values, scale, out);
}

void DecodeBlock(const BlockQ2_K& block, float* out) {
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s] & 15);
    const float min = dmin * static_cast<float>(block.scales[s] >> 4);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const int shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      out[16 * s + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
    }
  }
}

void DecodeBlock(const BlockQ3_K& block, float* out) {
  const float d = F16ToF32(block.d);
  int8_t scales[16];
  UnpackScalesQ3(block.scales, scales);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(scales[s]);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const uint8_t* high = block.hmask + 16 * (s % 2);
    const int shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int level = ((qs[i] >> shift) & 3) | ((high[i] >> (s / 2)) & 1) << 2;
      out[16 * s + i] = scale * static_cast<float>(level - 4);
    }
  }
}

void DecodeBlock(const BlockQ4_K& block, float* out) {
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  uint8_t scales[8], mins[8];
  UnpackScaleMins(block.scales, scales, mins);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(scales[s]);
    const float min = dmin * static_cast<float>(mins[s]);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    const int shift = 4 * (s % 2);
    for (int i = 0; i < 32; ++i) {
      out[32 * s + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
    }
  }
}

void DecodeBlock(const BlockQ5_K& block, float* out) {
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  uint8_t scales[8], mins[8];
  UnpackScaleMins(block.scales, scales, mins);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(scales[s]);
    const float min = dmin * static_cast<float>(mins[s]);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    const int shift = 4 * (s % 2);
    for (int i = 0; i < 32; ++i) {
      const int level = ((qs[i] >> shift) & 15) | ((block.qh[i] >> s) & 1) << 4;
      out[32 * s + i] = scale * static_cast<float>(level) - min;
    }
  }
}

void DecodeBlock(const BlockQ6_K& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s]);
    const uint8_t* low = block.ql + 64 * (s / 8) + 16 * (s % 4);
    const uint8_t* high = block.qh + 32 * (s / 8) + 16 * (s % 2);
    const int low_shift = s % 8 / 4 * 4, high_shift = s % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int level = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
      out[16 * s + i] = scale * static_cast<float>(level - 32);
    }
  }
}

void DecodeBlock(const BlockIQ4_XS& block, float* out) {
  const float d = F16ToF32(block.d);
  int8_t scales[8];
  UnpackScalesIQ4(block, scales);
  for (int s = 0; s < 8; ++s) {
    LookUpNibbles(block.qs + 16 * s, kIQ4Values, d * static_cast<float>(scales[s]), out + 32 * s);
  }
}

// Digit k of each of `count` bytes.
inline void Digits(const uint8_t* bytes, int count, int k, float d, float* out) {
  constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  for (int j = 0; j < count; ++j) {
    const auto rest = static_cast<uint8_t>(bytes[j] * kPowers[k]);
    out[j] = d * static_cast<float>(((rest * 3) >> 8) - 1);
  }
}

void DecodeBlock(const BlockTQ1_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int k = 0; k < 5; ++k) Digits(block.qs, 32, k, d, out + 32 * k);
  for (int k = 0; k < 5; ++k) Digits(block.qs + 32, 16, k, d, out + 160 + 16 * k);
  for (int k = 0; k < 4; ++k) Digits(block.qh, 4, k, d, out + 240 + 4 * k);
}

void DecodeBlock(const BlockTQ2_0& block, float* out) {
  const float d = F16ToF32(block.d);
  for (int run = 0; run < 8; ++run) {
    const uint8_t* qs = block.qs + 32 * (run / 4);
    const int shift = run % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      out[32 * run + i] = d * static_cast<float>(((qs[i] >> shift) & 3) - 1);
    }
  }
}

// DecodeBlock is found by overload.
template <typename Block>
void DecodeRow(const std::byte* row, int64_t n, float* out) {
  const int64_t block_values = InfoOf(Block::kType).block_values;
  for (int64_t i = 0; i < n; i += block_values, row += sizeof(Block)) {
    Block block;
    std::memcpy(&block, row, sizeof(block));
    DecodeBlock(block, out + i);
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

struct DecoderEntry {
  DType type;
  Decoder decode;
};

constexpr DecoderEntry kDecoders[] = {
    {DType::kF32, CopyRow},
    {DType::kF16, ConvertRow<F16ToF32>},
    {DType::kBF16, ConvertRow<BF16ToF32>},
    {DType::kQ4_0, DecodeRow<BlockQ4_0>},
    {DType::kQ4_1, DecodeRow<BlockQ4_1>},
    {DType::kQ5_0, DecodeRow<BlockQ5_0>},
    {DType::kQ5_1, DecodeRow<BlockQ5_1>},
    {DType::kQ8_0, DecodeRow<BlockQ8_0>},
    {DType::kQ2_K, DecodeRow<BlockQ2_K>},
    {DType::kQ3_K, DecodeRow<BlockQ3_K>},
    {DType::kQ4_K, DecodeRow<BlockQ4_K>},
    {DType::kQ5_K, DecodeRow<BlockQ5_K>},
    {DType::kQ6_K, DecodeRow<BlockQ6_K>},
    {DType::kIQ4_NL, DecodeRow<BlockIQ4_NL>},
    {DType::kIQ4_XS, DecodeRow<BlockIQ4_XS>},
    {DType::kMXFP4, DecodeRow<BlockMXFP4>},
    {DType::kTQ1_0, DecodeRow<BlockTQ1_0>},
    {DType::kTQ2_0, DecodeRow<BlockTQ2_0>},
};

Decoder FindDecoder(DType type) {
  for (const DecoderEntry& entry : kDecoders) {
    if (entry.type == type) return entry.decode;
  }
  return nullptr;
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
