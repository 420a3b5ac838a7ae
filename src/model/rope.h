// Rotation frequencies of rotary position embeddings, with all known scalings applied. Pure
// functions; any thread.
#ifndef WEFT_MODEL_ROPE_H_
#define WEFT_MODEL_ROPE_H_

#include <cstdint>
#include <span>

#include "model/model_spec.h"

namespace weft {

enum class RopeScalingKind {
  kNone,    // positions unchanged
  kLinear,  // positions divided by `factor`
  kYarn,    // slow pairs divided by `factor`, fast ones unchanged, a ramp between
};

// How a model was extended beyond its original training context.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;                // > 0
  double original_context = 0;      // tokens before stretching, > 0 for kYarn
  double beta_fast = 32;            // pairs with more rotations within original_context are fast
  double beta_slow = 1;             // pairs with fewer are slow
  double extrapolation = 1;         // weight of the unscaled frequency of fast pairs
  double magnitude = 1;             // multiplies cosine and sine, in addition to YaRN's own growth
  double magnitude_multiplier = 0;  // 0.1 * mscale_all_dim, 0 if the file has none
};

// YaRN's growth of attention with the extension: 1 + multiplier * ln(factor), or 1 without an
// extension.
double YarnGrowth(double factor, double multiplier);

struct RopeShape {
  RopePairs pairs = RopePairs::kHalves;
  int64_t n_values = 0;  // rotated values of a head; even, > 0
  double base = 10000;
};

// The rope of one kind of layer. `divisors`, if not empty, are n_values / 2 divisors of the
// frequencies.
//
// The magnitude is for models whose attention scale does not include YaRN; see deepseek2 for the
// other kind.
Rope MakeRope(const RopeShape& shape, const RopeScaling& scaling, std::span<const float> divisors);

}  // namespace weft

#endif  // WEFT_MODEL_ROPE_H_
