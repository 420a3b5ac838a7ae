#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace weft {
namespace {

// The pair (not rounded) that makes `turns` full rotations within `context` tokens.
double PairOfTurns(const RopeShape& shape, double context, double turns) {
  return shape.n_values * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(shape.base));
}

// The weight of the unscaled frequency in each pair: 1 up to `low`, 0 from `high` on.
struct YarnRamp {
  double low = 0;
  double high = 0;
  double Share(int64_t pair) const {
    const double along = (static_cast<double>(pair) - low) / std::max(0.001, high - low);
    return 1 - std::clamp(along, 0.0, 1.0);
  }
};

YarnRamp MakeRamp(const RopeShape& shape, const RopeScaling& scaling) {
  const double low = PairOfTurns(shape, scaling.original_context, scaling.beta_fast);
  const double high = PairOfTurns(shape, scaling.original_context, scaling.beta_slow);
  // The upper bound counts values, not pairs, as the published method does.
  return {std::max(0.0, std::floor(low)),
          std::min(static_cast<double>(shape.n_values - 1), std::ceil(high))};
}

}  // namespace

double YarnGrowth(double factor, double multiplier) {
  return factor <= 1 ? 1 : 1 + multiplier * std::log(factor);
}

Rope MakeRope(const RopeShape& shape, const RopeScaling& scaling, std::span<const float> divisors) {
  const int64_t n_pairs = shape.n_values / 2;
  WEFT_CHECK(divisors.empty() || static_cast<int64_t>(divisors.size()) >= n_pairs,
             "fewer divisors than rotating pairs");
  const bool yarn = scaling.kind == RopeScalingKind::kYarn && scaling.extrapolation != 0;
  const double stretch = scaling.kind == RopeScalingKind::kNone ? 1 : scaling.factor;
  const YarnRamp ramp = yarn ? MakeRamp(shape, scaling) : YarnRamp();

  Rope rope;
  rope.pairs = shape.pairs;
  rope.frequencies.reserve(n_pairs);
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    double frequency = std::pow(
        shape.base, -2.0 * static_cast<double>(pair) / static_cast<double>(shape.n_values));
    if (!divisors.empty()) frequency /= divisors[pair];
    const double share = yarn ? ramp.Share(pair) * scaling.extrapolation : 0;
    rope.frequencies.push_back(frequency / stretch * (1 - share) + frequency * share);
  }

  double magnitude = scaling.magnitude;
  if (yarn) {
    magnitude *= YarnGrowth(scaling.factor, 0.1);
    if (scaling.magnitude_multiplier != 0) {
      magnitude /= YarnGrowth(scaling.factor, scaling.magnitude_multiplier);
    }
  }
  rope.magnitude = static_cast<float>(magnitude);
  return rope;
}

}  // namespace weft
