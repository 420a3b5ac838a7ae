// Encoding: finds the scales that store a block with the smallest error, then the levels.
//
// Each block is first scaled by a power of two (its factor) to a magnitude of 1 to 2, so that
// searches neither overflow nor underflow, whatever the values are. Scales are rounded to storable
// ones before the final levels are chosen.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "base/half.h"
#include "compute/kernels/quants/quant_types.h"
#include "compute/kernels/quants/quants.h"
#include "compute/kernels/quants/quants_codes.h"
#include "compute/kernels/quants/quants_fit.h"

namespace weft {
namespace {

using namespace quants_internal;  // NOLINT: the other half of this file

// A number of a block in stored form: a half of the true magnitude, and its value for normalized
// values.
struct StoredHalf {
  uint16_t bits;
  float value;
};

uint16_t SaturatedHalf(float v) { return F32ToF16(Clamp(v, -65504.0f, 65504.0f)); }

// `factor` is a power of two: true = normalized * factor.
StoredHalf StoreHalf(float normalized, float factor) {
  const uint16_t bits = SaturatedHalf(normalized * factor + 0.0f);  // no negative zero
  return {bits, F16ToF32(bits) / factor};
}

template <typename Grid, int kN>
void LevelIndices(const float* x, float scale, uint8_t* indices) {
  float levels[kN];
  SnapAll<Grid, kN>(x, Inverse(scale), levels);
  for (int i = 0; i < kN; ++i) indices[i] = static_cast<uint8_t>(Grid::Index(levels[i]));
}

template <int kMax, int kN>
void RangeIndices(const float* x, const RangeFit& fit, uint8_t* indices) {
  float levels[kN];
  SnapRange<kMax, kN>(x, fit.min, Inverse(fit.scale), levels);
  for (int i = 0; i < kN; ++i) indices[i] = static_cast<uint8_t>(levels[i]);
}

// --- Blocks of 32 --------------------------------------------------------------

// x = scale * level: stores the scale, chooses the levels.
template <typename Grid>
uint16_t EncodeScaled(const float* x, const float* w, float factor, uint8_t levels[32]) {
  const StoredHalf d = StoreHalf(FitScale<Grid, 32>(x, w), factor);
  LevelIndices<Grid, 32>(x, d.value, levels);
  return d.bits;
}

// x = scale * level + min, with both as halves. If the fit leaves levels unused, it may be shifted
// by whole levels: one of the resulting minima may be closer to a half.
template <int kMax>
void EncodeRange(const float* x, const float* w, float factor, uint16_t* d, uint16_t* m,
                 uint8_t levels[32]) {
  const RangeFit fit = RangeFitter<kMax, 32, true>(x, w).Fit();
  RangeIndices<kMax, 32>(x, fit, levels);
  const int lowest = *std::min_element(levels, levels + 32);
  const int highest = *std::max_element(levels, levels + 32);
  RangeFit best;
  float best_error = INFINITY;
  for (int shift = -lowest; shift <= (fit.scale == 0 ? 0 : kMax - highest); ++shift) {
    const StoredHalf min = StoreHalf(fit.min - static_cast<float>(shift) * fit.scale, factor);
    float l[32];
    SnapRange<kMax, 32>(x, min.value, Inverse(fit.scale), l);
    float above[32];
    for (int i = 0; i < 32; ++i) above[i] = x[i] - min.value;
    const float ll = WeightedDot<32>(w, l, l), xl = WeightedDot<32>(w, above, l);
    const StoredHalf scale = StoreHalf(ll > 0 ? xl / ll : 0.0f, factor);
    const RangeFit stored = {scale.value, min.value};
    const float error = RangeError<kMax, 32>(x, w, stored);
    if (error >= best_error) continue;
    best_error = error;
    best = stored;
    *d = scale.bits;
    *m = min.bits;
  }
  RangeIndices<kMax, 32>(x, best, levels);
}

// One scale for kN values, which is repeated for all of their parts.
template <typename Grid, int kN>
void EncodeShared(const float* x, const float* w, float factor, BlockParts* parts) {
  const StoredHalf d = StoreHalf(FitScale<Grid, kN>(x, w), factor);
  LevelIndices<Grid, kN>(x, d.value, parts->levels);
  parts->scale16[0] = d.bits;
}

// One magnitude for kN values: the mean.
template <int kN>
void EncodeSigns(const float* x, const float* w, float factor, BlockParts* parts) {
  float sum = 0, sum_w = 0;
  for (int i = 0; i < kN; ++i) {
    sum += w[i] * std::fabs(x[i]);
    sum_w += w[i];
    parts->levels[i] = static_cast<uint8_t>(x[i] >= 0);
  }
  parts->scale16[0] = StoreHalf(sum / sum_w, factor).bits;
}

// With 255 levels, a search gains nothing: the largest value gets level 127.
void Encode255(const float* x, float factor, BlockParts* parts) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  const StoredHalf d = StoreHalf(largest / 127.0f, factor);
  parts->scale16[0] = d.bits;
  LevelIndices<IntegerGrid<-127, 127>, 32>(x, d.value, parts->levels);
  for (int i = 0; i < 32; ++i) ++parts->levels[i];  // levels are -128 ... 127
}

// The positive FP4 values in ascending order, and the index of each.
struct FP4Grid {
  static Vec Snap(Vec v) {
    const Vec a = v < Vec{} ? -v : v;
    Vec level = {};
    for (int k = 1; k < 8; ++k) {
      const float middle = 0.5f * static_cast<float>(kFP4Values[k - 1] + kFP4Values[k]);
      const Vec above = Vec{} + static_cast<float>(kFP4Values[k]);
      level = a > Vec{} + middle ? above : level;
    }
    return v < Vec{} ? -level : level;
  }
  static int Index(float level) {
    const float a = std::fabs(level);
    const auto index =
        static_cast<int>(std::lower_bound(kFP4Values, kFP4Values + 8, a) - kFP4Values);
    return level < 0 ? index + 8 : index;
  }
};

// With a larger exponent, the highest levels would exceed the largest float.
constexpr int kLargestExponent = 252;

// Scales are powers of two; tries the few that can be best.
void EncodePowers(const float* x, const float* w, float factor, BlockParts* parts) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  parts->scale8[0] = 0;
  std::memset(parts->levels, 0, 32);
  if (largest == 0) return;
  const int factor_exponent = std::ilogb(factor);
  const int top = std::ilogb(largest / 12.0f) + 1;  // the smallest exponent that clips nothing
  float best_error = INFINITY, best_scale = 0;
  for (int exponent = top + 1; exponent >= top - 2; --exponent) {
    const int stored = std::clamp(exponent + factor_exponent + 128, 0, kLargestExponent);
    const float scale = std::ldexp(1.0f, stored - 128 - factor_exponent);
    const float error = ScaleError<FP4Grid, 32>(x, w, scale);
    if (error >= best_error) continue;
    best_error = error;
    best_scale = scale;
    parts->scale8[0] = static_cast<uint8_t>(stored);
  }
  LevelIndices<FP4Grid, 32>(x, best_scale, parts->levels);
}

