#include "compute/kernels/quants/quants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compute/kernels/quants/quant_types.h"
#include "gtest/gtest.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

constexpr DType kDecodable[] = {
    DType::kF32,    DType::kF16,    DType::kBF16,    DType::kQ4_0,  DType::kQ4_1,  DType::kQ5_0,
    DType::kQ5_1,   DType::kQ8_0,   DType::kQ2_K,    DType::kQ3_K,  DType::kQ4_K,  DType::kQ5_K,
    DType::kQ6_K,   DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4, DType::kTQ1_0, DType::kTQ2_0,
    DType::kNVFP4,  DType::kQ1_0,   DType::kQ2_0,    DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS,
    DType::kIQ2_XS, DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S};

std::string NameOfParam(const ::testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}

std::vector<char> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::vector<char>(std::istreambuf_iterator<char>(in), {});
}

// A vector of exactly n bytes, so that the address sanitizer guards both ends.
std::vector<std::byte> RandomBytes(int64_t n, std::mt19937_64* random) {
  std::vector<std::byte> bytes(static_cast<size_t>(n));
  for (std::byte& b : bytes) b = static_cast<std::byte>((*random)());
  return bytes;
}

class DequantizeTest : public ::testing::TestWithParam<DType> {};

TEST_P(DequantizeTest, GoldensBitForBit) {
  WEFT_REQUIRE_GOLDENS();
  if (GetParam() == DType::kF32) return;  // stored as it is
  const std::string stem = testing::GoldensDir() + "/quants/" + std::string(NameOf(GetParam()));
  const std::vector<char> raw = ReadFile(stem + ".raw");
  const std::vector<char> want = ReadFile(stem + ".f32");
  constexpr int64_t kRows = 4, kRowValues = 1024;
  ASSERT_EQ(static_cast<int64_t>(raw.size()), kRows * RowBytes(GetParam(), kRowValues));
  ASSERT_EQ(want.size(), kRows * kRowValues * sizeof(float));
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<float> got(kRowValues);
    Dequantize(
        GetParam(),
        reinterpret_cast<const std::byte*>(raw.data()) + r * RowBytes(GetParam(), kRowValues),
        kRowValues, got.data());
    for (int64_t i = 0; i < kRowValues; ++i) {
      uint32_t bits;
      std::memcpy(&bits, want.data() + 4 * (r * kRowValues + i), 4);
      const float value = std::bit_cast<float>(bits);
      if (value == 0) bits = std::bit_cast<uint32_t>(got[i] == 0 ? got[i] : value);  // or -0
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), bits)
          << "row " << r << " value " << i << ": " << got[i] << " against "
          << std::bit_cast<float>(bits);
    }
  }
}

TEST_P(DequantizeTest, AnyBytesAtAnyAddress) {
  std::mt19937_64 random(7);
  const int64_t n = 3 * InfoOf(GetParam()).block_values;
  const int64_t row_bytes = RowBytes(GetParam(), n);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<std::byte> aligned = RandomBytes(row_bytes, &random);
    std::vector<float> want(n), got(n);
    Dequantize(GetParam(), aligned.data(), n, want.data());
    const int shift = 1 + trial % 15;
    std::vector<std::byte> moved(shift + row_bytes);
    std::memcpy(moved.data() + shift, aligned.data(), row_bytes);
    Dequantize(GetParam(), moved.data() + shift, n, got.data());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), n * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DequantizeTest, ::testing::ValuesIn(kDecodable), NameOfParam);

TEST(DequantizeTypesTest, KnowsItsTypes) {
  for (DType type : kDecodable) EXPECT_TRUE(CanDequantize(type)) << NameOf(type);
  for (DType type : {DType::kQ8_1, DType::kQ8_K, DType::kI32, DType::kF64}) {
    EXPECT_FALSE(CanDequantize(type)) << NameOf(type);
  }
}

// --- Encoding ------------------------------------------------------------------

// Requirements for encoding to a type.
struct EncodeCase {
  DType type;
  // Plain rounding to compare with: runs of `sub` values, with the largest magnitude at level
  // `lowest` (symmetric), or minimum and maximum at 0 and `levels` - 1.
  int sub;
  int levels;
  bool range;
  // Root mean square error on values of the standard normal distribution.
  double rmse;
  // Max error of any value, relative to the largest magnitude of its block.
  double worst;
};

