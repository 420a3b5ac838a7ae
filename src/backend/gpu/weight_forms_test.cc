// Every type of weights on the kernels: decoded exactly, multiplied as the definition says, and
// with the same bits whatever the number of rows and lanes.
#include "backend/gpu/weight_forms.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "device/emulator.h"
#include "gtest/gtest.h"
#include "kernels/quants/quants.h"

namespace weft::gpu {
namespace {

using device::emulator::Order;

constexpr int64_t kIn = 768;  // six chunks of inputs, three super-blocks
constexpr int64_t kOut = 37;
constexpr int64_t kRows = 11;

std::vector<DType> Types() {
  std::vector<DType> types;
  for (uint32_t number = 0; number < 64; ++number) {
    const DTypeInfo* const info = FindDType(number);
    if (info != nullptr && CanDequantize(info->type)) types.push_back(info->type);
  }
  return types;
}

template <typename T>
void Launch(const device::KernelOf<T>& kernel, const device::LaunchShape& shape, const T& args,
            Order order = Order::kAscending) {
  const Status status = device::emulator::Run(kernel, shape, &args, order);
  ASSERT_TRUE(status.ok()) << status;
}

class WeightFormTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const DType type = GetParam();
    std::vector<std::byte> file(static_cast<size_t>(kOut * RowBytes(type, kIn)));
    if (CanQuantize(type)) {
      std::vector<float> row(kIn);
      for (int64_t o = 0; o < kOut; ++o) {
        for (float& value : row) value = 0.1f * normal(random);
        Quantize(type, row.data(), kIn, nullptr, file.data() + o * RowBytes(type, kIn));
      }
    } else {
      for (std::byte& byte : file) byte = static_cast<std::byte>(random() & 0x3F);
    }
    const PartBytes bytes = BytesOfRow(type, kIn);
    levels_.resize(static_cast<size_t>(kOut * bytes.levels));
    meta_.resize(static_cast<size_t>(kOut * bytes.meta) + 1);
    super_.resize(static_cast<size_t>(kOut * bytes.super) + 2);
    weights_.resize(static_cast<size_t>(kOut * kIn));
    for (int64_t o = 0; o < kOut; ++o) {
      const std::byte* const row = file.data() + o * RowBytes(type, kIn);
      PackRow(type, row, kIn, levels_.data() + o * bytes.levels, meta_.data() + o * bytes.meta,
              super_.data() + o * bytes.super);
      Dequantize(type, row, kIn, weights_.data() + o * kIn);
    }
    matrix_ = {reinterpret_cast<const uint32_t*>(levels_.data()),
               reinterpret_cast<const uint8_t*>(meta_.data()),
               reinterpret_cast<const uint16_t*>(super_.data()), kIn, kOut};
    x_.resize(kRows * kIn);
    for (float& value : x_) value = normal(random);
    q_.resize(kRows * kIn);
    scales_.resize(kRows * kIn / 32);
    sums_.resize(kRows * kIn / 32);
    device::QuantizeArgs args;
    args.x = {x_.data(), kIn};
    args.out = {q_.data(), scales_.data(), sums_.data()};
    args.n_blocks = kIn / 32;
    args.head_rows = kRows;
    args.n_rows = &n_rows_;
    Launch(device::QuantizeRows, {1, kRows, 1, device::kQuantizeThreads}, args);
  }

  std::vector<float> Multiply(const device::KernelOf<device::MatmulArgs>& kernel, int rows_each,
                              int lanes, Order order = Order::kAscending) {
    std::vector<float> out(kRows * kOut, -1);
    device::MatmulArgs args;
    args.matrix = matrix_;
    args.x = {x_.data(), kIn};
    args.q = {q_.data(), scales_.data(), sums_.data()};
    args.out = {out.data(), kOut};
    args.n_rows = &n_rows_;
    args.lanes = lanes;
    Launch(kernel,
           {device::CeilDiv(kOut, device::kMatmulThreads / lanes),
            device::CeilDiv(kRows, rows_each), 1, device::kMatmulThreads},
           args, order);
    return out;
  }