// --- Blocks of 256 -------------------------------------------------------------

// Passes over the integer scales of sub-blocks and the halves that they share; each pass chooses
// the best ones, with the others fixed.
constexpr int kSuperPasses = 3;

// x = d * scale * level: 256 / kN integer scales kLowest..kHighest.
template <typename Grid, int kN, int kLowest, int kHighest>
struct SuperScale {
  static constexpr int kSubs = 256 / kN;

  StoredHalf d;
  int8_t scales[kSubs];
  uint8_t levels[256];  // indices

  SuperScale(const float* x, const float* w, float factor) {
    float wanted[kSubs], extreme = 0;
    for (int s = 0; s < kSubs; ++s) {
      wanted[s] = FitScale<Grid, kN>(x + s * kN, w + s * kN);
      extreme = std::fabs(wanted[s]) > std::fabs(extreme) ? wanted[s] : extreme;
    }
    d = StoreHalf(extreme / kLowest, factor);
    const float inverse = Inverse(d.value);
    for (int s = 0; s < kSubs; ++s) {
      scales[s] = static_cast<int8_t>(RoundToInt(Clamp(wanted[s] * inverse, kLowest, kHighest)));
    }
    for (int pass = 0; pass < kSuperPasses; ++pass) {
      if (pass > 0) RefitSuper(x, w, factor);
      for (int s = 0; s < kSubs; ++s) RefitSub(x + s * kN, w + s * kN, &scales[s]);
    }
    for (int s = 0; s < kSubs; ++s) {
      LevelIndices<Grid, kN>(x + s * kN, d.value * static_cast<float>(scales[s]), levels + s * kN);
    }
  }