constexpr EncodeCase kEncodable[] = {
    {DType::kF32, 1, 0, false, 0, 0},
    {DType::kF16, 1, 0, false, 0.00022, 0.0005},
    {DType::kBF16, 1, 0, false, 0.0017, 0.004},
    {DType::kQ8_0, 32, 255, false, 0.0054, 0.0045},
    {DType::kQ4_0, 32, 16, false, 0.0825, 0.5},
    {DType::kQ4_1, 32, 16, true, 0.0712, 0.5},
    {DType::kQ5_0, 32, 32, false, 0.0403, 0.25},
    {DType::kQ5_1, 32, 32, true, 0.0341, 0.25},
    {DType::kIQ4_NL, 32, 0, false, 0.0740, 0.5},
    {DType::kMXFP4, 32, 0, false, 0.113, 0.5},
    {DType::kQ2_K, 16, 4, true, 0.264, 0.8},
    {DType::kQ3_K, 16, 8, false, 0.146, 0.6},
    {DType::kQ4_K, 32, 16, true, 0.0712, 0.5},
    {DType::kQ5_K, 32, 32, true, 0.0348, 0.25},
    {DType::kQ6_K, 16, 64, false, 0.0168, 0.12},
    {DType::kIQ4_XS, 32, 0, false, 0.0747, 0.5},
    {DType::kQ1_0, 128, 0, false, 0.605, 0.9},
    {DType::kQ2_0, 64, 0, false, 0.356, 0.9},
    {DType::kTQ1_0, 256, 0, false, 0.438, 0.9},
    {DType::kTQ2_0, 256, 0, false, 0.438, 0.9},
    {DType::kIQ1_S, 32, 0, false, 0.447, 0.9},
    {DType::kIQ1_M, 16, 0, false, 0.414, 0.9},
    {DType::kIQ2_XXS, 32, 0, false, 0.330, 0.9},
    {DType::kIQ2_XS, 16, 0, false, 0.288, 0.9},
    {DType::kIQ2_S, 16, 0, false, 0.240, 0.9},
    {DType::kIQ3_XXS, 32, 0, false, 0.179, 0.6},
    {DType::kIQ3_S, 32, 0, false, 0.132, 0.6},
};

// Types without a level close to zero.
bool LacksZero(DType type) {
  const LevelTable table = FormatOf(type).table;
  return type == DType::kIQ1_S ||
         (table != LevelTable::kNone && table != LevelTable::kFp4 && table != LevelTable::kIq4);
}

std::vector<float> Gaussian(int64_t n, float scale, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<std::byte> Encode(DType type, const std::vector<float>& values,
                              const float* importance = nullptr) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> row(RowBytes(type, n), std::byte{0xA5});
  Quantize(type, values.data(), n, importance, row.data());
  return row;
}

std::vector<float> Decode(DType type, const std::vector<std::byte>& row, size_t n) {
  std::vector<float> values(n);
  Dequantize(type, row.data(), static_cast<int64_t>(n), values.data());
  return values;
}

std::vector<float> RoundTrip(DType type, const std::vector<float>& values,
                             const float* importance = nullptr) {
  return Decode(type, Encode(type, values, importance), values.size());
}

