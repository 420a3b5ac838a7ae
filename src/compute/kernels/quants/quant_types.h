// The quantized types. For each type, one place defines the layout of its blocks in model files,
// the meaning of its levels and scales, and how to read them from a block and write them to it.
// Decoding, encoding, packing and the choice of kernels follow from that (quants.cc,
// quants_encode.cc, matmul_pack.cc, matmul_dispatch.inc).
//
// Blocks in a file are packed without gaps and may begin at any address, and so may the structs
// here: BlockAt reads a block in place. Numbers are little-endian; halves are IEEE binary16 bit
// patterns, see base/half.h. "x[i]" is value i of the block.
//
// The functions are for files that are compiled for any machine; kernels of one instruction set use
// only the formats.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANT_TYPES_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANT_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "compute/kernels/quants/few_bit_types.h"
#include "compute/kernels/quants/quant_fields.h"
#include "compute/kernels/quants/quant_format.h"

namespace weft {

// --- the types --------------------------------------------------------------------

// Blocks of 32: a scale, an optional minimum, optional fifth bits, and levels as one run of
// nibbles, or as signed bytes.
template <Format kForm>
struct Blocks32 {
  static constexpr Format kFormat = kForm;
  static constexpr int kValues = 32;
  static constexpr int kScaleBytes = kForm.scales == ScaleForm::kE8M0 ? 1 : 2;
  static constexpr int kFifthBits = kScaleBytes + (kForm.mins ? 2 : 0);
  static constexpr int kLevels = kFifthBits + (kForm.bits == 5 ? 4 : 0);
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t bytes[kLevels + (kForm.bits == 8 ? 32 : 16)];
  };
  static void Read(const Block& block, int b, BlockParts* parts) {
    uint8_t* const levels = parts->levels + 32 * b;
    std::memcpy(kScaleBytes == 1 ? static_cast<void*>(parts->scale8 + b) : parts->scale16 + b,
                block.bytes, kScaleBytes);
    if (kForm.mins) std::memcpy(parts->min16 + b, block.bytes + 2, 2);
    if constexpr (kForm.bits == 8) {
      for (int i = 0; i < 32; ++i) levels[i] = block.bytes[kLevels + i] ^ 0x80;  // + 128
    } else {
      SplitNibbles<16, 32>(block.bytes + kLevels, levels);
      if (kForm.bits == 5) AddFifthBits(block.bytes + kFifthBits, levels);
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    std::memcpy(block->bytes,
                kScaleBytes == 1 ? static_cast<const void*>(parts.scale8) : parts.scale16,
                kScaleBytes);
    if (kForm.mins) std::memcpy(block->bytes + 2, parts.min16, 2);
    if constexpr (kForm.bits == 8) {
      for (int i = 0; i < 32; ++i) block->bytes[kLevels + i] = parts.levels[i] ^ 0x80;
    } else {
      JoinNibbles<16, 32>(parts.levels, block->bytes + kLevels);
      if (kForm.bits == 5) JoinFifthBits(parts.levels, block->bytes + kFifthBits);
    }
  }
};

template <>
struct Quantized<DType::kQ4_0>
    : Blocks32<Format{.scales = ScaleForm::kF16, .bits = 4, .offset_shift = 3}> {};
template <>
struct Quantized<DType::kQ4_1>
    : Blocks32<Format{.scales = ScaleForm::kF16, .bits = 4, .mins = true}> {};
template <>
struct Quantized<DType::kQ5_0>
    : Blocks32<Format{.scales = ScaleForm::kF16, .bits = 5, .offset_shift = 4}> {};
template <>
struct Quantized<DType::kQ5_1>
    : Blocks32<Format{.scales = ScaleForm::kF16, .bits = 5, .mins = true}> {};
template <>
struct Quantized<DType::kQ8_0>
    : Blocks32<Format{.scales = ScaleForm::kF16, .bits = 8, .offset_shift = 7}> {};
template <>
struct Quantized<DType::kIQ4_NL>
    : Blocks32<Format{
          .scales = ScaleForm::kF16, .bits = 4, .table = LevelTable::kIq4, .offset_shift = 7}> {};
template <>
struct Quantized<DType::kMXFP4>
    : Blocks32<Format{
          .scales = ScaleForm::kE8M0, .bits = 4, .table = LevelTable::kFp4, .offset_shift = 4}> {};

template <>
struct Quantized<DType::kQ2_K> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 2, .halves = true, .mins = true, .scale_bits = 4};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t scales[16];  // scale in the low nibble, minimum in the high one
    uint8_t qs[64];
    uint16_t d, dmin;
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    for (int s = 0; s < 16; ++s) {
      parts->scale8[s] = block.scales[s] & 15;
      parts->min8[s] = block.scales[s] >> 4;
    }
    std::memset(parts->levels, 0, 256);
    AddTwoBits(block.qs, 0, parts->levels);
    parts->d = block.d;
    parts->dmin = block.dmin;
  }
  static void Write(const BlockParts& parts, Block* block) {
    for (int s = 0; s < 16; ++s) {
      block->scales[s] = static_cast<uint8_t>(parts.scale8[s] | parts.min8[s] << 4);
    }
    JoinTwoBits(parts.levels, 0, block->qs);
    block->d = parts.d;
    block->dmin = parts.dmin;
  }
};