  std::vector<float> MultiplyByTiles(Order order) {
    std::vector<float> out(kRows * kOut, -1);
    device::MatmulArgs args;
    args.matrix = matrix_;
    args.q = {q_.data(), scales_.data(), sums_.data()};
    args.out = {out.data(), kOut};
    args.n_rows = &n_rows_;
    Launch(*FormOf(GetParam())->multiply_tiles,
           {device::CeilDiv(kOut, device::kTileOutputs), device::CeilDiv(kRows, device::kTileRows),
            1, device::kMatmulThreads},
           args, order);
    return out;
  }

  // What an activation is worth in a product.
  double XAt(int64_t row, int64_t i) const {
    if (!FormOf(GetParam())->int8) return x_[row * kIn + i];
    return double{scales_[(row * kIn + i) / 32]} * q_[row * kIn + i];
  }

  std::vector<std::byte> levels_, meta_, super_;
  std::vector<float> weights_, x_, scales_;
  std::vector<int8_t> q_;
  std::vector<int32_t> sums_;
  device::MatrixView matrix_;
  int32_t n_rows_ = kRows;
};

TEST_P(WeightFormTest, ProductsAreWhatTheBlocksMean) {
  const auto out = Multiply(*FormOf(GetParam())->multiply, device::kMatmulRows, 8);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < kIn; ++i) {
        const double product = weights_[o * kIn + i] * XAt(row, i);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[row * kOut + o], sum, 1e-5 * magnitude) << "row " << row << ", output " << o;
    }
  }
}

TEST_P(WeightFormTest, TheSameBitsForAnyRowsLanesAndOrder) {
  const WeightForm& form = *FormOf(GetParam());
  const auto expected = Multiply(*form.multiply, device::kMatmulRows, 8);
  const auto same = [&](const std::vector<float>& out) {
    return std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0;
  };
  for (const int lanes : {1, 2, 4, 32}) {
    EXPECT_TRUE(same(Multiply(*form.multiply, device::kMatmulRows, lanes))) << lanes << " lanes";
    EXPECT_TRUE(same(Multiply(*form.multiply_one, 1, lanes))) << "a row, " << lanes << " lanes";
  }
  EXPECT_TRUE(same(Multiply(*form.multiply, device::kMatmulRows, 8, Order::kDescending)));
  if (form.multiply_tiles == nullptr) return;
  EXPECT_TRUE(same(MultiplyByTiles(Order::kAscending)));
  EXPECT_TRUE(same(MultiplyByTiles(Order::kDescending)));
}

TEST_P(WeightFormTest, TablesAreDecodedExactly) {
  std::vector<float> out(kRows * kIn);
  const std::vector<int32_t> index = {36, 0, 5, 5, 17, 1, 2, 3, 4, 30, 31};
  device::EmbedArgs args;
  args.table = matrix_;
  args.index = index.data();
  args.out = {out.data(), kIn};
  args.n_rows = &n_rows_;
  Launch(*FormOf(GetParam())->embed, {1, kRows, 1, device::kEmbedThreads}, args);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kIn; ++i) {
      ASSERT_EQ(out[row * kIn + i], weights_[index[row] * kIn + i]) << "row " << row << ", " << i;
    }
  }
}

// Planted: levels that are not the file's.
TEST_P(WeightFormTest, AWrongLevelShows) {
  const auto expected = Multiply(*FormOf(GetParam())->multiply, device::kMatmulRows, 8);
  levels_[1] ^= std::byte{0x11};
  const auto out = Multiply(*FormOf(GetParam())->multiply, device::kMatmulRows, 8);
  EXPECT_NE(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightFormTest, ::testing::ValuesIn(Types()),
                         [](const auto& type) { return std::string(NameOf(type.param)); });

}  // namespace
}  // namespace weft::gpu
