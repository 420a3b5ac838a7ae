// The quantized types of one to three bits: signs, ternary numbers, and the IQ types, whose blocks
// refer to runs of values in codebooks.
//
// The IQ types are unpacked into indices of a table, of three or four bits. So they take more
// memory than in the file, but every kernel that multiplies levels can multiply them.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_FEW_BIT_TYPES_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_FEW_BIT_TYPES_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "compute/kernels/quants/codebooks.h"
#include "compute/kernels/quants/quant_fields.h"
#include "compute/kernels/quants/quant_format.h"

namespace weft {

// --- signs and ternary numbers ----------------------------------------------------

template <>
struct Quantized<DType::kQ1_0> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kF16, .bits = 1, .table = LevelTable::kSigns, .offset_shift = 0};
  static constexpr int kValues = 128;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t bits[16];  // x[8 j + i]: bit i of bits[j]
  };
  static void Read(const Block& block, int b, BlockParts* parts) {
    for (int i = 0; i < kValues; ++i) {
      parts->levels[32 * b + i] = (block.bits[i / 8] >> (i % 8)) & 1;
    }
    for (int s = 0; s < 4; ++s) parts->scale16[b + s] = block.d;
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.scale16[0];
    std::memset(block->bits, 0, sizeof(block->bits));
    for (int i = 0; i < kValues; ++i) {
      block->bits[i / 8] |= static_cast<uint8_t>((parts.levels[i] & 1) << (i % 8));
    }
  }
};

template <>
struct Quantized<DType::kQ2_0> {
  static constexpr Format kFormat = {.scales = ScaleForm::kF16, .bits = 2, .offset_shift = 0};
  static constexpr int kValues = 64;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t pairs[16];  // x[4 j + i]: bits 2 i, 2 i + 1 of pairs[j]
  };
  static void Read(const Block& block, int b, BlockParts* parts) {
    for (int i = 0; i < kValues; ++i) {
      parts->levels[32 * b + i] = (block.pairs[i / 4] >> (2 * (i % 4))) & 3;
    }
    for (int s = 0; s < 2; ++s) parts->scale16[b + s] = block.d;
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.scale16[0];
    std::memset(block->pairs, 0, sizeof(block->pairs));
    for (int i = 0; i < kValues; ++i) {
      block->pairs[i / 4] |= static_cast<uint8_t>((parts.levels[i] & 3) << (2 * (i % 4)));
    }
  }
};

// Levels 0..2 with one scale, which is repeated for all parts.
struct Ternary {
  static constexpr Format kFormat = {.scales = ScaleForm::kF16, .bits = 2, .offset_shift = 0};
  static constexpr int kValues = 256;
  static void SetScale(uint16_t d, BlockParts* parts) {
    for (uint16_t& scale : parts->scale16) scale = d;
  }
};

