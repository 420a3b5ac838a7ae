// The quantized types: of each, in one place, how its blocks lie in model files, what their
// levels and scales mean, and how these get out of a block and into it. Decoding, encoding,
// packing and the choice of kernels follow from that (quants.cc, quants_encode.cc,
// matmul_pack.cc, matmul_dispatch.inc).
//
// Blocks in a file are packed without gaps and may begin at any address, and so may the
// structs here: BlockAt looks at one where it lies. Numbers are little-endian; halves are IEEE
// binary16 bit patterns, see base/half.h. "x[i]" is value i of the block.
//
// The functions are for files that are built for any machine; kernels of one instruction set
// use the formats alone.
#ifndef WEFT_KERNELS_QUANTS_QUANT_TYPES_H_
#define WEFT_KERNELS_QUANTS_QUANT_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace weft {

// --- levels and scales ------------------------------------------------------------

enum class ScaleForm : uint8_t {
  kFloatWeights,  // not quantized
  kF16,           // a half per 32 values
  kE8M0,          // an exponent e per 32 values: 2^(e - 128)
  kSuper,         // d * (a small integer), d a half per 256 values
};
enum class LevelTable : uint8_t { kNone, kIq4, kMxfp4 };

// A value is scale * (level - zero), or scale * level + min where the type has minima, which
// in kSuper are -dmin * (a small integer).
struct Format {
  ScaleForm scales = ScaleForm::kFloatWeights;
  int bits = 0;  // of a level, in store
  LevelTable table = LevelTable::kNone;
  bool halves = false;    // a scale (and a minimum) per 16 inputs instead of 32
  bool mins = false;      // weight = scale * level + min
  int offset_shift = -1;  // without minima: zero is 1 << offset_shift
  int scale_bits = 0;     // of the integer scales of kSuper: signed, or with minima unsigned
};

// What the levels of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// What those of MXFP4 do: twice the FP4 (E2M1) values, so that they are integers.
inline constexpr int8_t kFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The levels and scales of up to 256 values: of one block, or of several of 32.
struct BlockParts {
  uint8_t levels[256];  // in store: unsigned, or numbers of a table's entries
  uint16_t scale16[8];  // kF16
  uint16_t min16[8];
  uint8_t scale8[16];  // kE8M0 and kSuper, per 32 or 16 values
  uint8_t min8[16];
  uint16_t d, dmin;  // kSuper
};

// --- fields that several types have -------------------------------------------------

// 4-bit levels of a run of 2 kHalf values: the low nibble of qs[j] is x[j]'s, the high one
// x[j + kHalf]'s. kN values, run after run.
template <int kHalf, int kN>
inline void SplitNibbles(const uint8_t* __restrict qs, uint8_t* __restrict levels) {
  for (int run = 0; run < kN; run += 2 * kHalf, qs += kHalf, levels += 2 * kHalf) {
    for (int j = 0; j < kHalf; ++j) {
      levels[j] = qs[j] & 15;
      levels[j + kHalf] = qs[j] >> 4;
    }
  }
}
template <int kHalf, int kN>
inline void JoinNibbles(const uint8_t* levels, uint8_t* qs) {
  for (int run = 0; run < kN; run += 2 * kHalf, qs += kHalf, levels += 2 * kHalf) {
    for (int j = 0; j < kHalf; ++j) {
      qs[j] = static_cast<uint8_t>((levels[j] & 15) | (levels[j + kHalf] & 15) << 4);
    }
  }
}

// Fifth bits of 32 values: bit i of qh (as one little-endian number) is x[i]'s.
inline void AddFifthBits(const uint8_t qh[4], uint8_t levels[32]) {
  for (int i = 0; i < 32; ++i) {
    levels[i] |= static_cast<uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
  }
}
inline void JoinFifthBits(const uint8_t levels[32], uint8_t qh[4]) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(levels[i] >> 4) << i;
  std::memcpy(qh, &bits, sizeof(bits));
}

// Two bits of 256 values, in two runs of 128: x[128 r + 32 p + j] is bits 2 p, 2 p + 1 of
// qs[32 r + j], p = 0..3, j = 0..31. Bits `shift` and above of the levels.
inline void AddTwoBits(const uint8_t* __restrict qs, int shift, uint8_t* __restrict levels) {
  for (int part = 0; part < 8; ++part, levels += 32) {
    const uint8_t* const from = qs + part / 4 * 32;
    for (int j = 0; j < 32; ++j) {
      levels[j] |= static_cast<uint8_t>(((from[j] >> (part % 4 * 2)) & 3) << shift);
    }
  }
}
inline void JoinTwoBits(const uint8_t* levels, int shift, uint8_t* qs) {
  std::memset(qs, 0, 64);
  for (int part = 0; part < 8; ++part, levels += 32) {
    uint8_t* const to = qs + part / 4 * 32;
    for (int j = 0; j < 32; ++j) {
      to[j] |= static_cast<uint8_t>(((levels[j] >> shift) & 3) << (part % 4 * 2));
    }
  }
}