template <>
struct Quantized<DType::kQ3_K> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 3, .halves = true, .offset_shift = 2, .scale_bits = 6};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t hmask[32];  // third bits
    uint8_t qs[64];     // low two bits
    // Scale k, plus 32: its lower four bits are nibble k / 8 of scales[k % 8], its upper two are at
    // bit 2 (k / 4) of scales[8 + k % 4].
    uint8_t scales[12];
    uint16_t d;
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    for (int k = 0; k < 16; ++k) {
      const int low = (block.scales[k % 8] >> (4 * (k / 8))) & 15;
      const int high = (block.scales[8 + k % 4] >> (2 * (k / 4))) & 3;
      parts->scale8[k] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    std::memset(parts->levels, 0, 256);
    AddTwoBits(block.qs, 0, parts->levels);
    AddOneBit(block.hmask, 2, parts->levels);
    parts->d = block.d;
  }
  static void Write(const BlockParts& parts, Block* block) {
    std::memset(block->scales, 0, sizeof(block->scales));
    for (int k = 0; k < 16; ++k) {
      const int scale = (parts.scale8[k] + 32) & 63;
      block->scales[k % 8] |= static_cast<uint8_t>((scale & 15) << (4 * (k / 8)));
      block->scales[8 + k % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (k / 4)));
    }
    JoinTwoBits(parts.levels, 0, block->qs);
    JoinOneBit(parts.levels, 2, block->hmask);
    block->d = parts.d;
  }
};

template <>
struct Quantized<DType::kQ4_K> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 4, .mins = true, .scale_bits = 6};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d, dmin;
    uint8_t scales[12];  // see UnpackScaleMins
    uint8_t qs[128];     // runs of 64 nibbles
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    parts->dmin = block.dmin;
    UnpackScaleMins(block.scales, parts->scale8, parts->min8);
    SplitNibbles<32, 256>(block.qs, parts->levels);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    block->dmin = parts.dmin;
    PackScaleMins(parts.scale8, parts.min8, block->scales);
    JoinNibbles<32, 256>(parts.levels, block->qs);
  }
};

template <>
struct Quantized<DType::kQ5_K> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 5, .mins = true, .scale_bits = 6};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d, dmin;
    uint8_t scales[12];  // see UnpackScaleMins
    uint8_t qh[32];      // fifth bits
    uint8_t qs[128];     // low four bits, runs of 64 nibbles
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    parts->dmin = block.dmin;
    UnpackScaleMins(block.scales, parts->scale8, parts->min8);
    SplitNibbles<32, 256>(block.qs, parts->levels);
    AddOneBit(block.qh, 4, parts->levels);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    block->dmin = parts.dmin;
    PackScaleMins(parts.scale8, parts.min8, block->scales);
    JoinNibbles<32, 256>(parts.levels, block->qs);
    JoinOneBit(parts.levels, 4, block->qh);
  }
};

template <>
struct Quantized<DType::kQ6_K> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 6, .halves = true, .offset_shift = 5, .scale_bits = 8};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t ql[128];  // low four bits, runs of 128 nibbles
    uint8_t qh[64];   // upper two
    int8_t scales[16];
    uint16_t d;
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    std::memcpy(parts->scale8, block.scales, sizeof(block.scales));
    SplitNibbles<64, 256>(block.ql, parts->levels);
    AddTwoBits(block.qh, 4, parts->levels);
    parts->d = block.d;
  }
  static void Write(const BlockParts& parts, Block* block) {
    std::memcpy(block->scales, parts.scale8, sizeof(block->scales));
    JoinNibbles<64, 256>(parts.levels, block->ql);
    JoinTwoBits(parts.levels, 4, block->qh);
    block->d = parts.d;
  }
};

