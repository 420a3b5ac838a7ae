// Reads weights in the forms of weight_form.h, for kernels.
#ifndef WEFT_COMPUTE_KERNELS_GPU_WEIGHTS_DEVICE_H_
#define WEFT_COMPUTE_KERNELS_GPU_WEIGHTS_DEVICE_H_

#include "compute/device/dialect.h"
#include "compute/kernels_gpu/weight_form.h"

namespace weft::device {

// The values of a table's levels, four of 16 per word, the first in the lowest byte.
WEFT_DEVICE uint32_t TableWord(Levels table, int i) {
  if (table == Levels::kIq4) {
    // -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113
    return i == 0 ? 0xBFAD9881u : i == 1 ? 0xF6EADDCFu : i == 2 ? 0x26190D01u : 0x71594535u;
  }
  if (table == Levels::kIq3) {
    // -62 -52 -44 -36, -28 -20 -12 -4, and these negated, backwards
    return i == 0 ? 0xDCD4CCC2u : i == 1 ? 0xFCF4ECE4u : i == 2 ? 0x1C140C04u : 0x3E342C24u;
  }
  if (table == Levels::kOdd) {
    // -15 -13 -11 -9 ... 15
    return i == 0 ? 0xF7F5F3F1u : i == 1 ? 0xFFFDFBF9u : i == 2 ? 0x07050301u : 0x0F0D0B09u;
  }
  if (table == Levels::kIq2) return i == 0 ? 0x08F8E7D5u : 0x00002B19u;  // -43 -25 -8 8, 25 43
  if (table == Levels::kIq1) return i == 0 ? 0x01FFF9F7u : 0x00000907u;  // -9 -7 -1 1, 7 9
  // Twice the values of FP4: 0 1 2 3, 4 6 8 12, and these negated.
  return i == 0 ? 0x03020100u : i == 1 ? 0x0C080604u : i == 2 ? 0xFDFEFF00u : 0xF4F8FAFCu;
}

// The table's entries for four levels, one byte each.
template <Levels kTable>
WEFT_DEVICE uint32_t LookUp(uint32_t levels) {
  if constexpr (kTable == Levels::kSigns) return ~(levels * 0xFEu);
  // The four levels in 16 bits, as PickBytes wants them.
  const uint32_t packed = PickBytes(levels | levels >> 4, 0, 0x4420);
  const uint32_t places = packed & 0x7777u;
  const uint32_t first = PickBytes(TableWord(kTable, 0), TableWord(kTable, 1), places);
  if constexpr (kTable == Levels::kIq2 || kTable == Levels::kIq1) return first;
  const uint32_t second = PickBytes(TableWord(kTable, 2), TableWord(kTable, 3), places);
  // Byte j of `first`, or of `second` where the level's highest bit is set.
  return PickBytes(first, second, 0x3210u | (packed & 0x8888u) >> 1);
}

// Group g of a unit: values 4 g ... 4 g + 3 as bytes; `words` are the unit's words.
template <typename Form>
WEFT_DEVICE uint32_t GroupOf(const uint32_t* words, int g) {
  if constexpr (Form::kBits == 8) return words[g];
  uint32_t levels = 0;
  [[maybe_unused]] int shift = 0;
  if constexpr (Form::kHasFour) {
    levels = (words[g % 4] >> (4 * (g / 4))) & 0x0F0F0F0Fu;
    words += 4;
    shift = 4;
  }
  if constexpr (Form::kHasTwo) {
    levels |= ((words[g / 4] >> (2 * (g % 4))) & 0x03030303u) << shift;
    words += 2;
    shift += 2;
  }
  if constexpr (Form::kHasOne) {
    levels |= ((words[0] >> g) & 0x01010101u) << shift;
  }
  if constexpr (Form::kTable != Levels::kLinear) return LookUp<Form::kTable>(levels);
  return levels;
}

WEFT_DEVICE constexpr float PowerOfHalf(int n) { return 1.0f / static_cast<float>(1 << n); }

// From 2^23 to 2^24, floats are the whole numbers, and their bits count them. A dot product of a
// block, of less than 2^22, begins with the bits of 1.5 * 2^23 (FirstDot): read as a float, it is
// kDotStart more than the sum. Conversions run at a quarter to half the rate of additions.
constexpr int32_t kDotBits = 0x4B400000;
constexpr float kDotStart = 12582912.0f;

// The scales of a unit. All are exact products of a half, an integer and a power of two, of at
// most 22 bits, so `start` is exact too, but for scales of 2^104 and more, which no model has.
struct UnitScales {
  float scale[2];  // one per half; only [0] for whole units
  float start[2];  // -kDotStart * scale: what a dot product began with
  float min;       // whole units: added to a value. Halves: the super-block's, to be negated
  int half_min[2];
};

// A byte of a word, and its exact product with a scale of few bits: scale * (2^23 + byte) less
// scale * 2^23, so that nothing is converted.
WEFT_DEVICE int ByteOf(uint32_t word, int i) { return static_cast<int>(word >> (8 * i) & 0xFF); }
WEFT_DEVICE float TimesByte(float scale, uint32_t word, int i) {
  const float byte = FloatOf(PickBytes(word, 0x4B000000u, 0x7440u | static_cast<uint32_t>(i)));
  return Fma(scale, byte, -8388608.0f * scale);
}

// The scales of a unit. `meta` has its bytes from `at` on; `super` has the halves of its 256
// inputs.
template <typename Form>
WEFT_DEVICE UnitScales ScalesOf(uint32_t meta, int at, uint32_t super) {
  UnitScales s = {{0.0f, 0.0f}, {0.0f, 0.0f}, 0.0f, {0, 0}};
  if constexpr (Form::kScales == Scales::kHalf) {
    const float first = HalfToFloat(static_cast<uint16_t>(meta >> (8 * at)));
    s.scale[0] = first;
    if constexpr (Form::kMins) s.min = HalfToFloat(static_cast<uint16_t>(meta >> 16));
    if constexpr (Form::kHalves) s.scale[1] = HalfToFloat(static_cast<uint16_t>(meta >> 16));
  } else if constexpr (Form::kScales == Scales::kExponent) {
    // 2^(e - 128): levels are twice their values. The two smallest are subnormal.
    const auto e = static_cast<uint32_t>(ByteOf(meta, at));
    s.scale[0] = FloatOf(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  } else {
    const float d = HalfToFloat(static_cast<uint16_t>(super)) * PowerOfHalf(Form::kSuperShift);
    const float min = HalfToFloat(static_cast<uint16_t>(super >> 16));
    if constexpr (!Form::kMins) {
      s.scale[0] = d * static_cast<float>(static_cast<int8_t>(ByteOf(meta, at)));
      if constexpr (Form::kHalves) {
        s.scale[1] = d * static_cast<float>(static_cast<int8_t>(ByteOf(meta, at + 1)));
      }
    } else if constexpr (!Form::kHalves) {
      s.scale[0] = TimesByte(d, meta, at);
      s.min = TimesByte(-(min * PowerOfHalf(Form::kMinShift)), meta, at + 1);
    } else {
      s.min = min;
      s.scale[0] = TimesByte(d, meta & 0x0F0F0F0Fu, at);
      s.scale[1] = TimesByte(d, meta & 0x0F0F0F0Fu, at + 1);
      s.half_min[0] = ByteOf(meta, at) >> 4;
      s.half_min[1] = ByteOf(meta, at + 1) >> 4;
    }
  }
  s.start[0] = -kDotStart * s.scale[0];
  s.start[1] = -kDotStart * s.scale[1];
  return s;
}

// The scales of a chunk of an output, being loaded.
template <typename Form>
struct ChunkScales {
  uint32_t meta[Form::kMetaBytes];  // of four units
  uint32_t super = 0;

  WEFT_DEVICE UnitScales Of(int unit) const {
    const int at = unit * Form::kMetaBytes;
    return ScalesOf<Form>(meta[at / 4], at % 4, super);
  }
};

// Where a chunk of an output of a quantized matrix is.
template <typename Form>
struct ChunkAddress {
  WEFT_DEVICE ChunkAddress(const MatrixView& m, int64_t row, int chunk) {
    const int64_t band = row / kBandOutputs;
    const int place = static_cast<int>(row % kBandOutputs);
    const int64_t its = band * CeilDiv(m.n_in, kChunkInputs) + chunk;
    words = m.levels + its * LevelsAt(Form::kBits, 0) + LevelsAt(0, place);
    meta = m.meta + (its * kBandOutputs + place) * kChunkUnits * Form::kMetaBytes;
    const int n_supers = CeilDiv(m.n_in, kSuperInputs);
    const int64_t its_super = band * n_supers + chunk * kChunkInputs / kSuperInputs;
    super = m.super + (its_super * kBandOutputs + place) * Form::kSuperHalves;
  }
  // Where a later chunk and output of the band is; `supers` is the distance in super-blocks. With
  // constants, it costs no instruction.
  WEFT_DEVICE ChunkAddress After(int chunks, int outputs, int supers = 0) const {
    ChunkAddress at = *this;
    at.words += chunks * LevelsAt(Form::kBits, 0) + LevelsAt(0, outputs);
    at.meta += (chunks * kBandOutputs + outputs) * kChunkUnits * Form::kMetaBytes;
    at.super += (supers * kBandOutputs + outputs) * Form::kSuperHalves;
    return at;
  }
  // A word of levels, of all four units.
  WEFT_DEVICE Words4 Levels(int word) const { return LoadWords4(words + LevelsAt(word, 0)); }
  WEFT_DEVICE ChunkScales<Form> LoadScales() const {
    ChunkScales<Form> scales;
    if constexpr (Form::kMetaBytes == 4) {
      const Words4 x = LoadWords4(meta);
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) scales.meta[i] = x.w[i];
    } else if constexpr (Form::kMetaBytes == 2) {
      const Words2 x = LoadWords2(meta);
      scales.meta[0] = x.w[0];
      scales.meta[1] = x.w[1];
    } else {
      scales.meta[0] = Load(reinterpret_cast<const uint32_t*>(meta));
    }
    if constexpr (Form::kSuperHalves == 1) scales.super = Load(super);
    if constexpr (Form::kSuperHalves == 2) {
      scales.super = Load(reinterpret_cast<const uint32_t*>(super));
    }
    return scales;
  }
  const uint32_t* words;
  const uint8_t* meta;
  const uint16_t* super;
};

// A chunk of an output's weights, being loaded. Units beyond the row's end are zeros.
template <typename Form>
struct ChunkWeights {
  Words4 levels[Form::kBits];
  ChunkScales<Form> scales;