double Rmse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// The error of rounding to evenly spaced levels with an unrounded scale.
double PlainRmse(const EncodeCase& c, const std::vector<float>& values) {
  std::vector<float> rounded = values;
  for (size_t at = 0; at < values.size(); at += c.sub) {
    const auto first = values.begin() + static_cast<int64_t>(at), last = first + c.sub;
    const float low = *std::min_element(first, last), high = *std::max_element(first, last);
    const float extreme = -low > high ? low : high;
    const bool odd = c.levels % 2 == 1;  // as many levels above zero as below
    const float zero = c.range ? low : 0;
    const int bottom = c.range ? 0 : -(c.levels / 2), top = bottom + c.levels - 1;
    const float scale = c.range ? (high - low) / top
                        : odd   ? std::fabs(extreme) / top
                                : extreme / bottom;
    for (int i = 0; i < c.sub; ++i) {
      const float level = std::nearbyint((values[at + i] - zero) / scale);
      rounded[at + i] = zero + scale * std::clamp<float>(level, bottom, top);
    }
  }
  return Rmse(values, rounded);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class QuantizeTest : public ::testing::TestWithParam<EncodeCase> {
 protected:
  DType type() const { return GetParam().type; }
};

TEST_P(QuantizeTest, ErrorOnNormalData) {
  const std::vector<float> values = Gaussian(1 << 15, 1.0f, 3);
  const std::vector<float> stored = RoundTrip(type(), values);
  const double rmse = Rmse(values, stored);
  EXPECT_LE(rmse, GetParam().rmse);
  RecordProperty("rmse", std::to_string(rmse));
  if (GetParam().levels > 0) {
    // Rounding the scales costs a little, which Q8_0 cannot make up for.
    const double allowed = type() == DType::kQ8_0 ? 1.001 : 1.0;
    EXPECT_LE(rmse, allowed * PlainRmse(GetParam(), values));
  }
  const int64_t block = std::max<int64_t>(InfoOf(type()).block_values, 1);
  for (size_t at = 0; at < values.size(); at += block) {
    float largest = 0, worst = 0;
    for (size_t i = at; i < at + block; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
      worst = std::max(worst, std::fabs(values[i] - stored[i]));
    }
    constexpr float kSmallestHalf = 0x1p-24f;
    ASSERT_LE(worst, GetParam().worst * largest + kSmallestHalf) << "block at " << at;
  }
}

TEST_P(QuantizeTest, RelativeErrorDoesNotDependOnMagnitude) {
  // From scales so small that halves lose digits to the largest ones.
  const std::vector<float> values = Gaussian(4096, 1.0f, 4);
  const double rmse = Rmse(values, RoundTrip(type(), values));
  for (const float scale : {0x1p-6f, 0x1p-2f, 0x1p4f, 0x1p10f}) {
    std::vector<float> scaled = values;
    for (float& v : scaled) v *= scale;
    EXPECT_LE(Rmse(scaled, RoundTrip(type(), scaled)), 1.1 * rmse * scale) << scale;
  }
}

TEST_P(QuantizeTest, ZerosStayZeros) {
  const std::vector<float> zeros(512, 0.0f);
  EXPECT_TRUE(SameBits(RoundTrip(type(), zeros), zeros));
  // Zeros next to other blocks, too.
  std::vector<float> some = Gaussian(512, 1.0f, 5);
  std::fill(some.begin() + 256, some.end(), 0.0f);
  const std::vector<float> stored = RoundTrip(type(), some);
  for (int i = 256; i < 512; ++i) EXPECT_EQ(stored[i], 0.0f) << i;
}

TEST_P(QuantizeTest, DeterministicAtAnyAddress) {
  const std::vector<float> values = Gaussian(1024, 0.02f, 6);
  const std::vector<std::byte> once = Encode(type(), values);
  EXPECT_EQ(once, Encode(type(), values));
  std::vector<std::byte> moved(once.size() + 3);
  Quantize(type(), values.data(), 1024, nullptr, moved.data() + 3);
  EXPECT_EQ(std::memcmp(once.data(), moved.data() + 3, once.size()), 0);
  // Blocks are encoded independently.
  const int64_t half_bytes = RowBytes(type(), 512);
  const std::vector<std::byte> tail =
      Encode(type(), std::vector<float>(values.begin() + 512, values.end()));
  EXPECT_EQ(std::memcmp(once.data() + half_bytes, tail.data(), half_bytes), 0);
}

TEST_P(QuantizeTest, NonFiniteCountsAsZero) {
  std::vector<float> values = Gaussian(512, 1.0f, 8), cleaned;
  values[3] = INFINITY;
  values[200] = -INFINITY;
  values[301] = NAN;
  cleaned = values;
  cleaned[3] = cleaned[200] = cleaned[301] = 0;
  EXPECT_EQ(Encode(type(), values), Encode(type(), cleaned));
}

TEST_P(QuantizeTest, HugeAndTinyValuesStayFinite) {
  std::mt19937_64 random(9);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> values(256);
    for (float& v : values) {
      do v = std::bit_cast<float>(static_cast<uint32_t>(random()));
      while (!std::isfinite(v));
      if (trial % 3 == 1) v = std::copysign(std::numeric_limits<float>::max(), v);
      if (trial % 3 == 2) v *= 0x1p-120f;
    }
    for (const float v : RoundTrip(type(), values)) ASSERT_TRUE(std::isfinite(v)) << trial;
  }
}

TEST_P(QuantizeTest, ConstantsAndOutliers) {
  for (const float constant : {1.0f, -1.0f, 0.37f, -0.0123f}) {
    const std::vector<float> values(256, constant);
    for (const float v : RoundTrip(type(), values)) {
      EXPECT_NEAR(v, constant, 0.07f * std::fabs(constant));
    }
  }
  if (LacksZero(type())) return;
  // The level nearest to zero of the IQ4 types is 1/127 of the largest.
  std::vector<float> values(256, 0.0f);
  values[77] = -6.0f;
  const std::vector<float> stored = RoundTrip(type(), values);
  for (int i = 0; i < 256; ++i) EXPECT_NEAR(stored[i], values[i], i == 77 ? 0.2 : 6.1 / 127) << i;
}

