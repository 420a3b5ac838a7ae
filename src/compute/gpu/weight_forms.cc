#include "compute/gpu/weight_forms.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/quants/quant_types.h"
#include "compute/kernels_gpu/weight_form.h"

namespace weft::gpu {

namespace {

using device::CeilDiv;
using device::UnitPlace;

#define WEFT_FLOAT_FORM_(name)                                                       \
  {                                                                                  \
    .multiply_one = &device::MultiplyOne##name, .multiply = &device::Multiply##name, \
    .embed = &device::Embed##name                                                    \
  }
#define WEFT_QUANT_FORM_(name)                                                                \
  {                                                                                           \
    &device::MultiplyOne##name, &device::Multiply##name, &device::MultiplyFew##name,          \
        &device::MultiplyTiles##name, &device::MultiplyMany##name, &device::Embed##name, true \
  }
#define WEFT_QUANT_CASE_(name)                                \
  case DType::k##name: {                                      \
    static const WeightForm of_type = WEFT_QUANT_FORM_(name); \
    return &of_type;                                          \
  }

int SizeOfFloat(DType type) {
  return type == DType::kF32 ? 4 : type == DType::kF16 || type == DType::kBF16 ? 2 : 0;
}

int MetaBytes(const Format& f) {
  if (f.scales == ScaleForm::kF16) return f.mins || f.halves ? 4 : 2;
  if (f.scales == ScaleForm::kE8M0) return 1;
  return f.mins || f.halves ? 2 : 1;
}

int SuperBytes(const Format& f) { return f.scales == ScaleForm::kSuper ? (f.mins ? 4 : 2) : 0; }

// Packs the levels of 32 values as planes, into f.bits words.
void PackLevels(const Format& f, const uint8_t* levels, uint32_t* words) {
  std::fill_n(words, f.bits, 0);
  for (int i = 0; i < device::kBlockInputs; ++i) {
    const int g = i / 4, byte = 8 * (i % 4);
    const uint32_t level = levels[i];
    if (f.bits == 8) {
      words[g] |= (level ^ 0x80) << byte;  // signed, as in the file
      continue;
    }
    uint32_t* plane = words;
    int shift = 0;
    if (HasFourBits(f)) {
      plane[g % 4] |= (level & 15) << (byte + 4 * (g / 4));
      plane += 4;
      shift = 4;
    }
    if (HasTwoBits(f)) {
      plane[g / 4] |= (level >> shift & 3) << (byte + 2 * (g % 4));
      plane += 2;
      shift += 2;
    }
    if (HasOneBit(f)) {
      plane[0] |= (level >> shift & 1) << (byte + g);
    }
  }
}

// Packs the scales of unit `b` of a block.
void PackMeta(const Format& f, const BlockParts& parts, int b, std::byte* meta) {
  if (f.scales == ScaleForm::kF16) {
    std::memcpy(meta, parts.scale16 + (f.halves ? 2 * b : b), f.halves ? 4 : 2);
    if (f.mins) std::memcpy(meta + 2, parts.min16 + b, 2);
  } else if (f.scales == ScaleForm::kE8M0) {
    meta[0] = std::byte{parts.scale8[b]};
  } else if (f.halves && f.mins) {
    for (int half = 0; half < 2; ++half) {
      const int s = 2 * b + half;
      meta[half] = static_cast<std::byte>(parts.scale8[s] | parts.min8[s] << 4);
    }
  } else if (f.halves) {
    std::memcpy(meta, parts.scale8 + 2 * b, 2);
  } else {
    meta[0] = std::byte{parts.scale8[b]};
    if (f.mins) meta[1] = std::byte{parts.min8[b]};
  }
}

template <DType kType>
void PackQuantized(const std::byte* row, int64_t n_in, int place, std::byte* levels,
                   std::byte* meta, std::byte* super) {
  using Type = Quantized<kType>;
  constexpr Format f = Type::kFormat;
  constexpr int kUnits = device::kChunkUnits;
  const auto in_band = [&](int64_t number) { return number * device::kBandOutputs + place; };
  // Stores a unit's parts.
  const auto put = [&](int64_t unit, const uint32_t* words, const std::byte* its_meta) {
    const int64_t chunk = unit / kUnits, of_chunk = unit % kUnits;
    std::byte* const to = levels + chunk * device::LevelsAt(f.bits, 0) * 4;
    for (int i = 0; i < f.bits; ++i) {
      std::memcpy(to + (device::LevelsAt(i, place) + of_chunk) * 4, words + i, 4);
    }
    std::memcpy(meta + (in_band(chunk) * kUnits + of_chunk) * MetaBytes(f), its_meta,
                static_cast<size_t>(MetaBytes(f)));
  };
  uint32_t words[8] = {};
  std::byte its_meta[4] = {};
  const int64_t n_units = n_in / device::kBlockInputs;
  for (int64_t unit = n_units; unit % kUnits != 0; ++unit) put(unit, words, its_meta);
  BlockParts parts;
  for (int64_t first = 0; first < n_in; first += Type::kValues) {
    Type::Read(BlockAt<kType>(row), 0, &parts);
    row += sizeof(typename Type::Block);
    for (int b = 0; b < Type::kValues / device::kBlockInputs; ++b) {
      PackLevels(f, parts.levels + b * device::kBlockInputs, words);
      PackMeta(f, parts, b, its_meta);
      put(first / device::kBlockInputs + b, words, its_meta);
    }
    if (f.scales == ScaleForm::kSuper) {
      std::byte* const to = super + in_band(first / device::kSuperInputs) * SuperBytes(f);
      std::memcpy(to, &parts.d, 2);
      if (f.mins) std::memcpy(to + 2, &parts.dmin, 2);
    }
  }
}

void PackFloats(int size, const std::byte* row, int64_t n_in, std::byte* to) {
  constexpr int kUnits = device::kChunkInputs / device::kFloatUnit;
  const int n_units = CeilDiv(n_in, device::kFloatUnit);
  for (int unit = 0; unit < n_units; ++unit) {
    const int64_t first = int64_t{unit} * device::kFloatUnit;
    const int64_t n = std::min<int64_t>(device::kFloatUnit, n_in - first);
    const int64_t unit_bytes = int64_t{device::kFloatUnit} * size;
    std::byte* const at =
        to + UnitPlace(unit / kUnits, unit % kUnits, n_units, kUnits) * unit_bytes;
    std::memset(at, 0, static_cast<size_t>(unit_bytes));
    std::memcpy(at, row + first * size, static_cast<size_t>(n * size));
  }
}

}  // namespace

