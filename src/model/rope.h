// Rotation frequencies of rotary position embeddings, with every scaling of the
// field folded in. Pure functions, callable anywhere.
#ifndef WEFT_MODEL_ROPE_H_
#define WEFT_MODEL_ROPE_H_

#include <cstdint>
#include <span>

#include "model/model_spec.h"

namespace weft {

enum class RopeScalingKind {
  kNone,    // positions as they are
  kLinear,  // positions divided by `factor`
  kYarn,    // slow pairs divided by `factor`, fast ones left alone, a ramp between
};

// How a model was stretched beyond the context it was first trained for.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;                // > 0
  double original_context = 0;      // tokens before stretching, > 0 for kYarn
  double beta_fast = 32;            // turns within original_context above which a pair is fast
  double beta_slow = 1;             // and below which it is slow
  double extrapolation = 1;         // weight of the unscaled frequency of fast pairs
  double magnitude = 1;             // multiplies cosine and sine, beside YaRN's own growth
  double magnitude_multiplier = 0;  // 0.1 * mscale_all_dim, 0 when the file has none
};

// YaRN's growth of attention with the stretch: 1 + multiplier * ln(factor), and 1
// where the model is not stretched.
double YarnGrowth(double factor, double multiplier);

struct RopeShape {
  RopePairs pairs = RopePairs::kHalves;
  int64_t n_values = 0;  // of a head that rotate; even, > 0
  double base = 10000;
};

// The rope of one kind of layer. `divisors`, if not empty, are n_values / 2 values
// by which the frequencies are divided.
//
// The magnitude is that of a model whose attention scale knows nothing of YaRN;
// see deepseek2 for the other kind.
Rope MakeRope(const RopeShape& shape, const RopeScaling& scaling, std::span<const float> divisors);

}  // namespace weft

#endif  // WEFT_MODEL_ROPE_H_