TEST_P(QuantizeTest, ImportanceFavoursWhatMatters) {
  const bool one_number = type() == DType::kQ1_0 || type() == DType::kTQ1_0 ||
                          type() == DType::kTQ2_0;  // a scale for a whole block
  if (GetParam().worst < 0.01 || one_number) {
    GTEST_SKIP() << "nothing to trade: " << NameOf(type());
  }
  const std::vector<float> values = Gaussian(1 << 14, 1.0f, 10);
  std::vector<float> importance(values.size());
  for (size_t i = 0; i < values.size(); ++i) importance[i] = i % 4 == 0 ? 100.0f : 0.01f;
  const auto weighted = [&](const std::vector<float>& stored) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); i += 4) sum += std::pow(values[i] - stored[i], 2);
    return sum;
  };
  const double without = weighted(RoundTrip(type(), values));
  EXPECT_LT(weighted(RoundTrip(type(), values, importance.data())), 0.97 * without);
  // Constant or invalid weights change nothing.
  const std::vector<float> ones(values.size(), 7.0f), broken(values.size(), -INFINITY);
  EXPECT_EQ(Encode(type(), values), Encode(type(), values, ones.data()));
  EXPECT_EQ(Encode(type(), values), Encode(type(), values, broken.data()));
}

TEST_P(QuantizeTest, EncodingOnceMoreChangesNothing) {
  switch (type()) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      GTEST_SKIP() << "other scales of two levels can mean the same or better";
    default:
      break;
  }
  const std::vector<float> once = RoundTrip(type(), Gaussian(1 << 15, 0.05f, 11));
  const std::vector<float> twice = RoundTrip(type(), once);
  for (size_t i = 0; i < once.size(); ++i) ASSERT_EQ(once[i], twice[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizeTest, ::testing::ValuesIn(kEncodable),
                         [](const ::testing::TestParamInfo<EncodeCase>& info) {
                           return std::string(NameOf(info.param.type));
                         });

TEST(QuantizeTypesTest, WhatIsEncodedCanBeDecoded) {
  for (const EncodeCase& c : kEncodable) {
    EXPECT_TRUE(CanQuantize(c.type)) << NameOf(c.type);
    EXPECT_TRUE(CanDequantize(c.type)) << NameOf(c.type);
  }
  EXPECT_FALSE(CanQuantize(DType::kNVFP4));
  EXPECT_FALSE(CanQuantize(DType::kI8));
}

// Reading a block and writing it again gives the same block, in every byte.
TEST(QuantizeTypesTest, BlocksAreReadAndWritten) {
  std::mt19937 random(12);
  for (const EncodeCase& c : kEncodable) {
    if (c.type == DType::kTQ1_0) continue;  // several bytes stand for the same five numbers
    WithQuantized(c.type, [&]<DType kType>() {
      using Type = Quantized<kType>;
      typename Type::Block block, written;
      ASSERT_EQ(sizeof(block), static_cast<size_t>(InfoOf(kType).block_bytes)) << NameOf(kType);
      ASSERT_EQ(Type::kValues, InfoOf(kType).block_values) << NameOf(kType);
      for (int trial = 0; trial < 1000; ++trial) {
        std::array<uint8_t, sizeof(block)> bytes;
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
        std::memcpy(&block, bytes.data(), sizeof(block));
        BlockParts parts;
        Type::Read(block, 0, &parts);
        if constexpr (requires { Type::Write; }) Type::Write(parts, &written);
        ASSERT_EQ(std::memcmp(&block, &written, sizeof(block)), 0) << NameOf(kType);
      }
    });
  }
}

// Changing one byte of the codes makes no block better.
TEST(QuantizeTypesTest, NoSingleCodeIsBetter) {
  std::mt19937 random(13);
  for (const DType type : {DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS,
                           DType::kIQ3_S, DType::kIQ1_S, DType::kIQ1_M}) {
    const std::vector<float> values = Gaussian(256, 1.0f, 14);
    const std::vector<std::byte> block = Encode(type, values);
    const double error = Rmse(values, Decode(type, block, 256));
    const size_t first = type == DType::kIQ1_M ? 0 : 2;  // the shared scale comes first
    const size_t n_code_bytes = type == DType::kIQ3_XXS || type == DType::kIQ3_S ? 64 : 32;
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<std::byte> other = block;
      other[first + random() % n_code_bytes] = static_cast<std::byte>(random());
      ASSERT_GE(Rmse(values, Decode(type, other, 256)), error * (1 - 1e-6)) << NameOf(type);
    }
  }
}

}  // namespace
}  // namespace weft