  WEFT_DEVICE void Fetch(const ChunkAddress<Form>& at) {
    WEFT_UNROLL
    for (int word = 0; word < Form::kBits; ++word) levels[word] = at.Levels(word);
    scales = at.LoadScales();
  }
  // The words of a unit.
  WEFT_DEVICE void Unit(int unit, uint32_t* words) const {
    WEFT_UNROLL
    for (int word = 0; word < Form::kBits; ++word) words[word] = levels[word].w[unit];
  }
};

struct F32 {
  static constexpr int kBytes = 4;
  WEFT_DEVICE static float Get(const void* p, int64_t i) { return static_cast<const float*>(p)[i]; }
};
struct F16 {
  static constexpr int kBytes = 2;
  WEFT_DEVICE static float Get(const void* p, int64_t i) {
    return HalfToFloat(static_cast<const uint16_t*>(p)[i]);
  }
};
struct BF16 {
  static constexpr int kBytes = 2;
  WEFT_DEVICE static float Get(const void* p, int64_t i) {
    return BfloatToFloat(static_cast<const uint16_t*>(p)[i]);
  }
};

// The index of the first value of a unit of a float row, in elements from the matrix's beginning.
WEFT_DEVICE int64_t FloatUnitAt(const MatrixView& m, int64_t row, int chunk, int unit) {
  const int n_units = (m.n_in + kFloatUnit - 1) / kFloatUnit;
  const int place = UnitPlace(chunk, unit, n_units, kChunkInputs / kFloatUnit);
  return (row * n_units + place) * kFloatUnit;
}

}  // namespace weft::device

#endif  // WEFT_COMPUTE_KERNELS_GPU_WEIGHTS_DEVICE_H_