// One bit of 256 values: bit k of bits[j] is x[32 k + j]'s. Bit `shift` of the levels.
inline void AddOneBit(const uint8_t* __restrict bits, int shift, uint8_t* __restrict levels) {
  for (int k = 0; k < 8; ++k, levels += 32) {
    for (int j = 0; j < 32; ++j) {
      levels[j] |= static_cast<uint8_t>(((bits[j] >> k) & 1) << shift);
    }
  }
}
inline void JoinOneBit(const uint8_t* levels, int shift, uint8_t* bits) {
  std::memset(bits, 0, 32);
  for (int k = 0; k < 8; ++k, levels += 32) {
    for (int j = 0; j < 32; ++j) {
      bits[j] |= static_cast<uint8_t>(((levels[j] >> shift) & 1) << k);
    }
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K. Those of sub-blocks 0..3 are the
// low six bits of packed[k] and packed[k + 4]; those of 4..7 have their low
// nibbles together in packed[k + 4] (scale low, minimum high) and their upper two
// bits at the top of packed[k - 4] (scale) and packed[k] (minimum).
inline void UnpackScaleMins(const uint8_t packed[12], uint8_t scales[8], uint8_t mins[8]) {
  for (int k = 0; k < 4; ++k) {
    const uint8_t both = packed[k + 8];
    scales[k] = packed[k] & 63;
    mins[k] = packed[k + 4] & 63;
    scales[k + 4] = static_cast<uint8_t>((both & 15) | (packed[k] >> 6) << 4);
    mins[k + 4] = static_cast<uint8_t>((both >> 4) | (packed[k + 4] >> 6) << 4);
  }
}
// REQUIRES: all below 64.
inline void PackScaleMins(const uint8_t scales[8], const uint8_t mins[8], uint8_t packed[12]) {
  for (int k = 0; k < 4; ++k) {
    packed[k] = static_cast<uint8_t>(scales[k] | (scales[k + 4] >> 4) << 6);
    packed[k + 4] = static_cast<uint8_t>(mins[k] | (mins[k + 4] >> 4) << 6);
    packed[k + 8] = static_cast<uint8_t>((scales[k + 4] & 15) | (mins[k + 4] & 15) << 4);
  }
}

// --- the types --------------------------------------------------------------------

// Of each type: kFormat; kValues of a block; Block; Read(block, b, parts), which sets the
// parts of its values, the first of which is value 32 b there; and, where the type can be
// encoded, Write(parts, block), the reverse of Read(block, 0, parts).
template <DType kType>
struct Quantized;

// Blocks of 32: a scale, perhaps a minimum, perhaps fifth bits, and levels: one run of
// nibbles, or signed bytes.
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
          .scales = ScaleForm::kE8M0, .bits = 4, .table = LevelTable::kMxfp4, .offset_shift = 4}> {
};

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
    // Scale k, plus 32, has its lower four bits in nibble k / 8 of scales[k % 8], and its
    // upper two at bit 2 (k / 4) of scales[8 + k % 4].
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
    // Of scale k, plus 32: its upper two bits are bits 2 k, 2 k + 1, the lower four
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

// Levels 0..2 with one scale, which is repeated for its parts.
struct Ternary {
  static constexpr Format kFormat = {.scales = ScaleForm::kF16, .bits = 2, .offset_shift = 0};
  static constexpr int kValues = 256;
  static void SetScale(uint16_t d, BlockParts* parts) {
    for (uint16_t& scale : parts->scale16) scale = d;
  }
};

template <>
struct Quantized<DType::kTQ1_0> : Ternary {
  // A byte b holds up to five base-3 digits. It stands for the fraction b / 256 rounded up;
  // its digit k (0 first) is the k-th after the point in base 3: ((b * 3^k mod 256) * 3) / 256.
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t qs[48];  // x[32 k + j]: digit k of qs[j]; x[160 + 16 k + j]: digit k of qs[32 + j]
    uint8_t qh[4];   // x[240 + 4 k + j]: digit k of qh[j], k = 0..3
    uint16_t d;
  };
  // Digits 0 ... kDigits - 1 of kBytes bytes.
  template <int kBytes, int kDigits>
  static void AddDigits(const uint8_t* __restrict bytes, uint8_t* __restrict levels) {
    for (int k = 0, power = 1; k < kDigits; ++k, power *= 3, levels += kBytes) {
      for (int j = 0; j < kBytes; ++j) {
        const auto rest = static_cast<uint8_t>(bytes[j] * power);
        levels[j] = static_cast<uint8_t>((rest * 3) >> 8);
      }
    }
  }
  static void Read(const Block& block, int, BlockParts* parts) {
    AddDigits<32, 5>(block.qs, parts->levels);
    AddDigits<16, 5>(block.qs + 32, parts->levels + 160);
    AddDigits<4, 4>(block.qh, parts->levels + 240);
    SetScale(block.d, parts);
  }
};

template <>
struct Quantized<DType::kTQ2_0> : Ternary {
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t qs[64];
    uint16_t d;
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    std::memset(parts->levels, 0, 256);
    AddTwoBits(block.qs, 0, parts->levels);
    SetScale(block.d, parts);
  }
};

// The block at any address.
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
             DType::kMXFP4, DType::kTQ1_0, DType::kTQ2_0>;

// Calls fn.operator()<T>() for that quantized type which `type` is; false where it is none.
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

#endif  // WEFT_KERNELS_QUANTS_QUANT_TYPES_H_