template <>
struct Quantized<DType::kTQ1_0> : Ternary {
  // A byte b holds up to five base-3 digits. It stands for the fraction b / 256, rounded up; digit
  // k (from 0) is digit k after the point in base 3: ((b * 3^k mod 256) * 3) / 256.
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t qs[48];  // x[32 k + j]: digit k of qs[j]; x[160 + 16 k + j]: digit k of qs[32 + j]
    uint8_t qh[4];   // x[240 + 4 k + j]: digit k of qh[j], k = 0..3
    uint16_t d;
  };
  // Unpacks digits 0 ... kDigits - 1 of kBytes bytes.
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
  template <int kBytes, int kDigits>
  static void JoinDigits(const uint8_t* levels, uint8_t* bytes) {
    for (int j = 0; j < kBytes; ++j) {
      int number = 0;  // of five digits
      for (int k = 0; k < 5; ++k) {
        number = 3 * number + (k < kDigits ? levels[k * kBytes + j] : 0);
      }
      bytes[j] = static_cast<uint8_t>((number * 256 + 242) / 243);
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    JoinDigits<32, 5>(parts.levels, block->qs);
    JoinDigits<16, 5>(parts.levels + 160, block->qs + 32);
    JoinDigits<4, 4>(parts.levels + 240, block->qh);
    block->d = parts.scale16[0];
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
  static void Write(const BlockParts& parts, Block* block) {
    JoinTwoBits(parts.levels, 0, block->qs);
    block->d = parts.scale16[0];
  }
};

// --- codebooks --------------------------------------------------------------------

// The index in kIQ2Values of a magnitude with a sign.
inline uint8_t SignedOf3(uint32_t magnitude, uint32_t is_negative) {
  return static_cast<uint8_t>(is_negative ? 2 - magnitude : 3 + magnitude);
}
// The same for kIQ3Values or kOddValues.
inline uint8_t SignedOf8(uint32_t magnitude, uint32_t is_negative) {
  return static_cast<uint8_t>(is_negative ? 7 - magnitude : 8 + magnitude);
}

// Seven stored signs, and an eighth that makes the number of negative ones even.
inline uint32_t EvenSigns(uint32_t seven) {
  return (seven & 127) | (std::popcount(seven & 127) & 1) << 7;
}

// Unpacks an entry of eight 2-bit magnitudes.
inline void Add8Of3(uint32_t code, uint32_t signs, uint8_t* levels) {
  for (int i = 0; i < 8; ++i) levels[i] = SignedOf3(code >> (2 * i) & 3, signs >> i & 1);
}
// Unpacks an entry of four 3-bit magnitudes.
inline void Add4Of8(uint32_t code, uint32_t signs, uint8_t* levels) {
  for (int i = 0; i < 4; ++i) levels[i] = SignedOf8(code >> (3 * i) & 7, signs >> i & 1);
}

// The reverse: where the entry of these levels is in a codebook. REQUIRES: it is there.
template <int kN>
inline uint32_t FindCode(const uint16_t (&codes)[kN], uint32_t code) {
  return static_cast<uint32_t>(std::lower_bound(codes, codes + kN, code) - codes);
}
template <int kN>
inline uint32_t Find8Of3(const uint16_t (&codes)[kN], const uint8_t* levels) {
  uint32_t code = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t magnitude = levels[i] < 3 ? 2u - levels[i] : levels[i] - 3u;
    code |= magnitude << (2 * i);
  }
  return FindCode(codes, code);
}
template <int kN>
inline uint32_t Find4Of8(const uint16_t (&codes)[kN], const uint8_t* levels) {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t magnitude = levels[i] < 8 ? 7u - levels[i] : levels[i] - 8u;
    code |= magnitude << (3 * i);
  }
  return FindCode(codes, code);
}
// The signs of eight values: a bit is set if the level is below `zero`.
inline uint32_t SignsOfLevels(const uint8_t* levels, int zero) {
  uint32_t signs = 0;
  for (int i = 0; i < 8; ++i) signs |= static_cast<uint32_t>(levels[i] < zero) << i;
  return signs;
}

// The stored scales s stand for d * (2 s + 1) / 2^super_shift.
inline uint8_t OddScale(uint32_t stored) { return static_cast<uint8_t>(2 * stored + 1); }

// Two 4-bit scales per byte, the lower nibble first.
template <int kBytes>
inline void ReadOddScales(const uint8_t (&scales)[kBytes], BlockParts* parts) {
  for (int s = 0; s < 2 * kBytes; ++s) {
    parts->scale8[s] = OddScale(scales[s / 2] >> (4 * (s % 2)) & 15);
  }
}
template <int kBytes>
inline void WriteOddScales(const BlockParts& parts, uint8_t (*scales)[kBytes]) {
  for (int s = 0; s < kBytes; ++s) {
    (*scales)[s] =
        static_cast<uint8_t>(parts.scale8[2 * s] >> 1 | parts.scale8[2 * s + 1] >> 1 << 4);
  }
}