const WeightForm* FormOf(DType type) {
  static const WeightForm f32 = WEFT_FLOAT_FORM_(F32);
  static const WeightForm f16 = WEFT_FLOAT_FORM_(F16);
  static const WeightForm bf16 = WEFT_FLOAT_FORM_(BF16);
  static const WeightForm ternary = WEFT_QUANT_FORM_(Ternary);
  switch (type) {
    case DType::kF32:
      return &f32;
    case DType::kF16:
      return &f16;
    case DType::kBF16:
      return &bf16;
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ2_0:
      return &ternary;
    case DType::kIQ2_XS:
      return FormOf(DType::kIQ2_S);
      WEFT_QUANT_CASE_(Q4_0)
      WEFT_QUANT_CASE_(Q4_1)
      WEFT_QUANT_CASE_(Q5_0)
      WEFT_QUANT_CASE_(Q5_1)
      WEFT_QUANT_CASE_(Q8_0)
      WEFT_QUANT_CASE_(Q2_K)
      WEFT_QUANT_CASE_(Q3_K)
      WEFT_QUANT_CASE_(Q4_K)
      WEFT_QUANT_CASE_(Q5_K)
      WEFT_QUANT_CASE_(Q6_K)
      WEFT_QUANT_CASE_(IQ4_NL)
      WEFT_QUANT_CASE_(IQ4_XS)
      WEFT_QUANT_CASE_(MXFP4)
      WEFT_QUANT_CASE_(NVFP4)
      WEFT_QUANT_CASE_(Q1_0)
      WEFT_QUANT_CASE_(IQ1_S)
      WEFT_QUANT_CASE_(IQ1_M)
      WEFT_QUANT_CASE_(IQ2_XXS)
      WEFT_QUANT_CASE_(IQ2_S)
      WEFT_QUANT_CASE_(IQ3_XXS)
      WEFT_QUANT_CASE_(IQ3_S)
    default:
      return nullptr;
  }
}

PartBytes BytesOfRow(DType type, int64_t n_in) {
  if (const int size = SizeOfFloat(type); size > 0) {
    return {int64_t{CeilDiv(n_in, device::kFloatUnit)} * device::kFloatUnit * size, 0, 0};
  }
  const Format& f = FormatOf(type);
  const int64_t n_units = int64_t{CeilDiv(n_in, device::kChunkInputs)} * device::kChunkUnits;
  return {n_units * f.bits * 4, n_units * MetaBytes(f),
          int64_t{CeilDiv(n_in, device::kSuperInputs)} * SuperBytes(f)};
}

void PackRow(DType type, const std::byte* row, int64_t n_in, int place, std::byte* levels,
             std::byte* meta, std::byte* super) {
  if (const int size = SizeOfFloat(type); size > 0) {
    return PackFloats(size, row, n_in, levels + place * BytesOfRow(type, n_in).levels);
  }
  WithQuantized(
      type, [&]<DType kType>() { PackQuantized<kType>(row, n_in, place, levels, meta, super); });
}

}  // namespace weft::gpu
