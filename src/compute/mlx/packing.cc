#include "compute/mlx/packing.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/quants/quant_types.h"

namespace weft::mlx {

namespace {

constexpr int kGroup = 32;

constexpr Packing PackingOf(const Format& format) {
  if (format.scales == ScaleForm::kFloatWeights) return {};
  if (format.scales == ScaleForm::kE8M0) return {.form = Form::kMxfp4, .bits = 4};
  return {.form = Form::kAffine,
          .bits = format.table != LevelTable::kNone ? 8 : format.bits,
          .spread = format.halves};
}

// Level 0 stands for the lowest entry of a table.
constexpr int LowestOf(LevelTable table) {
  int lowest = 0;
  for (const int8_t value : ValuesOf(table)) lowest = std::min<int>(lowest, value);
  return lowest;
}

// Writes levels one after the other, lowest bits first.
class LevelWriter {
 public:
  LevelWriter(int bits, uint32_t* words) : bits_(bits), words_(words) {}
  void Put(uint32_t level) {
    pending_ |= uint64_t{level} << n_pending_;
    n_pending_ += bits_;
    if (n_pending_ < 32) return;
    *words_++ = static_cast<uint32_t>(pending_);
    pending_ >>= 32;
    n_pending_ -= 32;
  }

 private:
  const int bits_;
  uint32_t* words_;
  uint64_t pending_ = 0;
  int n_pending_ = 0;
};

struct Group {
  float scale, bias;
};

// Scale and bias of part `s` of a block, 16 or 32 values.
template <Format kFormat>
Group GroupOf(const BlockParts& parts, int s) {
  Group group = {};
  if constexpr (kFormat.scales == ScaleForm::kF16) {
    group.scale = F16ToF32(parts.scale16[s]);
    if constexpr (kFormat.mins) group.bias = F16ToF32(parts.min16[s]);
  } else {
    const int scale = kFormat.mins ? parts.scale8[s] : static_cast<int8_t>(parts.scale8[s]);
    group.scale = F16ToF32(parts.d) * PowerOfHalf(kFormat.super_shift) * static_cast<float>(scale);
    if constexpr (kFormat.mins) {
      group.bias = -(F16ToF32(parts.dmin) * PowerOfHalf(kFormat.min_shift) *
                     static_cast<float>(parts.min8[s]));
    }
  }
  if constexpr (kFormat.table != LevelTable::kNone) {
    group.bias = static_cast<float>(LowestOf(kFormat.table)) * group.scale;
  } else if constexpr (!kFormat.mins) {
    group.bias = static_cast<float>(-(1 << kFormat.offset_shift)) * group.scale;
  }
  return group;
}

template <DType kType>
void PackBlocks(const std::byte* row, int64_t n, const PackedRow& out) {
  using Type = Quantized<kType>;
  constexpr Format kFormat = Type::kFormat;
  constexpr Packing kPacking = PackingOf(kFormat);
  constexpr int kPart = kFormat.halves ? 16 : 32;
  LevelWriter levels(kPacking.bits, out.words);
  auto* exponents = static_cast<uint8_t*>(out.scales);
  auto* scales = static_cast<float*>(out.scales);
  float* biases = out.biases;
  BlockParts parts;
  for (int64_t i = 0; i < n; i += Type::kValues, row += sizeof(typename Type::Block)) {
    Type::Read(BlockAt<kType>(row), 0, &parts);
    for (int s = 0; s < Type::kValues / kPart; ++s) {
      if constexpr (kPacking.form == Form::kMxfp4) {
        *exponents++ = parts.scale8[s];
      } else {
        const Group group = GroupOf<kFormat>(parts, s);
        *scales++ = group.scale;
        *biases++ = group.bias;
      }
      for (int j = 0; j < kPart; ++j) {
        const uint8_t level = parts.levels[s * kPart + j];
        if constexpr (kFormat.table != LevelTable::kNone && kPacking.form == Form::kAffine) {
          const auto& values = ValuesOf(kFormat.table);
          levels.Put(static_cast<uint32_t>(values[level] - LowestOf(kFormat.table)));
        } else {
          levels.Put(level);
        }
      }
      for (int j = kPart; j < kGroup; ++j) levels.Put(0);
    }
  }
}

}  // namespace

double Packing::BitsPerWeight() const {
  const double group_bits = form == Form::kMxfp4 ? kGroup * bits + 8 : kGroup * bits + 2 * 32;
  return group_bits / (spread ? kGroup / 2 : kGroup);
}

Packing PackingOf(DType type) { return PackingOf(FormatOf(type)); }

void PackRow(DType type, const std::byte* row, int64_t n, const PackedRow& out) {
  const bool known = WithQuantized(type, [&]<DType kType>() { PackBlocks<kType>(row, n, out); });
  WEFT_CHECK(known, "only quantized rows are packed");
}

}  // namespace weft::mlx
