// Fused kernels give the same bits as the launches that they replace, and quantized activations
// those of a plain loop.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "compute/gpu/builder.h"
#include "compute/gpu/kernel_test_util.h"
#include "compute/gpu/weight_forms.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::gpu {
namespace fused {
namespace {

using device::Int8View;
using device::kBlockInputs;

// Rows of activations, quantized to bytes.
struct Bytes {
  Bytes(int64_t n_rows, int64_t width)
      : q(static_cast<size_t>(n_rows * width), 77),
        meta(
            static_cast<size_t>(n_rows * device::MetaWords(static_cast<int>(width / kBlockInputs))),
            77) {}
  Int8View view() { return {q.data(), meta.data()}; }

  std::vector<int8_t> q;
  std::vector<uint32_t> meta;
};

template <typename T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
bool Same(const Bytes& a, const Bytes& b) { return Same(a.q, b.q) && Same(a.meta, b.meta); }

// Quantizes a block of 32 values one by one, as kernels.h defines it.
void QuantizeInOrder(const float* x, int8_t* q, uint32_t* meta) {
  float max = 0;
  bool finite = true;
  for (int i = 0; i < kBlockInputs; ++i) {
    finite = finite && std::isfinite(x[i]);
    max = std::max(max, std::abs(x[i]));
  }
  const bool scaled = finite && max >= std::ldexp(1.0f, -110);
  int32_t halves[2] = {0, 0};
  for (int i = 0; i < kBlockInputs; ++i) {
    q[i] = scaled ? static_cast<int8_t>(std::nearbyint(x[i] * (127.0f / max))) : int8_t{0};
    halves[i / 16] += q[i];
  }
  meta[0] = std::bit_cast<uint32_t>(scaled   ? max / 127.0f
                                    : finite ? 0.0f
                                             : std::numeric_limits<float>::quiet_NaN());
  meta[4] = static_cast<uint32_t>(halves[1]) << 16 | (static_cast<uint32_t>(halves[0]) & 0xFFFF);
  meta[8] = std::bit_cast<uint32_t>(static_cast<float>(halves[0] + halves[1]));
}

class FusedKernelsTest : public ::testing::Test {
 protected:
  float Normal() { return std::normal_distribution<float>()(random_); }
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  std::vector<float> Floats(int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = Normal();
    return values;
  }

