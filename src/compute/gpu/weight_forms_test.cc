// Every weight type on the kernels: decoded exactly, multiplied as defined, and with the same bits
// for any number of rows and lanes.
#include "compute/gpu/weight_forms.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "compute/device/emulator.h"
#include "compute/gpu/kernel_test_util.h"
#include "compute/kernels/quants/quants.h"
#include "gtest/gtest.h"

namespace weft::gpu {
namespace {

using device::emulator::Order;

constexpr int64_t kOut = 37;
constexpr int64_t kRows = 11;

struct Form {
  DType type;
  int64_t n_in;
};

// Rows of six chunks of inputs, which are three super-blocks. Types with small blocks also get
// seventeen chunks and a part, whose scales are unaligned.
std::vector<Form> Forms() {
  std::vector<Form> forms;
  for (uint32_t number = 0; number < 64; ++number) {
    const DTypeInfo* const info = FindDType(number);
    if (info == nullptr || !CanDequantize(info->type)) continue;
    forms.push_back({info->type, 768});
    if (96 % info->block_values == 0) {
      forms.push_back({info->type, 17 * 128 + 96});
    }
  }
  return forms;
}

class WeightFormTest : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const DType type = GetParam().type;
    std::vector<std::byte> file(static_cast<size_t>(kOut * RowBytes(type, n_in_)));
    if (CanQuantize(type)) {
      std::vector<float> row(n_in_);
      for (int64_t o = 0; o < kOut; ++o) {
        for (float& value : row) value = 0.1f * normal(random);
        Quantize(type, row.data(), n_in_, nullptr, file.data() + o * RowBytes(type, n_in_));
      }
    } else {
      for (std::byte& byte : file) byte = static_cast<std::byte>(random() & 0x3F);
    }
    const PartBytes bytes = BytesOfRow(type, n_in_);
    const int64_t n_rows = device::PaddedOutputs(kOut);
    levels_.resize(static_cast<size_t>(n_rows * bytes.levels));
    meta_.resize(static_cast<size_t>(n_rows * bytes.meta) + 1);
    super_.resize(static_cast<size_t>(n_rows * bytes.super) + 2);
    weights_.resize(static_cast<size_t>(kOut * n_in_));
    for (int64_t o = 0; o < kOut; ++o) {
      const std::byte* const row = file.data() + o * RowBytes(type, n_in_);
      const int place = static_cast<int>(o % device::kBandOutputs);
      const int64_t band = o - place;
      PackRow(type, row, n_in_, place, levels_.data() + band * bytes.levels,
              meta_.data() + band * bytes.meta, super_.data() + band * bytes.super);
      Dequantize(type, row, n_in_, weights_.data() + o * n_in_);
    }
    matrix_ = {reinterpret_cast<const uint32_t*>(levels_.data()),
               reinterpret_cast<const uint8_t*>(meta_.data()),
               reinterpret_cast<const uint16_t*>(super_.data()), static_cast<int32_t>(n_in_), kOut};
    x_.resize(kRows * n_in_);
    for (float& value : x_) value = normal(random);
    q_.resize(kRows * n_in_);
    q_meta_.resize(static_cast<size_t>(kRows * device::MetaWords(static_cast<int>(n_in_ / 32))));
    device::QuantizeArgs args;
    args.x = {x_.data(), n_in_};
    args.out = {q_.data(), q_meta_.data()};
    args.n_blocks = static_cast<int32_t>(n_in_ / 32);
    args.head_rows = kRows;
    args.n_rows = &n_rows_;
    RunKernel(device::QuantizeRows,
              {device::CeilDiv(args.n_blocks, device::kQuantizeBlocks), kRows, 1,
               device::kQuantizeThreads},
              args, Order::kAscending);
  }

  device::MatmulArgs ArgsFor(std::vector<float>* out) {
    out->assign(kRows * kOut, -1);
    device::MatmulArgs args;
    args.matrix = matrix_;
    args.x = {x_.data(), n_in_};
    args.q = {q_.data(), q_meta_.data()};
    args.out = {out->data(), kOut};
    args.n_rows = &n_rows_;
    return args;
  }

  std::vector<float> Multiply(int lanes, Order order = Order::kAscending) {
    std::vector<float> out;
    device::MatmulArgs args = ArgsFor(&out);
    args.lanes = lanes;
    RunKernel(*FormOf(GetParam().type)->multiply,
              {device::CeilDiv(kOut, device::kMatmulThreads / lanes),
               device::CeilDiv(kRows, device::kMatmulRows), 1, device::kMatmulThreads},
              args, order);
    return out;
  }

