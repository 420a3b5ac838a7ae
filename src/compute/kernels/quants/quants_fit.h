// Finds the scales that store a few values best. Internal to quants_encode.cc.
//
// "Best" is the smallest sum of w * (x - stored)^2, where w is the importance of x. Levels are
// tried for several scales around the one that spreads all levels over the range of the values
// (clipping the extremes a little often helps). For each, least squares gives the best scale for
// these levels. Levels are kept as floats.
//
// Values are at most 2 in magnitude and weights are in (0, 1], see quants_encode.cc, so no sum here
// overflows.
#ifndef WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_FIT_H_
#define WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_FIT_H_

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/kernels/quants/quant_types.h"

namespace weft::quants_internal {

// Four floats, which every x86-64 and ARM compiler keeps in one register. Sums have a fixed order,
// whatever the compiler does.
using Vec = float __attribute__((vector_size(16)));
inline constexpr int kVecLanes = 4;

inline Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }

// Sum over i in [0, kN) of the lanes of term(i), which are the terms i ... i + 3.
template <int kN, typename Term>
inline float Sum(Term term) {
  static_assert(kN % (2 * kVecLanes) == 0);
  Vec even = {}, odd = {};
  for (int i = 0; i < kN; i += 2 * kVecLanes) {
    even += term(i);
    odd += term(i + kVecLanes);
  }
  const Vec both = even + odd;
  return (both[0] + both[1]) + (both[2] + both[3]);
}

template <int kN>
inline float Dot(const float* a, const float* b) {
  return Sum<kN>([&](int i) { return Load(a + i) * Load(b + i); });
}
template <int kN>
inline float WeightedDot(const float* w, const float* a, const float* b) {
  return Sum<kN>([&](int i) { return Load(w + i) * Load(a + i) * Load(b + i); });
}

// Calls body(i) for i = 0, 4, ... below kN.
template <int kN, typename Body>
inline void ForVecs(Body body) {
  for (int i = 0; i < kN; i += kVecLanes) body(i);
}

inline float Clamp(float v, float low, float high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}
inline Vec Clamp(Vec v, float low, float high) {
  const Vec lows = Vec{} + low, highs = Vec{} + high;
  v = v < lows ? lows : v;
  return v > highs ? highs : v;
}

// Rounds to the nearest integers, ties to even. REQUIRES: |v| < 2^22.
template <typename T>
inline T RoundToInt(T v) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the last mantissa bit is worth 1
  return (v + kMagic) - kMagic;
}

// Levels that are the integers kLow..kHigh.
template <int kLow, int kHigh>
struct IntegerGrid {
  static constexpr float kLowest = kLow, kHighest = kHigh;
  // The extreme value is tried at the ends of the grid and at steps of this size around them.
  static constexpr float kStep = 0.25f;
  static constexpr int kStepsOut = 4, kStepsIn = 12;

  static Vec Snap(Vec v) { return RoundToInt(Clamp(v, kLow, kHigh)); }
  static int Index(float level) { return static_cast<int>(level) - kLow; }
};

// The levels of IQ4_NL and IQ4_XS.
struct IQ4Grid {
  static constexpr float kLowest = -127.0f, kHighest = 113.0f;
  static constexpr float kStep = 3.5f;
  static constexpr int kStepsOut = 5, kStepsIn = 9;

  static Vec Snap(Vec v) {
    Vec level = Vec{} + static_cast<float>(kIQ4Values[0]);
    for (int k = 1; k < 16; ++k) {
      const float middle = 0.5f * static_cast<float>(kIQ4Values[k - 1] + kIQ4Values[k]);
      const Vec above = Vec{} + static_cast<float>(kIQ4Values[k]);
      level = v > Vec{} + middle ? above : level;
    }
    return level;
  }
  static int Index(float level) {
    return static_cast<int>(std::lower_bound(kIQ4Values, kIQ4Values + 16, level) - kIQ4Values);
  }
};

template <typename Grid, int kN>
inline void SnapAll(const float* x, float inverse, float* levels) {
  ForVecs<kN>([&](int i) { Store(levels + i, Grid::Snap(Load(x + i) * inverse)); });
}

inline float Inverse(float v) { return v == 0 ? 0.0f : 1.0f / v; }

// The error of x stored as scale * level, with the best levels.
template <typename Grid, int kN>
inline float ScaleError(const float* x, const float* w, float scale) {
  const float inverse = Inverse(scale);
  return Sum<kN>([&](int i) {
    const Vec v = Load(x + i);
    const Vec e = v - scale * Grid::Snap(v * inverse);
    return Load(w + i) * e * e;
  });
}

