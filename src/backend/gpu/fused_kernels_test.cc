// Kernels that do in one launch what several did have the bits of those, and activations as bytes
// those of a plain loop.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/gpu/builder.h"
#include "device/emulator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::gpu {
namespace fused {
namespace {

using device::Int8View;
using device::kBlockInputs;

// As kernels are launched; `order` of blocks and threads must not matter.
template <typename Args>
void RunKernel(const device::KernelOf<Args>& kernel, const device::LaunchShape& shape,
               const Args& args) {
  const Status status =
      device::emulator::Run(kernel, shape, &args, device::emulator::Order::kDescending);
  ASSERT_TRUE(status.ok()) << status;
}

// Rows of activations as bytes.
struct Bytes {
  Bytes(int64_t n_rows, int64_t width)
      : q(static_cast<size_t>(n_rows * width), 77),
        scales(q.size() / kBlockInputs, -7),
        sums(q.size() / kBlockInputs, -7) {}
  Int8View view() { return {q.data(), scales.data(), sums.data()}; }

  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

template <typename T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
bool Same(const Bytes& a, const Bytes& b) {
  return Same(a.q, b.q) && Same(a.scales, b.scales) && Same(a.sums, b.sums);
}

// A block of 32 as kernels.h says, value by value.
void QuantizeInOrder(const float* x, int8_t* q, float* scale, int32_t* sum) {
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
  *scale = scaled ? max / 127.0f : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  *sum = static_cast<int32_t>(static_cast<uint32_t>(halves[1]) << 16 |
                              (static_cast<uint32_t>(halves[0]) & 0xFFFF));
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
    // Rows may begin anywhere.
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
    for (int64_t block = 0; block < n_rows * n_blocks; ++block) {
      QuantizeInOrder(x.data() + block / n_blocks * stride + block % n_blocks * 32,
                      expected.q.data() + block * 32, expected.scales.data() + block,
                      expected.sums.data() + block);
    }
    ASSERT_TRUE(Same(out, expected)) << round;
  }
}

}  // namespace
}  // namespace fused
}  // namespace weft::gpu