  // In blocks of `outputs` outputs and `rows` rows.
  std::vector<float> MultiplyBy(const device::KernelOf<device::MatmulArgs>& kernel, int outputs,
                                int rows, Order order = Order::kAscending) {
    std::vector<float> out;
    RunKernel(
        kernel,
        {device::CeilDiv(kOut, outputs), device::CeilDiv(kRows, rows), 1, device::kMatmulThreads},
        ArgsFor(&out), order);
    return out;
  }

  // The value of a (quantized) activation in a product.
  double XAt(int64_t row, int64_t i) const {
    if (!FormOf(GetParam().type)->int8) return x_[row * n_in_ + i];
    const auto at = device::MetaAt(static_cast<int>(n_in_ / 32), row, static_cast<int>(i / 32));
    return double{std::bit_cast<float>(q_meta_[static_cast<size_t>(at)])} * q_[row * n_in_ + i];
  }

  const int64_t n_in_ = GetParam().n_in;
  std::vector<std::byte> levels_, meta_, super_;
  std::vector<float> weights_, x_;
  std::vector<int8_t> q_;
  std::vector<uint32_t> q_meta_;
  device::MatrixView matrix_;
  int32_t n_rows_ = kRows;
};

TEST_P(WeightFormTest, ProductsAreWhatTheBlocksMean) {
  const auto out = Multiply(8);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t o = 0; o < kOut; ++o) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < n_in_; ++i) {
        const double product = weights_[o * n_in_ + i] * XAt(row, i);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[row * kOut + o], sum, 1e-5 * magnitude) << "row " << row << ", output " << o;
    }
  }
}

TEST_P(WeightFormTest, TheSameBitsForAnyRowsLanesAndOrder) {
  const WeightForm& form = *FormOf(GetParam().type);
  const auto expected = Multiply(8);
  const auto same = [&](const std::vector<float>& out) {
    return std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0;
  };
  for (const int lanes : {1, 2, 4, 32}) EXPECT_TRUE(same(Multiply(lanes))) << lanes << " lanes";
  EXPECT_TRUE(same(Multiply(8, Order::kDescending)));
  const int of_one = form.int8 ? device::kBandOutputs : device::kMatmulThreads / 32;
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    EXPECT_TRUE(same(MultiplyBy(*form.multiply_one, of_one, 1, order)));
    if (form.multiply_tiles == nullptr) continue;
    EXPECT_TRUE(
        same(MultiplyBy(*form.multiply_few, device::kBandOutputs, device::kMatmulRows, order)));
    EXPECT_TRUE(
        same(MultiplyBy(*form.multiply_tiles, device::kBandOutputs, device::kTileRows, order)));
    EXPECT_TRUE(same(MultiplyBy(*form.multiply_many, device::kTileBands * device::kBandOutputs,
                                device::kTileRows, order)));
  }
}

TEST_P(WeightFormTest, TablesAreDecodedExactly) {
  std::vector<float> out(kRows * n_in_);
  const std::vector<int32_t> index = {36, 0, 5, 5, 17, 1, 2, 3, 4, 30, 31};
  device::EmbedArgs args;
  args.table = matrix_;
  args.index = index.data();
  args.out = {out.data(), n_in_};
  args.n_rows = &n_rows_;
  RunKernel(*FormOf(GetParam().type)->embed,
            {device::CeilDiv(n_in_, device::kBlockInputs * device::kEmbedThreads), kRows, 1,
             device::kEmbedThreads},
            args, Order::kAscending);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < n_in_; ++i) {
      ASSERT_EQ(out[row * n_in_ + i], weights_[index[row] * n_in_ + i])
          << "row " << row << ", " << i;
    }
  }
}

// A planted fault: levels that differ from the file's.
TEST_P(WeightFormTest, AWrongLevelShows) {
  const auto expected = Multiply(8);
  levels_[1] ^= std::byte{0x11};
  const auto out = Multiply(8);
  EXPECT_NE(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightFormTest, ::testing::ValuesIn(Forms()), [](const auto& form) {
  return StrCat(NameOf(form.param.type), "_", form.param.n_in);
});

}  // namespace
}  // namespace weft::gpu