  void Store(BlockParts* parts) const {
    parts->d = d.bits;
    std::memcpy(parts->scale8, scales, sizeof(scales));
    std::memcpy(parts->levels, levels, sizeof(levels));
  }

 private:
  // Chooses the best of a scale and its two neighbours.
  void RefitSub(const float* x, const float* w, int8_t* scale) const {
    const int start = *scale;
    float best = ScaleError<Grid, kN>(x, w, d.value * static_cast<float>(start));
    for (int candidate : {start - 1, start + 1}) {
      if (candidate < kLowest || candidate > kHighest) continue;
      const float error = ScaleError<Grid, kN>(x, w, d.value * static_cast<float>(candidate));
      if (error >= best) continue;
      best = error;
      *scale = static_cast<int8_t>(candidate);
    }
  }

  void RefitSuper(const float* x, const float* w, float factor) {
    float xl = 0, ll = 0, l[kN];
    for (int s = 0; s < kSubs; ++s) {
      const float* xs = x + s * kN;
      const float* ws = w + s * kN;
      const auto scale = static_cast<float>(scales[s]);
      SnapAll<Grid, kN>(xs, Inverse(d.value * scale), l);
      xl += scale * WeightedDot<kN>(ws, xs, l);
      ll += scale * scale * WeightedDot<kN>(ws, l, l);
    }
    if (ll > 0) d = StoreHalf(xl / ll, factor);
  }
};

// x = d * scale * level - dmin * min: integer scales and minima 0..kTop.
template <int kMax, int kN, int kTop>
struct SuperRange {
  static constexpr int kSubs = 256 / kN;

  StoredHalf d, dmin;
  uint8_t scales[kSubs], mins[kSubs];
  uint8_t levels[256];

  SuperRange(const float* x, const float* w, float factor) {
    RangeFit fits[kSubs];
    float largest_scale = 0, largest_min = 0;
    for (int s = 0; s < kSubs; ++s) {
      fits[s] = RangeFitter<kMax, kN, false>(x + s * kN, w + s * kN).Fit();
      largest_scale = std::max(largest_scale, fits[s].scale);
      largest_min = std::max(largest_min, -fits[s].min);
    }
    d = StoreHalf(largest_scale / kTop, factor);
    dmin = StoreHalf(largest_min / kTop, factor);
    for (int s = 0; s < kSubs; ++s) {
      scales[s] = Nearest(fits[s].scale, d.value);
      mins[s] = Nearest(-fits[s].min, dmin.value);
    }
    for (int pass = 0; pass < kSuperPasses; ++pass) {
      if (pass > 0) RefitSuper(x, w, factor);
      for (int s = 0; s < kSubs; ++s) RefitSub(x + s * kN, w + s * kN, s);
    }
    for (int s = 0; s < kSubs; ++s) {
      RangeIndices<kMax, kN>(x + s * kN, Stored(scales[s], mins[s]), levels + s * kN);
    }
  }

  void Store(BlockParts* parts) const {
    parts->d = d.bits;
    parts->dmin = dmin.bits;
    std::memcpy(parts->scale8, scales, sizeof(scales));
    std::memcpy(parts->min8, mins, sizeof(mins));
    std::memcpy(parts->levels, levels, sizeof(levels));
  }

 private:
  static uint8_t Nearest(float wanted, float unit) {
    return static_cast<uint8_t>(RoundToInt(Clamp(wanted * Inverse(unit), 0, kTop)));
  }
  RangeFit Stored(int scale, int min) const {
    return {d.value * static_cast<float>(scale), -dmin.value * static_cast<float>(min)};
  }

  // Chooses the best of a scale and minimum and their neighbours.
  void RefitSub(const float* x, const float* w, int s) {
    const int scale0 = scales[s], min0 = mins[s];
    float best = RangeError<kMax, kN>(x, w, Stored(scale0, min0));
    for (int scale = std::max(scale0 - 1, 0); scale <= std::min(scale0 + 1, kTop); ++scale) {
      for (int min = std::max(min0 - 1, 0); min <= std::min(min0 + 1, kTop); ++min) {
        const float error = RangeError<kMax, kN>(x, w, Stored(scale, min));
        if (error >= best) continue;
        best = error;
        scales[s] = static_cast<uint8_t>(scale);
        mins[s] = static_cast<uint8_t>(min);
      }
    }
  }