  std::mt19937_64 random_{11};
};

TEST_F(FusedKernelsTest, BytesAreThoseOfAPlainLoop) {
  for (int round = 0; round < 40; ++round) {
    const int64_t n_rows = Between(1, 3), n_blocks = Between(1, 40), width = n_blocks * 32;
    // Rows may start at any alignment.
    const int64_t stride = width + Between(0, 5);
    std::vector<float> x = Floats(n_rows * stride);
    const float odd[] = {0, 1e-38f, std::ldexp(1.0f, -110), INFINITY, NAN, 3e38f};
    for (const float value : odd) x[static_cast<size_t>(Between(0, std::ssize(x) - 1))] = value;
    std::fill_n(x.begin(), 32, round % 3 == 0 ? 1e-36f : x[0]);
    const auto n = static_cast<int32_t>(n_rows);
    Bytes out(n_rows, width), expected(n_rows, width);
    const RowSet rows = {&n, n_rows + 1};
    RunKernel(device::QuantizeRows, QuantizeShapeOf(width, rows, 1),
              QuantizeArgsOf({x.data(), stride}, width, out.view(), rows));
    std::ranges::fill(expected.meta, 0);  // and of blocks beyond a row's end
    for (int64_t block = 0; block < n_rows * n_blocks; ++block) {
      const int64_t at = device::MetaAt(static_cast<int>(n_blocks), block / n_blocks,
                                        static_cast<int>(block % n_blocks));
      QuantizeInOrder(x.data() + block / n_blocks * stride + block % n_blocks * 32,
                      expected.q.data() + block * 32, expected.meta.data() + at);
    }
    ASSERT_TRUE(Same(out, expected)) << round;
  }
}

device::NormArgs NormOf(const device::NormPart& part, const Rows& rows, const int32_t* n_rows) {
  device::NormArgs args;
  args.x = args.out = rows;
  args.group = part.width;
  args.norm = part;
  args.n_rows = n_rows;
  return args;
}

// Adds, and norms before and after, to floats and bytes, against one launch for each; any of them
// may be absent.
TEST_F(FusedKernelsTest, WhatLiesBetweenProductsHasTheBitsOfItsSteps) {
  for (int round = 0; round < 40; ++round) {
    const int64_t n = Between(1, 3), width = 32 * Between(1, round < 30 ? 20 : 130);
    const auto n_rows = static_cast<int32_t>(n);
    const auto size = static_cast<size_t>(n * width);
    const std::vector<float> weights = Floats(width), biases = Floats(width);
    const auto part = [&]() -> device::NormPart {
      if (Between(0, 2) == 0) return {};
      return {weights.data(),
              Between(0, 1) == 1 ? biases.data() : nullptr,
              static_cast<int32_t>(width),
              static_cast<int32_t>(width),
              static_cast<int32_t>(Between(0, 1)),
              1e-5f,
              1.5f};
    };
    std::vector<float> stream = Floats(n * width), y = Floats(n * width), out(size, 0);
    std::vector<float> expected_stream = stream, expected_y = y;
    Bytes bytes(n, width), expected_bytes(n, width);
    const bool adds = Between(0, 3) > 0;
    device::StreamArgs args;
    args.x = {stream.data(), width};
    if (adds) args.y = {y.data(), width};
    if (adds) args.post = part();
    args.norm = part();
    args.y_scale = 0.7f;
    args.scale = Between(0, 1) == 1 ? 1.0f : 1.3f;
    args.out = {out.data(), width};
    args.bytes = bytes.view();
    args.width = static_cast<int32_t>(width);
    args.n_rows = &n_rows;
    const device::LaunchShape shape = {1, static_cast<int>(n) + 1, 1, device::StreamThreads(width)};
    RunKernel(width <= device::kShortRow ? device::AdvanceShortRows : device::AdvanceLongRows,
              shape, args);

    const auto norm = [&](const device::NormPart& how, float* values) {
      if (how.width == 0) return;
      RunKernel(device::NormRows, {1, static_cast<int>(n), 1, device::NormThreads(width)},
                NormOf(how, {values, width}, &n_rows));
    };
    norm(args.post, expected_y.data());
    device::ScaleArgs sum;
    sum.stream = {expected_stream.data(), width};
    sum.y = {expected_y.data(), width};
    sum.width = args.width;
    sum.y_scale = args.y_scale;
    sum.scale = args.scale;
    sum.n_rows = &n_rows;
    if (adds) RunKernel(device::ScaleRows, ColumnsShape(width, n), sum);
    ASSERT_TRUE(Same(stream, expected_stream)) << round;
    norm(args.norm, expected_stream.data());
    ASSERT_TRUE(Same(out, expected_stream)) << round;
    const RowSet rows = {&n_rows, n};
    RunKernel(device::QuantizeRows, QuantizeShapeOf(width, rows, 1),
              QuantizeArgsOf({expected_stream.data(), width}, width, expected_bytes.view(), rows));
    ASSERT_TRUE(Same(bytes, expected_bytes)) << round;
  }
}

TEST_F(FusedKernelsTest, AnActivationIsQuantizedAsItWouldBe) {
  for (int round = 0; round < 30; ++round) {
    const int64_t n = Between(1, 3), width = 32 * Between(1, 40);
    const auto n_rows = static_cast<int32_t>(n);
    std::vector<float> gate = Floats(n * width), up = Floats(n * width), out(gate.size());
    device::ActivateBytesArgs args;
    args.rows.gate = {gate.data(), width};
    if (round % 4 > 0) args.rows.up = {up.data(), width};
    args.rows.kind = static_cast<device::Act>(round % 6);
    args.rows.limit = 1.5f;
    args.rows.width = static_cast<int32_t>(width);
    args.rows.n_rows = &n_rows;
    args.n_blocks = static_cast<int32_t>(width / kBlockInputs);
    Bytes bytes(n, width), expected(n, width);
    args.out = bytes.view();
    const RowSet rows = {&n_rows, n};
    RunKernel(device::ActivateBytes, QuantizeShapeOf(width, rows, 1), args);
    device::ActivateArgs floats = args.rows;
    floats.out = {out.data(), width};
    RunKernel(device::ActivateRows, ColumnsShape(width, n), floats);
    RunKernel(device::QuantizeRows, QuantizeShapeOf(width, rows, 1),
              QuantizeArgsOf(floats.out, width, expected.view(), rows));
    ASSERT_TRUE(Same(bytes, expected)) << round;
  }
}

// A kernel of products, and the outputs and rows of one block (0 outputs: as many as its lanes
// allow).
struct ProductKernel {
  const device::KernelOf<device::MatmulArgs>* kernel;
  int outputs, rows;
};
ProductKernel ProductKernelOf(int number) {
  const WeightForm& form = *FormOf(DType::kQ8_0);
  const ProductKernel kernels[] = {
      {form.multiply_one, device::kBandOutputs, 1},
      {form.multiply, 0, device::kMatmulRows},
      {form.multiply_few, device::kBandOutputs, device::kMatmulRows},
      {form.multiply_tiles, device::kBandOutputs, device::kTileRows},
      {form.multiply_many, device::kTileBands * device::kBandOutputs, device::kTileRows}};
  return kernels[number];
}

// Every kernel of products with a fused activation, for all widths, with and without a gate.
TEST_F(FusedKernelsTest, AProductThatActivatesHasTheBitsOfItsSteps) {
  for (int round = 0; round < 30; ++round) {
    const auto [kernel, outputs, run] = ProductKernelOf(round % 5);
    const int64_t n = run == 1 ? 1 : Between(1, 40), width = 32 * Between(1, 5);
    const int64_t n_in = 32 * Between(1, round % 2 == 0 ? 4 : 20);
    const bool gated = round % 3 > 0;
    const int64_t n_out = gated ? 2 * width : width;
    const auto n_rows = static_cast<int32_t>(n);
    const RowSet rows = {&n_rows, n + 1};
    const PartBytes of_row = BytesOfRow(DType::kQ8_0, n_in);
    std::vector<uint32_t> levels(
        static_cast<size_t>(device::PaddedOutputs(n_out) * of_row.levels / 4));
    for (uint32_t& level : levels) level = static_cast<uint32_t>(random_());
    std::vector<uint16_t> scales(
        static_cast<size_t>(device::PaddedOutputs(n_out) * of_row.meta / 2));
    for (uint16_t& scale : scales) scale = F32ToF16(Normal() / 500);
    const std::vector<float> x = Floats(n * n_in), bias = Floats(n_out);
    Bytes q(n, n_in);
    RunKernel(device::QuantizeRows, QuantizeShapeOf(n_in, rows, 1),
              QuantizeArgsOf({const_cast<float*>(x.data()), n_in}, n_in, q.view(), rows));

    std::vector<float> out(static_cast<size_t>(n * n_out));
    Bytes bytes(n, width), expected(n, width);
    device::MatmulArgs args;
    args.matrix = {levels.data(), reinterpret_cast<const uint8_t*>(scales.data()), nullptr,
                   static_cast<int32_t>(n_in), static_cast<int32_t>(n_out)};
    args.q = q.view();
    args.out = {out.data(), n_out};
    args.bias = bias.data();
    args.n_rows = &n_rows;
    args.lanes = device::MatmulLanes(n_in);
    device::ActivateBytesArgs then;
    then.rows.gate = {out.data() + (gated ? width : 0), n_out};
    if (gated) then.rows.up = args.out;
    then.rows.kind = static_cast<device::Act>(round % 6);
    then.rows.limit = 1.5f;
    then.rows.n_rows = &n_rows;
    then.n_blocks = static_cast<int32_t>(width / kBlockInputs);
    then.out = expected.view();
    const device::LaunchShape shape = {
        device::CeilDiv(n_out, outputs > 0 ? outputs : device::kMatmulThreads / args.lanes),
        device::CeilDiv(rows.most, run), 1, device::kMatmulThreads};
    RunKernel(*kernel, shape, args);
    RunKernel(device::ActivateBytes, QuantizeShapeOf(width, rows, 1), then);

    // Twice: the kernel must have reset the arrival counters to 0.
    std::vector<int32_t> arrivals(static_cast<size_t>(shape.grid_y * then.n_blocks), 0);
    then.out = bytes.view();
    args.then = then;
    args.arrivals = arrivals.data();
    for (int time = 0; time < 2; ++time) {
      bytes = Bytes(n, width);
      args.then.out = bytes.view();
      std::ranges::fill(out, -1.0f);
      RunKernel(*kernel, shape, args);
      ASSERT_TRUE(Same(bytes, expected)) << round;
      ASSERT_THAT(arrivals, ::testing::Each(0)) << round;
    }
  }
}

// Heads of random sizes, normed, rotated and stored as floats in pages of one position.
TEST_F(FusedKernelsTest, HeadsHaveTheBitsOfNormsRotationAndCopies) {
  for (int round = 0; round < 30; ++round) {
    const int64_t n = Between(1, 3), dim = 8 * Between(1, 32), n_heads = Between(0, 5),
                  n_kv = Between(1, 3), pairs = Between(1, dim / 2);
    const auto n_rows = static_cast<int32_t>(n);
    const std::vector<float> weights = Floats(dim), table = Floats(n * 2 * pairs);
    std::vector<float> q = Floats(n * std::max<int64_t>(1, n_heads) * dim),
                       k = Floats(n * n_kv * dim), v = Floats(n * n_kv * dim);
    std::vector<float> page(static_cast<size_t>(2 * n * n_kv * dim));
    std::byte* const slab = reinterpret_cast<std::byte*>(page.data());
    const std::vector<int32_t> positions(static_cast<size_t>(n), 0), numbers = {0, 1, 2};
    device::HeadsArgs args;
    args.step.n_rows = &n_rows;
    args.step.positions = positions.data();
    args.step.sequences = args.step.pages = args.step.table_begins = numbers.data();
    args.kv.pool = {&slab, 30, 2 * n_kv * dim * 4};
    args.kv.keys = {.head = dim, .token = 0, .dim = 1};
    args.kv.values = {.offset = n_kv * dim * 4, .head = dim, .token = 0, .dim = 1};
    args.kv.k_dim = args.kv.v_dim = static_cast<int32_t>(dim);
    const device::NormPart norm = {
        weights.data(), nullptr, args.kv.k_dim, args.kv.k_dim, static_cast<int32_t>(round % 2),
        1e-6f,          1.0f};
    if (round % 3 != 0) args.q_norm = args.k_norm = norm;
    if (round % 5 == 0) args.v_norm = norm;
    args.q = {q.data(), std::max<int64_t>(1, n_heads) * dim};
    args.k = {k.data(), n_kv * dim};
    args.v = {v.data(), n_kv * dim};
    args.q_head = dim;
    args.n_heads = static_cast<int32_t>(n_heads);
    args.n_kv_heads = static_cast<int32_t>(n_kv);
    args.rope = table.data();
    args.n_pairs = static_cast<int32_t>(pairs);
    args.adjacent = static_cast<int32_t>(Between(0, 1));

    std::vector<float> expected_q = q, expected_k = k, expected_v = v;
    const auto finish = [&](std::vector<float>& x, int64_t heads, const device::NormPart& how,
                            bool turns) {
      const Rows rows = {x.data(), heads * dim};
      const auto n_groups = static_cast<int>(heads);
      if (how.width != 0 && heads > 0) {
        RunKernel(device::NormRows, {n_groups, static_cast<int>(n), 1, device::NormThreads(dim)},
                  NormOf(how, rows, &n_rows));
      }
      if (!turns || heads == 0) return;
      RunKernel(device::RotateRows, ColumnsShape(pairs, n, heads),
                {rows, dim, table.data(), args.n_pairs, args.adjacent, &n_rows});
    };
    finish(expected_q, n_heads, args.q_norm, true);
    finish(expected_k, n_kv, args.k_norm, true);
    finish(expected_v, n_kv, args.v_norm, false);
    RunKernel(device::FinishHeadsF32,
              {device::CeilDiv(n_heads + 2 * n_kv, device::kHeadWarps), static_cast<int>(n) + 1, 1,
               device::kHeadWarps * 32},
              args);
    ASSERT_TRUE(Same(q, expected_q)) << round;
    for (int64_t row = 0; row < n; ++row) {
      const float* const stored = page.data() + row * 2 * n_kv * dim;
      const auto bytes = static_cast<size_t>(n_kv * dim * 4);
      ASSERT_EQ(std::memcmp(stored, expected_k.data() + row * n_kv * dim, bytes), 0) << round;
      ASSERT_EQ(std::memcmp(stored + n_kv * dim, expected_v.data() + row * n_kv * dim, bytes), 0);
    }
  }
}

}  // namespace
}  // namespace fused
}  // namespace weft::gpu