struct Codebook2 {
  static constexpr int kValues = 256;
  static constexpr Format FormatOf(bool halves) {
    return {.scales = ScaleForm::kSuper,
            .bits = 3,
            .table = LevelTable::kIq2,
            .halves = halves,
            .offset_shift = 6,
            .scale_bits = 6,
            .super_shift = 3};
  }
};

template <>
struct Quantized<DType::kIQ2_XXS> : Codebook2 {
  static constexpr Format kFormat = FormatOf(false);
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    struct [[gnu::packed]] {
      uint8_t codes[4];  // per 8 values
      uint32_t rest;     // four times seven signs, then a 4-bit scale
    } parts[8];
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int k = 0; k < 8; ++k) {
      const uint32_t rest = block.parts[k].rest;
      for (int j = 0; j < 4; ++j) {
        Add8Of3(kIq2XxsCodes[block.parts[k].codes[j]], EvenSigns(rest >> (7 * j)),
                parts->levels + 32 * k + 8 * j);
      }
      parts->scale8[k] = OddScale(rest >> 28);
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    for (int k = 0; k < 8; ++k) {
      uint32_t rest = static_cast<uint32_t>(parts.scale8[k] >> 1) << 28;
      for (int j = 0; j < 4; ++j) {
        const uint8_t* const levels = parts.levels + 32 * k + 8 * j;
        block->parts[k].codes[j] = static_cast<uint8_t>(Find8Of3(kIq2XxsCodes, levels));
        rest |= (SignsOfLevels(levels, 3) & 127) << (7 * j);
      }
      block->parts[k].rest = rest;
    }
  }
};

template <>
struct Quantized<DType::kIQ2_XS> : Codebook2 {
  static constexpr Format kFormat = FormatOf(true);
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint16_t codes[32];  // per 8 values: 9 bits, and seven signs
    uint8_t scales[8];   // see ReadOddScales
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int j = 0; j < 32; ++j) {
      const uint32_t code = block.codes[j];
      Add8Of3(kIq2XsCodes[code & 511], EvenSigns(code >> 9), parts->levels + 8 * j);
    }
    ReadOddScales(block.scales, parts);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    for (int j = 0; j < 32; ++j) {
      const uint8_t* const levels = parts.levels + 8 * j;
      block->codes[j] = static_cast<uint16_t>(Find8Of3(kIq2XsCodes, levels) |
                                              (SignsOfLevels(levels, 3) & 127) << 9);
    }
    WriteOddScales(parts, &block->scales);
  }
};

template <>
struct Quantized<DType::kIQ2_S> : Codebook2 {
  static constexpr Format kFormat = FormatOf(true);
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t codes[32];  // the low 8 bits, per 8 values
    uint8_t signs[32];
    uint8_t high[8];    // upper bits of code 4 k + j: bits 2 j, 2 j + 1 of high[k]
    uint8_t scales[8];  // see ReadOddScales
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int j = 0; j < 32; ++j) {
      const uint32_t high = block.high[j / 4] >> (2 * (j % 4)) & 3;
      Add8Of3(kIq2SCodes[block.codes[j] | high << 8], block.signs[j], parts->levels + 8 * j);
    }
    ReadOddScales(block.scales, parts);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    std::memset(block->high, 0, sizeof(block->high));
    for (int j = 0; j < 32; ++j) {
      const uint8_t* const levels = parts.levels + 8 * j;
      const uint32_t code = Find8Of3(kIq2SCodes, levels);
      block->codes[j] = static_cast<uint8_t>(code);
      block->high[j / 4] |= static_cast<uint8_t>(code >> 8 << (2 * (j % 4)));
      block->signs[j] = static_cast<uint8_t>(SignsOfLevels(levels, 3));
    }
    WriteOddScales(parts, &block->scales);
  }
};