  // Least squares for d and dmin, with a = scale * level and b = -min.
  void RefitSuper(const float* x, const float* w, float factor) {
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0, l[kN];
    for (int s = 0; s < kSubs; ++s) {
      const float* xs = x + s * kN;
      const float* ws = w + s * kN;
      const RangeFit stored = Stored(scales[s], mins[s]);
      const auto scale = static_cast<float>(scales[s]), b = -static_cast<float>(mins[s]);
      SnapRange<kMax, kN>(xs, stored.min, Inverse(stored.scale), l);
      aa += scale * scale * WeightedDot<kN>(ws, l, l);
      ab += scale * b * Dot<kN>(ws, l);
      bb += b * b * Sum<kN>([&](int i) { return Load(ws + i); });
      xa += scale * WeightedDot<kN>(ws, xs, l);
      xb += b * Dot<kN>(ws, xs);
    }
    const float determinant = aa * bb - ab * ab;
    if (determinant > 1e-6f * aa * bb) {
      const float new_d = (xa * bb - xb * ab) / determinant;
      const float new_dmin = (xb * aa - xa * ab) / determinant;
      if (!(new_d > 0) || !(new_dmin > 0)) return;
      d = StoreHalf(new_d, factor);
      dmin = StoreHalf(new_dmin, factor);
    } else if (bb == 0 && aa > 0 && xa > 0) {
      d = StoreHalf(xa / aa, factor);
    }
  }
};

// --- By format -----------------------------------------------------------------

template <LevelTable kTable, int kLow, int kHigh>
using GridOf = std::conditional_t<kTable == LevelTable::kIq4, IQ4Grid, IntegerGrid<kLow, kHigh>>;

template <Format kFormat>
void FitFormat(const float* x, const float* w, float factor, BlockParts* parts) {
  constexpr int kLevels = 1 << kFormat.bits, kPart = kFormat.halves ? 16 : 32;
  constexpr int kZero = kFormat.offset_shift < 0 ? 0 : 1 << kFormat.offset_shift;
  constexpr int kScales = 1 << kFormat.scale_bits;
  using Grid = GridOf<kFormat.table, -kZero, kLevels - 1 - kZero>;
  if constexpr (kFormat.scales == ScaleForm::kE8M0) {
    EncodePowers(x, w, factor, parts);
  } else if constexpr (kFormat.bits == 8) {
    Encode255(x, factor, parts);
  } else if constexpr (kFormat.scales == ScaleForm::kF16 && kFormat.mins) {
    EncodeRange<kLevels - 1>(x, w, factor, parts->scale16, parts->min16, parts->levels);
  } else if constexpr (kFormat.scales == ScaleForm::kF16) {
    parts->scale16[0] = EncodeScaled<Grid>(x, w, factor, parts->levels);
  } else if constexpr (kFormat.mins) {
    SuperRange<kLevels - 1, kPart, kScales - 1>(x, w, factor).Store(parts);
  } else {
    SuperScale<Grid, kPart, -kScales / 2, kScales / 2 - 1>(x, w, factor).Store(parts);
  }
}

// --- Rows ----------------------------------------------------------------------

float FiniteOrZero(float v) { return std::isfinite(v) ? v : 0.0f; }

