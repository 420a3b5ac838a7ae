// The meaning of the numbers in a block of quantized weights: the single description from which
// decoding, packing and the kernels of every backend are derived.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FORMAT_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FORMAT_H_

#include <cstdint>

#include "base/dtype.h"

namespace weft {

enum class ScaleForm : uint8_t {
  kFloatWeights,  // not quantized
  kF16,           // a half per 32 values
  kE8M0,          // an exponent e per 32 values: 2^(e - 128)
  kSuper,         // d * (a small integer), d a half per 256 values
};
enum class LevelTable : uint8_t { kNone, kIq4, kFp4, kIq3, kOdd, kIq2, kIq1, kSigns };

// A value is scale * (level - zero), or scale * level + min if the type has minima, which in kSuper
// are -dmin * (a small integer). With a table, it is scale * (the level's entry).
struct Format {
  ScaleForm scales = ScaleForm::kFloatWeights;
  int bits = 0;  // per packed level
  LevelTable table = LevelTable::kNone;
  bool halves = false;  // a scale (and a minimum) per 16 inputs instead of 32
  bool mins = false;    // weight = scale * level + min
  // Without minima, zero is 1 << offset_shift. With a table, adding that makes all entries
  // unsigned.
  int offset_shift = -1;
  int scale_bits = 0;   // of kSuper's integer scales: signed, or unsigned if there are minima
  int super_shift = 0;  // in kSuper, d and dmin are multiplied by 2^-shift
  int min_shift = 0;
};

// The bit planes in which levels are packed; levels of 8 bits have none.
static constexpr bool HasFourBits(const Format& f) { return f.bits >= 4 && f.bits < 8; }
static constexpr bool HasTwoBits(const Format& f) {
  return f.bits == 2 || f.bits == 3 || f.bits == 6;
}
static constexpr bool HasOneBit(const Format& f) {
  return f.bits == 1 || f.bits == 3 || f.bits == 5;
}

constexpr float PowerOfHalf(int n) { return 1.0f / static_cast<float>(1 << n); }

// The values of the levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// The same for MXFP4 and NVFP4: twice the FP4 (E2M1) values, so that they are integers.
inline constexpr int8_t kFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr int8_t kIQ3Values[16] = {-62, -52, -44, -36, -28, -20, -12, -4,
                                          4,   12,  20,  28,  36,  44,  52,  62};  // IQ3_XXS
inline constexpr int8_t kOddValues[16] = {-15, -13, -11, -9, -7, -5, -3, -1,
                                          1,   3,   5,   7,  9,  11, 13, 15};  // IQ3_S
inline constexpr int8_t kIQ2Values[16] = {-43, -25, -8, 8, 25, 43};            // all IQ2 types
// IQ1_M: eight times (-1, 0 or 1, plus or minus an eighth).
inline constexpr int8_t kIQ1Values[16] = {-9, -7, -1, 1, 7, 9};
inline constexpr int8_t kSignValues[16] = {-1, 1};  // Q1_0

// REQUIRES: not kNone.
constexpr const int8_t (&ValuesOf(LevelTable table))[16] {
  switch (table) {
    case LevelTable::kFp4:
      return kFP4Values;
    case LevelTable::kIq3:
      return kIQ3Values;
    case LevelTable::kOdd:
      return kOddValues;
    case LevelTable::kIq2:
      return kIQ2Values;
    case LevelTable::kIq1:
      return kIQ1Values;
    case LevelTable::kSigns:
      return kSignValues;
    default:
      return kIQ4Values;
  }
}

// The levels and scales of up to 256 values: of one block, or of several blocks of 32.
struct BlockParts {
  uint8_t levels[256];   // unsigned, or indices of a table
  uint16_t scale16[16];  // kF16, per 32 or 16 values
  uint16_t min16[8];
  uint8_t scale8[16];  // kE8M0 and kSuper, per 32 or 16 values
  uint8_t min8[16];
  uint16_t d, dmin;  // kSuper
};

// A specialization for each type has: kFormat; kValues, the values per block; Block; Read(block, b,
// parts), which sets the parts of the block's values, beginning with value 32 b of `parts`; and, if
// the type can be encoded, Write(parts, block), the reverse of Read(block, 0, parts).
template <DType kType>
struct Quantized;

}  // namespace weft

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANT_FORMAT_H_