template <>
struct Quantized<DType::kIQ3_XXS> {
  static constexpr Format kFormat = {.scales = ScaleForm::kSuper,
                                     .bits = 4,
                                     .table = LevelTable::kIq3,
                                     .offset_shift = 6,
                                     .scale_bits = 6,
                                     .super_shift = 2};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t codes[64];  // per 4 values
    uint32_t rest[8];   // per 32 values: four times seven signs, then a 4-bit scale
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int j = 0; j < 32; ++j) {
      const uint32_t rest = block.rest[j / 4], signs = EvenSigns(rest >> (7 * (j % 4)));
      uint8_t* const levels = parts->levels + 8 * j;
      Add4Of8(kIq3XxsCodes[block.codes[2 * j]], signs, levels);
      Add4Of8(kIq3XxsCodes[block.codes[2 * j + 1]], signs >> 4, levels + 4);
      parts->scale8[j / 4] = OddScale(rest >> 28);
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    for (int k = 0; k < 8; ++k) {
      uint32_t rest = static_cast<uint32_t>(parts.scale8[k] >> 1) << 28;
      for (int j = 0; j < 4; ++j) {
        rest |= (SignsOfLevels(parts.levels + 32 * k + 8 * j, 8) & 127) << (7 * j);
      }
      block->rest[k] = rest;
    }
    for (int j = 0; j < 64; ++j) {
      block->codes[j] = static_cast<uint8_t>(Find4Of8(kIq3XxsCodes, parts.levels + 4 * j));
    }
  }
};

template <>
struct Quantized<DType::kIQ3_S> {
  static constexpr Format kFormat = {.scales = ScaleForm::kSuper,
                                     .bits = 4,
                                     .table = LevelTable::kOdd,
                                     .offset_shift = 4,
                                     .scale_bits = 6};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t codes[64];  // the low 8 bits, per 4 values
    uint8_t high[8];    // the ninth bit of code 8 k + j: bit j of high[k]
    uint8_t signs[32];
    uint8_t scales[4];  // see ReadOddScales
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = block.d;
    for (int j = 0; j < 64; ++j) {
      const uint32_t high = block.high[j / 8] >> (j % 8) & 1;
      Add4Of8(kIq3SCodes[block.codes[j] | high << 8], block.signs[j / 2] >> (4 * (j % 2)),
              parts->levels + 4 * j);
    }
    ReadOddScales(block.scales, parts);
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    std::memset(block->high, 0, sizeof(block->high));
    for (int j = 0; j < 64; ++j) {
      const uint32_t code = Find4Of8(kIq3SCodes, parts.levels + 4 * j);
      block->codes[j] = static_cast<uint8_t>(code);
      block->high[j / 8] |= static_cast<uint8_t>(code >> 8 << (j % 8));
    }
    for (int j = 0; j < 32; ++j) {
      block->signs[j] = static_cast<uint8_t>(SignsOfLevels(parts.levels + 8 * j, 8));
    }
    WriteOddScales(parts, &block->scales);
  }
};

