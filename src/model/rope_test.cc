#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

constexpr RopeShape kShape = {.pairs = RopePairs::kHalves, .n_values = 32, .base = 150000};

TEST(Rope, FrequenciesFallGeometrically) {
  const Rope rope = MakeRope(kShape, RopeScaling(), {});
  ASSERT_EQ(rope.frequencies.size(), 16u);
  EXPECT_DOUBLE_EQ(rope.frequencies[0], 1);
  EXPECT_NEAR(rope.frequencies[8], 1 / std::sqrt(150000.0), 1e-15);
  EXPECT_FLOAT_EQ(rope.magnitude, 1);
}

TEST(Rope, LinearScalingDividesAllAlike) {
  const Rope plain = MakeRope(kShape, RopeScaling(), {});
  const Rope scaled = MakeRope(kShape, {.kind = RopeScalingKind::kLinear, .factor = 4}, {});
  for (size_t i = 0; i < plain.frequencies.size(); ++i) {
    EXPECT_DOUBLE_EQ(scaled.frequencies[i] * 4, plain.frequencies[i]);
  }
  EXPECT_FLOAT_EQ(scaled.magnitude, 1);
}

TEST(Rope, DivisorsDivideTheirOwnPair) {
  std::vector<float> divisors(16, 1.0f);
  divisors[3] = 8;
  divisors[5] = 1e30f;
  const Rope plain = MakeRope(kShape, RopeScaling(), {});
  const Rope divided = MakeRope(kShape, RopeScaling(), divisors);
  EXPECT_DOUBLE_EQ(divided.frequencies[2], plain.frequencies[2]);
  EXPECT_DOUBLE_EQ(divided.frequencies[3] * 8, plain.frequencies[3]);
  EXPECT_LT(divided.frequencies[5], 1e-25);
}

// gpt-oss's numbers: 4096 tokens extended 32 times. The pair with 32 rotations within 4096 tokens
// is 16 ln(4096 / 64 pi) / ln 150000 = 4.05; the pair with one is 8.70.
TEST(Rope, YarnLeavesFastPairsAndStretchesSlowOnes) {
  const RopeScaling yarn = {.kind = RopeScalingKind::kYarn, .factor = 32, .original_context = 4096};
  const Rope plain = MakeRope(kShape, RopeScaling(), {});
  const Rope scaled = MakeRope(kShape, yarn, {});
  for (int i = 0; i <= 4; ++i) EXPECT_DOUBLE_EQ(scaled.frequencies[i], plain.frequencies[i]) << i;
  for (int i = 9; i < 16; ++i) {
    EXPECT_NEAR(scaled.frequencies[i] * 32, plain.frequencies[i], 1e-15) << i;
  }
  // Between the two, the weight falls by a fifth from pair to pair.
  EXPECT_NEAR(scaled.frequencies[6] / plain.frequencies[6], 0.6 + 0.4 / 32, 1e-12);
  EXPECT_NEAR(scaled.magnitude, 1 + 0.1 * std::log(32.0), 1e-6);
}

TEST(Rope, YarnMultiplierDampsTheMagnitude) {
  RopeScaling yarn = {.kind = RopeScalingKind::kYarn, .factor = 40, .original_context = 64};
  yarn.magnitude_multiplier = 0.1;
  EXPECT_FLOAT_EQ(MakeRope(kShape, yarn, {}).magnitude, 1);
  yarn.magnitude_multiplier = 0.05;
  yarn.magnitude = 2;
  EXPECT_NEAR(MakeRope(kShape, yarn, {}).magnitude,
              2 * (1 + 0.1 * std::log(40.0)) / (1 + 0.05 * std::log(40.0)), 1e-6);
}

}  // namespace
}  // namespace weft