template <>
struct Quantized<DType::kIQ4_XS> {
  static constexpr Format kFormat = {.scales = ScaleForm::kSuper,
                                     .bits = 4,
                                     .table = LevelTable::kIq4,
                                     .offset_shift = 7,
                                     .scale_bits = 6};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    // Scale k, plus 32: its upper two bits are bits 2 k, 2 k + 1 of scales_high, its lower four are
    // nibble k % 2 of scales_low[k / 2].
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t qs[128];  // runs of 32 nibbles
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int k = 0; k < 8; ++k) {
      const int low = (block.scales_low[k / 2] >> (4 * (k % 2))) & 15;
      const int high = (block.scales_high >> (2 * k)) & 3;
      parts->scale8[k] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    SplitNibbles<16, 256>(block.qs, parts->levels);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    block->scales_high = 0;
    std::memset(block->scales_low, 0, sizeof(block->scales_low));
    for (int k = 0; k < 8; ++k) {
      const int scale = (parts.scale8[k] + 32) & 63;
      block->scales_low[k / 2] |= static_cast<uint8_t>((scale & 15) << (4 * (k % 2)));
      block->scales_high |= static_cast<uint16_t>((scale >> 4) << (2 * k));
    }
    JoinNibbles<16, 256>(parts.levels, block->qs);
  }
};

// Blocks of 64: an unsigned 8-bit scale (E4M3) per 16 values, and nibbles.
template <>
struct Quantized<DType::kNVFP4> {
  static constexpr Format kFormat = {.scales = ScaleForm::kF16,
                                     .bits = 4,
                                     .table = LevelTable::kFp4,
                                     .halves = true,
                                     .offset_shift = 4};
  static constexpr int kValues = 64;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t scales[4];
    uint8_t qs[32];  // runs of 16 nibbles
  };
  // Half of the scale's value, because levels are twice their values. Exact as a half.
  static uint16_t HalfOf(uint8_t scale) {
    // 0 ... 7 times 2^-10.
    constexpr uint16_t kSmall[8] = {0, 0x1400, 0x1800, 0x1A00, 0x1C00, 0x1D00, 0x1E00, 0x1F00};
    const int exponent = scale >> 3 & 15, fraction = scale & 7;
    if (scale == 0x7F) return 0;  // NaN
    return exponent == 0 ? kSmall[fraction]
                         : static_cast<uint16_t>((exponent + 7) << 10 | fraction << 7);
  }
  static void Read(const Block& block, int b, BlockParts* parts) {
    for (int s = 0; s < 4; ++s) parts->scale16[2 * b + s] = HalfOf(block.scales[s]);
    SplitNibbles<8, 64>(block.qs, parts->levels + 32 * b);
  }
};

// The block at `p`, which may have any alignment.
template <DType kType>
const typename Quantized<kType>::Block& BlockAt(const std::byte* p) {
  return *reinterpret_cast<const typename Quantized<kType>::Block*>(p);
}

// --- all of them ------------------------------------------------------------------

template <DType... kTypes>
struct TypeList {};
using QuantizedTypes =
    TypeList<DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,
             DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
             DType::kMXFP4, DType::kNVFP4, DType::kQ1_0, DType::kQ2_0, DType::kTQ1_0, DType::kTQ2_0,
             DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
             DType::kIQ3_XXS, DType::kIQ3_S>;

// Calls fn.operator()<T>() for the quantized type `type`; returns false if it is not one.
template <typename Fn, DType... kTypes>
static constexpr bool WithQuantized(DType type, Fn fn, TypeList<kTypes...> /*all*/) {
  return ((type == kTypes && (fn.template operator()<kTypes>(), true)) || ...);
}
template <typename Fn>
static constexpr bool WithQuantized(DType type, Fn fn) {
  return WithQuantized(type, fn, QuantizedTypes());
}

struct Formats {
  Format of[64];  // by the type's number
};
template <DType... kTypes>
static constexpr Formats AllFormats(TypeList<kTypes...> /*all*/) {
  Formats formats = {};
  ((formats.of[static_cast<uint32_t>(kTypes)] = Quantized<kTypes>::kFormat), ...);
  return formats;
}
static constexpr Formats kFormats = AllFormats(QuantizedTypes());

// How `type` is quantized, and packed for products. Types that are not quantized are
// kFloatWeights.
static constexpr const Format& FormatOf(DType type) {
  return kFormats.of[static_cast<uint32_t>(type)];
}

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANT_TYPES_H_