// The best scale for x = scale * level; 0 for zeros. It may be negative.
template <typename Grid, int kN>
float FitScale(const float* x, const float* w) {
  float extreme = 0;
  for (int i = 0; i < kN; ++i) extreme = std::fabs(x[i]) > std::fabs(extreme) ? x[i] : extreme;
  if (extreme == 0) return 0;
  float best_gain = 0, best_scale = 0, levels[kN];
  const auto try_inverse = [&](float inverse) {
    SnapAll<Grid, kN>(x, inverse, levels);
    const float xl = WeightedDot<kN>(w, x, levels), ll = WeightedDot<kN>(w, levels, levels);
    // The error is sum(w x x) - gain.
    if (xl == 0 || xl * xl <= best_gain * ll) return;
    best_gain = xl * xl / ll;
    best_scale = xl / ll;
  };
  for (int k = -Grid::kStepsOut; k <= Grid::kStepsIn; ++k) {
    const float step = static_cast<float>(k) * Grid::kStep;
    try_inverse((Grid::kLowest + step) / extreme);
    if (Grid::kHighest > step) try_inverse((Grid::kHighest - step) / extreme);
  }
  for (int round = 0; round < 2; ++round) try_inverse(Inverse(best_scale));
  return best_scale;
}

// x = scale * level + min, levels 0..kMax.
struct RangeFit {
  float scale = 0, min = 0;
};

template <int kMax, int kN>
inline void SnapRange(const float* x, float min, float inverse, float* levels) {
  ForVecs<kN>(
      [&](int i) { Store(levels + i, IntegerGrid<0, kMax>::Snap((Load(x + i) - min) * inverse)); });
}

template <int kMax, int kN>
inline float RangeError(const float* x, const float* w, const RangeFit& fit) {
  const float inverse = Inverse(fit.scale);
  return Sum<kN>([&](int i) {
    const Vec above = Load(x + i) - fit.min;
    const Vec e = above - fit.scale * IntegerGrid<0, kMax>::Snap(above * inverse);
    return Load(w + i) * e * e;
  });
}

// `kSigned`: the minimum may be positive; otherwise it is at most 0.
template <int kMax, int kN, bool kSigned>
class RangeFitter {
 public:
  RangeFitter(const float* x, const float* w) : w_(w) {
    const float low = *std::min_element(x, x + kN), high = *std::max_element(x, x + kN);
    base_ = kSigned ? low : std::min(low, 0.0f);
    range_ = high - base_;
    for (int i = 0; i < kN; ++i) u_[i] = x[i] - base_;
    sum_w_ = Sum<kN>([&](int i) { return Load(w_ + i); });
    sum_u_ = Dot<kN>(w_, u_);
  }

  RangeFit Fit() {
    best_ = {0, 0};
    if (!(range_ > 0)) return {0, base_};
    found_ = false;
    for (int k = -4; k <= 8; ++k) {  // 0: the range is spread over all levels
      const float excess = 0.25f * static_cast<float>(k);
      const float inverse = (kMax + excess) / range_;
      Try(k > 0 ? 0.5f * excess / inverse : 0.0f, inverse);
    }
    for (int round = 0; round < 2 && best_.scale != 0; ++round) {
      Try(best_.min, 1.0f / best_.scale);
    }
    return {best_.scale, best_.min + base_};
  }

 private:
  // Tries the levels that (min, inverse) give, with the best scale and min for them.
  void Try(float min, float inverse) {
    SnapRange<kMax, kN>(u_, min, inverse, levels_);
    const float l = Dot<kN>(w_, levels_);
    const float ll = WeightedDot<kN>(w_, levels_, levels_);
    const float ul = WeightedDot<kN>(w_, u_, levels_);
    const float determinant = sum_w_ * ll - l * l;
    RangeFit fit;
    if (determinant > 0) {
      fit.scale = (sum_w_ * ul - l * sum_u_) / determinant;
      fit.min = (sum_u_ - fit.scale * l) / sum_w_;
    }
    // Only one level is in use, or the minimum cannot be stored.
    if (!(determinant > 0) || (!kSigned && fit.min > -base_)) {
      fit.min = kSigned ? 0 : -base_;
      fit.scale = ll > 0 ? (ul - fit.min * l) / ll : 0;
    }
    if (!(fit.scale > 0)) return;
    // The error without the constant term sum(w u u).
    const float error = fit.scale * (fit.scale * ll - 2 * ul + 2 * fit.min * l) +
                        fit.min * (fit.min * sum_w_ - 2 * sum_u_);
    if (found_ && error >= best_error_) return;
    found_ = true;
    best_error_ = error;
    best_ = fit;
  }

  const float* const w_;
  float u_[kN], levels_[kN];  // u: the values above base_
  float base_, range_, sum_w_, sum_u_;
  bool found_ = false;
  float best_error_ = 0;
  RangeFit best_;  // of u
};

}  // namespace weft::quants_internal

#endif  // WEFT_COMPUTE_KERNELS_QUANTS_QUANTS_FIT_H_
