#include "base/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace weft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A half's value straight from the format's definition.
double MeaningOfF16(uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const double mantissa = half & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(F16, EveryFiniteValueMeansWhatTheFormatSays) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00) continue;
    const float value = F16ToF32(static_cast<uint16_t>(half));
    ASSERT_EQ(value, MeaningOfF16(static_cast<uint16_t>(half))) << half;
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << half;
    ASSERT_EQ(F32ToF16(value), half);
  }
}

TEST(F16, InfinityAndNaN) {
  EXPECT_EQ(F16ToF32(0x7C00), kInf);
  EXPECT_EQ(F16ToF32(0xFC00), -kInf);
  EXPECT_EQ(F32ToF16(kInf), 0x7C00);
  EXPECT_EQ(F32ToF16(-kInf), 0xFC00);
  for (uint32_t mantissa = 1; mantissa < 0x400; ++mantissa) {
    const uint16_t half = static_cast<uint16_t>(0xFC00 | mantissa);
    ASSERT_TRUE(std::isnan(F16ToF32(half)));
    ASSERT_EQ(F32ToF16(F16ToF32(half)), half | 0x200) << "quiet, sign and payload kept";
  }
}

// Between two neighbours: below the midpoint rounds down, above rounds up, and the midpoint itself
// goes to the even one.
TEST(F16, RoundsToNearestEven) {
  for (uint16_t half = 0; half < 0x7BFF; ++half) {
    const float low = F16ToF32(half), high = F16ToF32(static_cast<uint16_t>(half + 1));
    const float middle = (low + high) / 2;  // exact: needs one bit more than a half has
    const uint16_t even = half & 1 ? half + 1 : half;
    ASSERT_EQ(F32ToF16(middle), even) << half;
    ASSERT_EQ(F32ToF16(-middle), even | 0x8000) << half;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), half) << half;
    ASSERT_EQ(F32ToF16(std::nextafter(middle, kInf)), half + 1) << half;
  }
}

TEST(F16, OverflowAndUnderflow) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(F32ToF16(0x1p-25f), 0) << "half of the smallest: to even";
  EXPECT_EQ(F32ToF16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(BF16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = BF16ToF32(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      ASSERT_EQ(F32ToBF16(value), half | 0x40);
    } else {
      ASSERT_EQ(F32ToBF16(value), half);
    }
  }
}

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(F32ToBF16(1.0f), 0x3F80);
  EXPECT_EQ(F32ToBF16(1.0f + 0x1p-8f), 0x3F80) << "a tie, to even";
  EXPECT_EQ(F32ToBF16(1.0f + 0x1.8p-7f), 0x3F82) << "a tie, to even";
  EXPECT_EQ(F32ToBF16(std::nextafter(1.0f + 0x1p-8f, 2.0f)), 0x3F81);
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(F32ToBF16(-kInf), 0xFF80);
}

// A NaN whose payload lies only in the truncated bits must not become infinity.
TEST(BF16, NaNStaysNaN) {
  const float nan = std::bit_cast<float>(0x7F800001u);
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(nan))));
}

}  // namespace
}  // namespace weft
