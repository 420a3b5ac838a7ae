// Encoding: the scales that store a block with the least error, then the levels.
//
// A block is brought to a magnitude of 1 to 2 by a power of two first (its factor),
// so that searches neither overflow nor underflow whatever the values are. Scales
// are rounded to what a block can store before the final levels are chosen.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/quant_blocks.h"
#include "kernels/quants.h"
#include "kernels/quants_fit.h"

namespace weft {
namespace {

using namespace quants_internal;  // NOLINT: the other half of this file

// A number of a block as it will be stored: a half of the true magnitude, and what
// it means for the normalized values.
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

void JoinNibbles(const uint8_t levels[32], uint8_t qs[16]) {
  for (int j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>((levels[j] & 15) | (levels[j + 16] & 15) << 4);
  }
}

void JoinFifthBits(const uint8_t levels[32], uint8_t qh[4]) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(levels[i] >> 4) << i;
  std::memcpy(qh, &bits, sizeof(bits));
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

// x = scale * level + min with both as halves. Where the fit leaves levels unused,
// it may be moved by whole levels: one of the minima then fits a half better.
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

void EncodeBlock(const float* x, const float* w, float factor, BlockQ4_0* block) {
  uint8_t levels[32];
  block->d = EncodeScaled<IntegerGrid<-8, 7>>(x, w, factor, levels);
  JoinNibbles(levels, block->qs);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ5_0* block) {
  uint8_t levels[32];
  block->d = EncodeScaled<IntegerGrid<-16, 15>>(x, w, factor, levels);
  JoinNibbles(levels, block->qs);
  JoinFifthBits(levels, block->qh);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockIQ4_NL* block) {
  uint8_t levels[32];
  block->d = EncodeScaled<IQ4Grid>(x, w, factor, levels);
  JoinNibbles(levels, block->qs);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ4_1* block) {
  uint8_t levels[32];
  EncodeRange<15>(x, w, factor, &block->d, &block->m, levels);
  JoinNibbles(levels, block->qs);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ5_1* block) {
  uint8_t levels[32];
  EncodeRange<31>(x, w, factor, &block->d, &block->m, levels);
  JoinNibbles(levels, block->qs);
  JoinFifthBits(levels, block->qh);
}

// With 255 levels a search gains nothing: the largest value gets level 127.
void EncodeBlock(const float* x, const float*, float factor, BlockQ8_0* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  const StoredHalf d = StoreHalf(largest / 127.0f, factor);
  float levels[32];
  SnapAll<IntegerGrid<-127, 127>, 32>(x, Inverse(d.value), levels);
  block->d = d.bits;
  for (int i = 0; i < 32; ++i) block->q[i] = static_cast<int8_t>(levels[i]);
}

// The FP4 levels in ascending order (positive ones) with the number of each.
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

// With a larger exponent the highest levels would be beyond the largest float.
constexpr int kLargestExponent = 252;

// Scales are powers of two: the few that can be best are tried.
void EncodeBlock(const float* x, const float* w, float factor, BlockMXFP4* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  std::memset(block, 0, sizeof(*block));
  if (largest == 0) return;
  const int factor_exponent = std::ilogb(factor);
  const int top = std::ilogb(largest / 12.0f) + 1;  // the smallest that clips nothing
  float best_error = INFINITY, best_scale = 0;
  for (int exponent = top + 1; exponent >= top - 2; --exponent) {
    const int stored = std::clamp(exponent + factor_exponent + 128, 0, kLargestExponent);
    const float scale = std::ldexp(1.0f, stored - 128 - factor_exponent);
    const float error = ScaleError<FP4Grid, 32>(x, w, scale);
    if (error >= best_error) continue;
    best_error = error;
    best_scale = scale;
    block->e = static_cast<uint8_t>(stored);
  }
  uint8_t levels[32];
  LevelIndices<FP4Grid, 32>(x, best_scale, levels);
  JoinNibbles(levels, block->qs);
}

// --- Blocks of 256 -------------------------------------------------------------

// Passes over the integer scales of sub-blocks and the halves that they share:
// each chooses the ones best, given the others.
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

 private:
  // The best of a scale and its neighbours.
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

 private:
  static uint8_t Nearest(float wanted, float unit) {
    return static_cast<uint8_t>(RoundToInt(Clamp(wanted * Inverse(unit), 0, kTop)));
  }
  RangeFit Stored(int scale, int min) const {
    return {d.value * static_cast<float>(scale), -dmin.value * static_cast<float>(min)};
  }