// -1, 0 or 1, plus or minus an eighth, whose sign is shared by 32 values: levels 0..2 and a minimum
// of -7 or -9 eighths.
template <>
struct Quantized<DType::kIQ1_S> {
  static constexpr Format kFormat = {
      .scales = ScaleForm::kSuper, .bits = 2, .mins = true, .scale_bits = 4, .min_shift = 3};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint16_t d;
    uint8_t codes[32];  // the low 8 bits, per 8 values
    uint16_t rest[8];   // per 32 values: four times three upper bits, a 3-bit scale, a sign
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    parts->d = parts->dmin = block.d;
    for (int j = 0; j < 32; ++j) {
      const uint32_t high = block.rest[j / 4] >> (3 * (j % 4)) & 7;
      const uint32_t code = kIq1Codes[block.codes[j] | high << 8];
      for (int i = 0; i < 8; ++i) parts->levels[8 * j + i] = code >> (2 * i) & 3;
    }
    for (int k = 0; k < 8; ++k) {
      const uint32_t rest = block.rest[k];
      parts->scale8[k] = OddScale(rest >> 12 & 7);
      parts->min8[k] = static_cast<uint8_t>(parts->scale8[k] * (rest >> 15 ? 9 : 7));
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    block->d = parts.d;
    for (int k = 0; k < 8; ++k) {
      const uint32_t scale = parts.scale8[k];
      uint32_t rest = scale >> 1 << 12 | static_cast<uint32_t>(parts.min8[k] == 9 * scale) << 15;
      for (int j = 0; j < 4; ++j) {
        uint32_t code = 0;
        for (int i = 0; i < 8; ++i) {
          code |= static_cast<uint32_t>(parts.levels[32 * k + 8 * j + i]) << (2 * i);
        }
        const uint32_t index = FindCode(kIq1Codes, code);
        block->codes[4 * k + j] = static_cast<uint8_t>(index);
        rest |= index >> 8 << (3 * j);
      }
      block->rest[k] = static_cast<uint16_t>(rest);
    }
  }
};

// The same with a sign per 8 values: indices of kIQ1Values.
template <>
struct Quantized<DType::kIQ1_M> {
  static constexpr Format kFormat = {.scales = ScaleForm::kSuper,
                                     .bits = 3,
                                     .table = LevelTable::kIq1,
                                     .halves = true,
                                     .offset_shift = 4,
                                     .scale_bits = 5,
                                     .super_shift = 3};
  static constexpr int kValues = 256;
  struct [[gnu::packed, gnu::may_alias]] Block {
    uint8_t codes[32];   // the low 8 bits, per 8 values
    uint8_t high[16];    // per two codes, a nibble each: three upper bits, and the sign
    uint16_t scales[4];  // four of 3 bits each, then a nibble of d; the first has d's lowest nibble
  };
  static void Read(const Block& block, int, BlockParts* parts) {
    uint32_t d = 0;
    for (int k = 0; k < 4; ++k) d |= static_cast<uint32_t>(block.scales[k] >> 12) << (4 * k);
    parts->d = static_cast<uint16_t>(d);
    for (int j = 0; j < 32; ++j) {
      const uint32_t high = block.high[j / 2] >> (4 * (j % 2));
      const uint32_t code = kIq1Codes[block.codes[j] | (high & 7) << 8];
      const uint32_t is_positive = ~high >> 3 & 1;
      for (int i = 0; i < 8; ++i) {
        parts->levels[8 * j + i] = static_cast<uint8_t>(2 * (code >> (2 * i) & 3) + is_positive);
      }
    }
    for (int s = 0; s < 16; ++s) {
      parts->scale8[s] = OddScale(block.scales[s / 4] >> (3 * (s % 4)) & 7);
    }
  }
  static void Write(const BlockParts& parts, Block* block) {
    std::memset(block->high, 0, sizeof(block->high));
    for (int j = 0; j < 32; ++j) {
      const uint8_t* const levels = parts.levels + 8 * j;
      uint32_t code = 0;
      for (int i = 0; i < 8; ++i) code |= static_cast<uint32_t>(levels[i] >> 1) << (2 * i);
      const uint32_t index = FindCode(kIq1Codes, code), is_negative = ~levels[0] & 1;
      block->codes[j] = static_cast<uint8_t>(index);
      block->high[j / 2] |= static_cast<uint8_t>((index >> 8 | is_negative << 3) << (4 * (j % 2)));
    }
    for (int k = 0; k < 4; ++k) {
      uint32_t scales = (parts.d >> (4 * k) & 15u) << 12;
      for (int s = 0; s < 4; ++s) scales |= (parts.scale8[4 * k + s] >> 1 & 7u) << (3 * s);
      block->scales[k] = static_cast<uint16_t>(scales);
    }
  }
};

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_FEW_BIT_TYPES_H_
