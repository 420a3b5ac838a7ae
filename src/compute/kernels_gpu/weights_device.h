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
// block, of less than 2^22, begins with the bits of 1.5 * 2^23 (FirstDot): as a float it is the sum
// and kDotStart, without a conversion, of which devices do a quarter to a half as many as
// additions.
constexpr int32_t kDotBits = 0x4B400000;
constexpr float kDotStart = 12582912.0f;

// The scales of one unit. All are exact products of a half, an integer and a power of two, of at
// most 22 bits, so that `start` is exact too.
struct UnitScales {
  float scale[2];  // one per half; only [0] for whole units
  float start[2];  // -kDotStart * scale: what a dot product began with
  float min;       // whole units: added to a value. Halves: the super-block's, to be negated
  int half_min[2];
};

// Byte i of `meta`, and its exact product with a scale of few bits, both without a conversion:
// 2^23 and the byte, as the bits of a float, times the scale, less what 2^23 has added.
WEFT_DEVICE int ByteOf(uint32_t meta, int i) { return static_cast<int>(meta >> (8 * i) & 0xFF); }
WEFT_DEVICE float TimesByte(float scale, uint32_t meta, int i) {
  const float byte = FloatOf(PickBytes(meta, 0x4B000000u, 0x7440u | static_cast<uint32_t>(i)));
  return Fma(scale, byte, -8388608.0f * scale);
}

// Loads a unit's scale bytes.
template <int kBytes>
WEFT_DEVICE uint32_t LoadMeta(const uint8_t* from) {
  if constexpr (kBytes == 4) return Load(reinterpret_cast<const uint32_t*>(from));
  if constexpr (kBytes == 2) return Load(reinterpret_cast<const uint16_t*>(from));
  return Load(from);
}

template <typename Form>
WEFT_DEVICE UnitScales ScalesOf(uint32_t meta, const uint16_t* super) {
  UnitScales s = {{0.0f, 0.0f}, {0.0f, 0.0f}, 0.0f, {0, 0}};
  const auto low = static_cast<uint16_t>(meta), high = static_cast<uint16_t>(meta >> 16);
  if constexpr (Form::kScales == Scales::kHalf) {
    s.scale[0] = HalfToFloat(low);
    if constexpr (Form::kMins) s.min = HalfToFloat(high);
    if constexpr (Form::kHalves) s.scale[1] = HalfToFloat(high);
  } else if constexpr (Form::kScales == Scales::kExponent) {
    // 2^(e - 128): levels are twice their values. The two smallest are subnormal.
    const uint32_t e = ByteOf(meta, 0);
    s.scale[0] = FloatOf(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  } else {
    const float d = HalfToFloat(super[0]) * PowerOfHalf(Form::kSuperShift);
    if constexpr (!Form::kMins) {
      s.scale[0] = d * static_cast<float>(static_cast<int8_t>(ByteOf(meta, 0)));
      if constexpr (Form::kHalves)
        s.scale[1] = d * static_cast<float>(static_cast<int8_t>(ByteOf(meta, 1)));
    } else if constexpr (!Form::kHalves) {
      s.scale[0] = TimesByte(d, meta, 0);
      s.min = TimesByte(-(HalfToFloat(super[1]) * PowerOfHalf(Form::kMinShift)), meta, 1);
    } else {
      s.min = HalfToFloat(super[1]);
      s.scale[0] = TimesByte(d, meta & 0x0F0F, 0);
      s.scale[1] = TimesByte(d, meta & 0x0F0F, 1);
      s.half_min[0] = ByteOf(meta, 0) >> 4;
      s.half_min[1] = ByteOf(meta, 1) >> 4;
    }
  }
  s.start[0] = -kDotStart * s.scale[0];
  s.start[1] = -kDotStart * s.scale[1];
  return s;
}

// The addresses of a unit of a quantized row.
template <typename Form>
struct UnitAddress {
  WEFT_DEVICE UnitAddress(const MatrixView& m, int64_t row, int unit) {
    const int64_t band = row / kBandOutputs;
    const int place = static_cast<int>(row % kBandOutputs), n_units = m.n_in / kBlockInputs;
    const int64_t first = (band * n_units + unit) * kBandOutputs;
    words = m.levels + first * Form::kBits + place * kFirstWords;
    rest = m.levels + first * Form::kBits + kBandOutputs * kFirstWords + place * kRestWords;
    meta = m.meta + (first + place) * Form::kMetaBytes;
    const int n_supers = CeilDiv(m.n_in, kSuperInputs);
    const int64_t its_super = band * n_supers + unit * kBlockInputs / kSuperInputs;
    super = m.super + (its_super * kBandOutputs + place) * Form::kSuperHalves;
  }
  // The address of a later unit and output of the band, and how many times 256 inputs lie between
  // the beginnings of its 256 and of these. With constants, it costs no instruction.
  WEFT_DEVICE UnitAddress After(int units, int outputs, int supers = 0) const {
    UnitAddress at = *this;
    at.words += units * kBandOutputs * Form::kBits + outputs * kFirstWords;
    at.rest += units * kBandOutputs * Form::kBits + outputs * kRestWords;
    at.meta += (units * kBandOutputs + outputs) * Form::kMetaBytes;
    at.super += (supers * kBandOutputs + outputs) * Form::kSuperHalves;
    return at;
  }
  static constexpr int kFirstWords = FirstWords(Form::kBits);
  static constexpr int kRestWords = Form::kBits - kFirstWords;
  const uint32_t *words, *rest;  // of levels: the first four words, and the others
  const uint8_t* meta;
  const uint16_t* super;
};

// Loads contiguous words, in one access for 2 or 4 words.
template <int kWords>
WEFT_DEVICE void LoadWords(const uint32_t* from, uint32_t* words) {
  if constexpr (kWords == 4) {
    const Words4 x = LoadWords4(from);
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = x.w[i];
  } else if constexpr (kWords == 2) {
    const Words2 x = LoadWords2(from);
    words[0] = x.w[0];
    words[1] = x.w[1];
  } else {
    WEFT_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = Load(from + i);
  }
}
template <typename Form>
WEFT_DEVICE void LoadUnit(const UnitAddress<Form>& at, uint32_t* words) {
  LoadWords<UnitAddress<Form>::kFirstWords>(at.words, words);
  LoadWords<UnitAddress<Form>::kRestWords>(at.rest, words + UnitAddress<Form>::kFirstWords);
}

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
