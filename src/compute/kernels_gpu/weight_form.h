// The layout of weights on a device.
//
// Quantized weights are stored in units of 32 inputs of one output, four of which are a chunk, and
// in bands of 16 outputs: chunk 0 of all 16, then chunk 1 ... Missing outputs of the last band and
// missing units of the last chunk are zeros.
//
// A unit is `bits` words of levels: planes of 4, 2 and 1 bits, from the low bits of a level to the
// high ones. With value 4 g + j being byte j of group g (g = 0..7):
//   4-bit plane, 4 words: word p has group p in its low nibbles, group p + 4 in the high ones
//   2-bit plane, 2 words: word p has groups 4 p ... 4 p + 3, the first in the lowest bits
//   1-bit plane, 1 word:  bit g of every byte is group g's
//   8 bits, 8 words:      signed, as they are
// A band's chunk has word 0 of output 0's four units, then of output 1's ...; then word 1 of all.
// Separate arrays, also in bands, hold `kMetaBytes` bytes of scales per unit, those of a chunk's
// four units after each other, and, for super-blocks, a half (two with minima) per 256 inputs. So a
// lane loads 16 bytes of levels at a time, and the lanes of a warp, which have adjacent outputs,
// adjacent ones: in products of one row (matmul_one_device.h) and in tensor-core tiles
// (matmul_tiles_device.h).
//
// Float weights are stored row by row, in units of 8 inputs. 16 units are a chunk of 128 inputs,
// which one lane computes; units with the same index in their chunks are adjacent (UnitPlace).
#ifndef WEFT_COMPUTE_KERNELS_GPU_WEIGHT_FORM_H_
#define WEFT_COMPUTE_KERNELS_GPU_WEIGHT_FORM_H_

#include <cstdint>