  // The best of a scale and minimum and their neighbours.
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

// Bits 2 p, 2 p + 1 of qs[32 r + j] for value 128 r + 32 p + j.
void JoinTwoBits(const uint8_t levels[256], int shift, uint8_t qs[64]) {
  std::memset(qs, 0, 64);
  for (int i = 0; i < 256; ++i) {
    qs[i / 128 * 32 + i % 32] |=
        static_cast<uint8_t>(((levels[i] >> shift) & 3) << (i % 128 / 32 * 2));
  }
}

// Bit k of bits[j] for value 32 k + j.
void JoinOneBit(const uint8_t levels[256], int shift, uint8_t bits[32]) {
  std::memset(bits, 0, 32);
  for (int i = 0; i < 256; ++i) {
    bits[i % 32] |= static_cast<uint8_t>(((levels[i] >> shift) & 1) << (i / 32));
  }
}

// Runs of 2 * kHalf values: the first half in the low nibbles.
template <int kHalf>
void JoinNibbleRuns(const uint8_t levels[256], uint8_t qs[128]) {
  for (int k = 0; k < 128; ++k) {
    const uint8_t* low = levels + k / kHalf * 2 * kHalf + k % kHalf;
    qs[k] = static_cast<uint8_t>((low[0] & 15) | (low[kHalf] & 15) << 4);
  }
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ2_K* block) {
  const SuperRange<3, 16, 15> fit(x, w, factor);
  for (int s = 0; s < 16; ++s) {
    block->scales[s] = static_cast<uint8_t>(fit.scales[s] | fit.mins[s] << 4);
  }
  JoinTwoBits(fit.levels, 0, block->qs);
  block->d = fit.d.bits;
  block->dmin = fit.dmin.bits;
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ3_K* block) {
  const SuperScale<IntegerGrid<-4, 3>, 16, -32, 31> fit(x, w, factor);
  JoinTwoBits(fit.levels, 0, block->qs);
  JoinOneBit(fit.levels, 2, block->hmask);
  PackScalesQ3(fit.scales, block->scales);
  block->d = fit.d.bits;
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ4_K* block) {
  const SuperRange<15, 32, 63> fit(x, w, factor);
  block->d = fit.d.bits;
  block->dmin = fit.dmin.bits;
  PackScaleMins(fit.scales, fit.mins, block->scales);
  JoinNibbleRuns<32>(fit.levels, block->qs);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ5_K* block) {
  const SuperRange<31, 32, 63> fit(x, w, factor);
  block->d = fit.d.bits;
  block->dmin = fit.dmin.bits;
  PackScaleMins(fit.scales, fit.mins, block->scales);
  JoinOneBit(fit.levels, 4, block->qh);
  JoinNibbleRuns<32>(fit.levels, block->qs);
}

void EncodeBlock(const float* x, const float* w, float factor, BlockQ6_K* block) {
  const SuperScale<IntegerGrid<-32, 31>, 16, -128, 127> fit(x, w, factor);
  JoinNibbleRuns<64>(fit.levels, block->ql);
  JoinTwoBits(fit.levels, 4, block->qh);
  std::memcpy(block->scales, fit.scales, sizeof(block->scales));
  block->d = fit.d.bits;
}

void EncodeBlock(const float* x, const float* w, float factor, BlockIQ4_XS* block) {
  const SuperScale<IQ4Grid, 32, -32, 31> fit(x, w, factor);
  block->d = fit.d.bits;
  PackScalesIQ4(fit.scales, block);
  JoinNibbleRuns<16>(fit.levels, block->qs);
}

// --- Rows ----------------------------------------------------------------------

float FiniteOrZero(float v) { return std::isfinite(v) ? v : 0.0f; }

// Copies a block, scaled by a power of two to a magnitude of 1 to 2; returns the
// power that leads back.
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

// Importance as weights in (0, 1]; what is not a positive number counts as little.
template <int kN>
void NormalizeWeights(const float* importance, float* w) {
  float largest = 0;
  for (int i = 0; i < kN; ++i) {
    w[i] = importance != nullptr ? std::max(FiniteOrZero(importance[i]), 0.0f) : 0.0f;
    largest = std::max(largest, w[i]);
  }
  constexpr float kLeast = 1e-6f;
  for (int i = 0; i < kN; ++i) w[i] = largest > 0 ? std::max(w[i] / largest, kLeast) : 1.0f;
}

template <typename Block, int kN>
void EncodeRow(const float* values, int64_t n, const float* importance, std::byte* row) {
  for (int64_t i = 0; i < n; i += kN, row += sizeof(Block)) {
    float x[kN], w[kN];
    const float factor = Normalize<kN>(values + i, x);
    NormalizeWeights<kN>(importance != nullptr ? importance + i : nullptr, w);
    Block block;
    EncodeBlock(x, w, factor, &block);
    std::memcpy(row, &block, sizeof(block));
  }
}

// Rounds to nearest; what would round to infinity becomes the largest finite value.
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

struct EncoderEntry {
  DType type;
  Encoder encode;
};

constexpr EncoderEntry kEncoders[] = {
    {DType::kF32, CopyRow},
    {DType::kF16, ConvertRow<F32ToF16, 0x7BFF>},
    {DType::kBF16, ConvertRow<F32ToBF16, 0x7F7F>},
    {DType::kQ4_0, EncodeRow<BlockQ4_0, 32>},
    {DType::kQ4_1, EncodeRow<BlockQ4_1, 32>},
    {DType::kQ5_0, EncodeRow<BlockQ5_0, 32>},
    {DType::kQ5_1, EncodeRow<BlockQ5_1, 32>},
    {DType::kQ8_0, EncodeRow<BlockQ8_0, 32>},
    {DType::kQ2_K, EncodeRow<BlockQ2_K, 256>},
    {DType::kQ3_K, EncodeRow<BlockQ3_K, 256>},
    {DType::kQ4_K, EncodeRow<BlockQ4_K, 256>},
    {DType::kQ5_K, EncodeRow<BlockQ5_K, 256>},
    {DType::kQ6_K, EncodeRow<BlockQ6_K, 256>},
    {DType::kIQ4_NL, EncodeRow<BlockIQ4_NL, 32>},
    {DType::kIQ4_XS, EncodeRow<BlockIQ4_XS, 256>},
    {DType::kMXFP4, EncodeRow<BlockMXFP4, 32>},
};

Encoder FindEncoder(DType type) {
  for (const EncoderEntry& entry : kEncoders) {
    if (entry.type == type) return entry.encode;
  }
  return nullptr;
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