// Copies a block, scaled by a power of two to a magnitude of 1 to 2; returns the inverse of that
// power.
template <int kN>
float Normalize(const float* values, float* x) {
  float largest = 0;
  for (int i = 0; i < kN; ++i) {
    x[i] = FiniteOrZero(values[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (largest == 0) return 1.0f;
  const int exponent = std::clamp(std::ilogb(largest), -126, 126);
  const float inverse = std::ldexp(1.0f, -exponent);
  for (int i = 0; i < kN; ++i) x[i] *= inverse;
  return std::ldexp(1.0f, exponent);
}

// Importance as weights in (0, 1]; a value that is not a positive number gets a small weight.
// Whether they differ.
template <int kN>
bool NormalizeWeights(const float* importance, float* w) {
  float largest = 0;
  for (int i = 0; i < kN; ++i) {
    w[i] = importance != nullptr ? std::max(FiniteOrZero(importance[i]), 0.0f) : 0.0f;
    largest = std::max(largest, w[i]);
  }
  constexpr float kMin = 1e-6f;
  for (int i = 0; i < kN; ++i) w[i] = largest > 0 ? std::max(w[i] / largest, kMin) : 1.0f;
  return !std::all_of(w, w + kN, [w](float weight) { return weight == w[0]; });
}

// Whether large values of a block count more than their importance says: it knows nothing of how
// inputs go together, and where one of few levels is all that a value gets, large ones lose most.
template <DType kType>
constexpr bool kFavorsLargeValues = kType == DType::kQ3_K;

template <int kN>
void FavorLargeValues(const float* x, float* w) {
  const float mean_square = Dot<kN>(x, x) / kN;
  for (int i = 0; i < kN; ++i) w[i] *= std::sqrt(mean_square + x[i] * x[i]);
}

// Finds the parts that store a block best. Made once for a row.
template <DType kType>
class Fitter {
 public:
  void Fit(const float* x, const float* w, float factor, BlockParts* parts) {
    constexpr int kN = Quantized<kType>::kValues;
    if constexpr (kHasCodes<kType>) {
      const auto store = [factor](float normalized, uint16_t* bits) {
        const StoredHalf half = StoreHalf(normalized, factor);
        *bits = half.bits;
        return half.value;
      };
      codes_.Fit(x, w, store, parts);
    } else if constexpr (kType == DType::kQ1_0) {
      EncodeSigns<kN>(x, w, factor, parts);
    } else if constexpr (kType == DType::kTQ1_0 || kType == DType::kTQ2_0) {
      EncodeShared<IntegerGrid<-1, 1>, kN>(x, w, factor, parts);
    } else if constexpr (kType == DType::kQ2_0) {
      EncodeShared<IntegerGrid<-1, 2>, kN>(x, w, factor, parts);
    } else {
      FitFormat<Quantized<kType>::kFormat>(x, w, factor, parts);
    }
  }

 private:
  struct Nothing {};
  std::conditional_t<kHasCodes<kType>, CodeFitter<kType>, Nothing> codes_;
};

template <DType kType>
void EncodeRow(const float* values, int64_t n, const float* importance, std::byte* row) {
  using Type = Quantized<kType>;
  constexpr int kN = Type::kValues;
  Fitter<kType> fitter;
  typename Type::Block block;
  BlockParts parts;
  for (int64_t i = 0; i < n; i += kN, row += sizeof(block)) {
    float x[kN], w[kN];
    const float factor = Normalize<kN>(values + i, x);
    const bool differ = NormalizeWeights<kN>(importance != nullptr ? importance + i : nullptr, w);
    if (kFavorsLargeValues<kType> && differ) FavorLargeValues<kN>(x, w);
    fitter.Fit(x, w, factor, &parts);
    Type::Write(parts, &block);
    std::memcpy(row, &block, sizeof(block));
  }
}

// Rounds to nearest; values that would round to infinity become the largest finite value.
template <uint16_t (*Convert)(float), uint16_t kLargest>
void ConvertRow(const float* values, int64_t n, const float*, std::byte* row) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half = Convert(FiniteOrZero(values[i]));
    if ((half & 0x7FFF) > kLargest) half = (half & 0x8000) | kLargest;
    std::memcpy(row + 2 * i, &half, sizeof(half));
  }
}

void CopyRow(const float* values, int64_t n, const float*, std::byte* row) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = FiniteOrZero(values[i]);
    std::memcpy(row + 4 * i, &v, sizeof(v));
  }
}

using Encoder = void (*)(const float* values, int64_t n, const float* importance, std::byte* row);

Encoder FindEncoder(DType type) {
  if (type == DType::kF32) return CopyRow;
  if (type == DType::kF16) return ConvertRow<F32ToF16, 0x7BFF>;
  if (type == DType::kBF16) return ConvertRow<F32ToBF16, 0x7F7F>;
  Encoder encode = nullptr;
  WithQuantized(type, [&]<DType kType>() {
    if constexpr (requires { Quantized<kType>::Write; }) encode = EncodeRow<kType>;
  });
  return encode;
}

}  // namespace

bool CanQuantize(DType type) { return FindEncoder(type) != nullptr; }

void Quantize(DType type, const float* values, int64_t n, const float* importance, std::byte* row) {
  const Encoder encode = FindEncoder(type);
  WEFT_CHECK(encode != nullptr, "this type cannot be encoded");
  WEFT_CHECK(n >= 0 && n % InfoOf(type).block_values == 0, "a row is whole blocks");
  encode(values, n, importance, row);
}

}  // namespace weft
