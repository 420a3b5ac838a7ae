// The blocks of the quantized types as they lie in model files, field by field.
//
// Blocks in a file are packed without gaps and may begin at any address: copy one
// into a struct (std::memcpy) before using its fields. Numbers are little-endian;
// halves are IEEE binary16 bit patterns, see base/half.h. "x[i]" is value i of
// the block.
#ifndef WEFT_KERNELS_QUANT_BLOCKS_H_
#define WEFT_KERNELS_QUANT_BLOCKS_H_

#include <cstdint>

#include "base/dtype.h"

namespace weft {

// --- Blocks of 32 --------------------------------------------------------------
// 4-bit levels: the low nibble of qs[j] is x[j]'s, the high one x[j + 16]'s.
// Fifth bits: bit i of qh (as one little-endian number) is x[i]'s.

// Splits the 16 bytes of a run of 32 values into levels.
inline void SplitNibbles(const uint8_t qs[16], uint8_t levels[32]) {
  for (int j = 0; j < 16; ++j) {
    levels[j] = qs[j] & 15;
    levels[j + 16] = qs[j] >> 4;
  }
}

inline void AddFifthBits(const uint8_t qh[4], uint8_t levels[32]) {
  for (int i = 0; i < 32; ++i) {
    levels[i] |= static_cast<uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
  }
}

struct BlockQ4_0 {  // x = d * (level - 8)
  static constexpr DType kType = DType::kQ4_0;
  uint16_t d;      // half
  uint8_t qs[16];  // levels 0..15
};

struct BlockQ4_1 {  // x = d * level + m
  static constexpr DType kType = DType::kQ4_1;
  uint16_t d, m;  // halves
  uint8_t qs[16];
};

struct BlockQ5_0 {  // x = d * (level - 16)
  static constexpr DType kType = DType::kQ5_0;
  uint16_t d;      // half
  uint8_t qh[4];   // fifth bits
  uint8_t qs[16];  // low four bits
};

struct BlockQ5_1 {  // x = d * level + m
  static constexpr DType kType = DType::kQ5_1;
  uint16_t d, m;  // halves
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ8_0 {  // x = d * q
  static constexpr DType kType = DType::kQ8_0;
  uint16_t d;  // half
  int8_t q[32];
};

struct BlockIQ4_NL {  // x = d * kIQ4Values[level]
  static constexpr DType kType = DType::kIQ4_NL;
  uint16_t d;  // half
  uint8_t qs[16];
};

struct BlockMXFP4 {  // x = 2^(e - 128) * kFP4Values[level]
  static constexpr DType kType = DType::kMXFP4;
  uint8_t e;
  uint8_t qs[16];
};

// --- Blocks of 256 -------------------------------------------------------------
// Sub-blocks of 16 or 32 values have small integer scales (and minima), which
// share the halves d (and dmin).
//
// 2-bit levels lie in two runs of 128 values: x[128 r + 32 p + j] is bits
// 2 p, 2 p + 1 of qs[32 r + j], p = 0..3, j = 0..31.
// 4-bit levels of Q4_K and Q5_K lie in four runs of 64 values: x[64 r + j] is the low
// nibble of qs[32 r + j], x[64 r + 32 + j] the high one.

struct BlockQ2_K {  // x = (d * scale) * level - dmin * min, scales of 16 values
  static constexpr DType kType = DType::kQ2_K;
  uint8_t scales[16];  // scale in the low nibble, min in the high one
  uint8_t qs[64];      // levels 0..3
  uint16_t d, dmin;    // halves
};

struct BlockQ3_K {  // x = (d * scale) * (level - 4), scales of 16 values
  static constexpr DType kType = DType::kQ3_K;
  uint8_t hmask[32];   // third bits: bit k of hmask[j] is x[32 k + j]'s
  uint8_t qs[64];      // low two bits
  uint8_t scales[12];  // sixteen of 6 bits, see UnpackScalesQ3
  uint16_t d;          // half
};

struct BlockQ4_K {  // x = (d * scale) * level - dmin * min, scales of 32 values
  static constexpr DType kType = DType::kQ4_K;
  uint16_t d, dmin;    // halves
  uint8_t scales[12];  // eight scales and minima of 6 bits, see UnpackScaleMins
  uint8_t qs[128];     // levels 0..15
};

struct BlockQ5_K {  // x = (d * scale) * level - dmin * min, scales of 32 values
  static constexpr DType kType = DType::kQ5_K;
  uint16_t d, dmin;    // halves
  uint8_t scales[12];  // as in Q4_K
  uint8_t qh[32];      // fifth bits: bit k of qh[j] is x[32 k + j]'s
  uint8_t qs[128];     // low four bits
};

struct BlockQ6_K {  // x = (d * scale) * (level - 32), scales of 16 values
  static constexpr DType kType = DType::kQ6_K;
  // Two runs of 128 values: x[128 r + 64 h + j], j = 0..63, is nibble h of ql[64 r + j].
  uint8_t ql[128];
  uint8_t qh[64];  // upper two bits, laid out as 2-bit levels
  int8_t scales[16];
  uint16_t d;  // half
};

struct BlockIQ4_XS {  // x = (d * (scale - 32)) * kIQ4Values[level], scales of 32 values
  static constexpr DType kType = DType::kIQ4_XS;
  uint16_t d;             // half
  uint16_t scales_high;   // bits 2 k, 2 k + 1: upper two bits of scale k
  uint8_t scales_low[4];  // nibble k % 2 of scales_low[k / 2]: the lower four
  uint8_t qs[128];        // eight runs of 32 values, each as in the blocks of 32
};

struct BlockTQ1_0 {  // x = d * (digit - 1); a byte holds up to five base-3 digits
  static constexpr DType kType = DType::kTQ1_0;
  // A byte b stands for the fraction b / 256 rounded up; its digit k (0 first) is
  // the k-th after the point in base 3: ((b * 3^k mod 256) * 3) / 256.
  uint8_t qs[48];  // x[32 k + j]: digit k of qs[j]; x[160 + 16 k + j]: digit k of qs[32 + j]
  uint8_t qh[4];   // x[240 + 4 k + j]: digit k of qh[j], k = 0..3
  uint16_t d;      // half
};

struct BlockTQ2_0 {  // x = d * (level - 1)
  static constexpr DType kType = DType::kTQ2_0;
  uint8_t qs[64];  // 2-bit levels
  uint16_t d;      // half
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17 && sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);

// Levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Levels of MXFP4: twice the FP4 (E2M1) values, so that they are integers.
inline constexpr int8_t kFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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

// The scales of Q3_K, -32..31. Scale k, plus 32, has its lower four bits in nibble
// k / 8 of packed[k % 8], and its upper two at bit 2 (k / 4) of packed[8 + k % 4].
inline void UnpackScalesQ3(const uint8_t packed[12], int8_t scales[16]) {
  for (int k = 0; k < 16; ++k) {
    const int low = (packed[k % 8] >> (4 * (k / 8))) & 15;
    const int high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
    scales[k] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

// REQUIRES: all in -32..31.
inline void PackScalesQ3(const int8_t scales[16], uint8_t packed[12]) {
  for (int k = 0; k < 12; ++k) packed[k] = 0;
  for (int k = 0; k < 16; ++k) {
    const int scale = scales[k] + 32;
    packed[k % 8] |= static_cast<uint8_t>((scale & 15) << (4 * (k / 8)));
    packed[8 + k % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (k / 4)));
  }
}

// The scales of IQ4_XS, -32..31.
inline void UnpackScalesIQ4(const BlockIQ4_XS& block, int8_t scales[8]) {
  for (int k = 0; k < 8; ++k) {
    const int low = (block.scales_low[k / 2] >> (4 * (k % 2))) & 15;
    const int high = (block.scales_high >> (2 * k)) & 3;
    scales[k] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

// REQUIRES: all in -32..31.
inline void PackScalesIQ4(const int8_t scales[8], BlockIQ4_XS* block) {
  block->scales_high = 0;
  for (int k = 0; k < 4; ++k) block->scales_low[k] = 0;
  for (int k = 0; k < 8; ++k) {
    const int scale = scales[k] + 32;
    block->scales_low[k / 2] |= static_cast<uint8_t>((scale & 15) << (4 * (k % 2)));
    block->scales_high |= static_cast<uint16_t>((scale >> 4) << (2 * k));
  }
}

}  // namespace weft

#endif  // WEFT_KERNELS_QUANT_BLOCKS_H_
