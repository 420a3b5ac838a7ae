// Fields that the blocks of several quantized types share: planes of bits and packed scales.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FIELDS_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FIELDS_H_

#include <cstdint>
#include <cstring>

namespace weft {

// 4-bit levels of runs of 2 kHalf values, kN in total: the low nibble of qs[j] belongs to x[j], the
// high one to x[j + kHalf].
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

// Fifth bits of 32 values: bit i of qh (as one little-endian number) belongs to x[i].
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

// Two bits of 256 values, in two runs of 128: x[128 r + 32 p + j] has bits 2 p, 2 p + 1 of qs[32 r
// + j], p = 0..3, j = 0..31. They become bits `shift` and above of the levels.
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

// One bit of 256 values: bit k of bits[j] belongs to x[32 k + j]. It becomes bit `shift` of the
// levels.
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

// The 6-bit scales and minima of Q4_K and Q5_K. Those of sub-blocks 0..3 are the low six bits of
// packed[k] and packed[k + 4]. Those of 4..7 have both low nibbles in packed[k + 4] (scale low,
// minimum high), and their upper two bits at the top of packed[k - 4] (scale) and packed[k]
// (minimum).
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

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FIELDS_H_