namespace weft::device {

inline constexpr int kChunkInputs = 128;
inline constexpr int kBlockInputs = 32;  // a unit of quantized weights, a block of activations
inline constexpr int kChunkUnits = kChunkInputs / kBlockInputs;
inline constexpr int kBandOutputs = 16;
inline constexpr int kFloatUnit = 8;  // a unit of float weights
inline constexpr int kSuperInputs = 256;

enum class Scales { kHalf, kExponent, kSuper };
enum class Levels { kLinear, kIq4, kFp4, kIq3, kOdd, kIq2, kIq1, kSigns };

// The meaning is that of compute/kernels/quants/quant_types.h: value = scale * (level - zero), or
// scale * level + min. kHalves: a scale (and minimum) per 16 inputs.
template <Scales kScaleForm, int kLevelBits, int kZeroLevel, bool kHasMins, bool kInHalves,
          Levels kLevelTable = Levels::kLinear, int kSuperShiftOf = 0, int kMinShiftOf = 0>
struct QuantForm {
  static constexpr Scales kScales = kScaleForm;
  static constexpr int kBits = kLevelBits;
  static constexpr bool kHasFour = kBits >= 4 && kBits < 8;  // the planes in use
  static constexpr bool kHasTwo = kBits == 2 || kBits == 3 || kBits == 6;
  static constexpr bool kHasOne = kBits == 1 || kBits == 3 || kBits == 5;
  static constexpr int kZero = kZeroLevel;
  static constexpr bool kMins = kHasMins;
  static constexpr bool kHalves = kInHalves;
  static constexpr Levels kTable = kLevelTable;
  static constexpr int kSuperShift = kSuperShiftOf;  // super scales are multiplied by 2^-shift
  static constexpr int kMinShift = kMinShiftOf;
  // kHalf: scale and min as halves; with kHalves two scales. kExponent: a byte. kSuper: a byte each
  // for scale and min; or two scales; with kHalves and minima two bytes of scale | min << 4.
  static constexpr int kMetaBytes = kScales == Scales::kHalf       ? (kMins || kHalves ? 4 : 2)
                                    : kScales == Scales::kExponent ? 1
                                    : kMins || kHalves             ? 2
                                                                   : 1;
  static constexpr int kSuperHalves = kScales == Scales::kSuper ? (kMins ? 2 : 1) : 0;
};

// All forms of quantized weights: X(name, form).
#define WEFT_QUANT_FORMS(X)                                                     \
  X(Q4_0, QuantForm<Scales::kHalf, 4, 8, false, false>)                         \
  X(Q4_1, QuantForm<Scales::kHalf, 4, 0, true, false>)                          \
  X(Q5_0, QuantForm<Scales::kHalf, 5, 16, false, false>)                        \
  X(Q5_1, QuantForm<Scales::kHalf, 5, 0, true, false>)                          \
  X(Q8_0, QuantForm<Scales::kHalf, 8, 0, false, false>)                         \
  X(Q2_K, QuantForm<Scales::kSuper, 2, 0, true, true>)                          \
  X(Q3_K, QuantForm<Scales::kSuper, 3, 4, false, true>)                         \
  X(Q4_K, QuantForm<Scales::kSuper, 4, 0, true, false>)                         \
  X(Q5_K, QuantForm<Scales::kSuper, 5, 0, true, false>)                         \
  X(Q6_K, QuantForm<Scales::kSuper, 6, 32, false, true>)                        \
  X(IQ4_NL, QuantForm<Scales::kHalf, 4, 0, false, false, Levels::kIq4>)         \
  X(IQ4_XS, QuantForm<Scales::kSuper, 4, 0, false, false, Levels::kIq4>)        \
  X(MXFP4, QuantForm<Scales::kExponent, 4, 0, false, false, Levels::kFp4>)      \
  X(NVFP4, QuantForm<Scales::kHalf, 4, 0, false, true, Levels::kFp4>)           \
  X(Ternary, QuantForm<Scales::kHalf, 2, 1, false, false>)                      \
  X(Q1_0, QuantForm<Scales::kHalf, 1, 0, false, false, Levels::kSigns>)         \
  X(IQ1_S, QuantForm<Scales::kSuper, 2, 0, true, false, Levels::kLinear, 0, 3>) \
  X(IQ1_M, QuantForm<Scales::kSuper, 3, 0, false, true, Levels::kIq1, 3>)       \
  X(IQ2_XXS, QuantForm<Scales::kSuper, 3, 0, false, false, Levels::kIq2, 3>)    \
  X(IQ2_S, QuantForm<Scales::kSuper, 3, 0, false, true, Levels::kIq2, 3>)       \
  X(IQ3_XXS, QuantForm<Scales::kSuper, 4, 0, false, false, Levels::kIq3, 2>)    \
  X(IQ3_S, QuantForm<Scales::kSuper, 4, 0, false, false, Levels::kOdd>)
// All forms of float weights: X(name).
#define WEFT_FLOAT_FORMS(X) X(F32) X(F16) X(BF16)

// The index, in a row of `n_units` units, of float unit `unit` of chunk `chunk`.
constexpr int UnitPlace(int chunk, int unit, int n_units, int units_per_chunk) {
  const int whole = n_units / units_per_chunk, rest = n_units % units_per_chunk;
  return unit * whole + (unit < rest ? unit : rest) + chunk;
}

constexpr int CeilDiv(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Of the levels of a chunk of a band, word `word` of output `output`'s first unit.
constexpr int LevelsAt(int word, int output) {
  return (word * kBandOutputs + output) * kChunkUnits;
}

// The number of rows in memory of a matrix of n_out outputs.
constexpr int64_t PaddedOutputs(int64_t n_out) {
  return int64_t{CeilDiv(n_out, kBandOutputs)} * kBandOutputs;
}

// A matrix of any form, on the device. The members of a stack follow each other; each ends with a
// band of its own.
struct MatrixView {
  const uint32_t* levels = nullptr;  // or the elements of float weights
  const uint8_t* meta = nullptr;
  const uint16_t* super = nullptr;
  int32_t n_in = 0;
  int32_t n_out = 0;  // per member

  constexpr int64_t RowOf(int member, int output) const {
    return member * PaddedOutputs(n_out) + output;
  }
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_WEIGHT_FORM_H_
