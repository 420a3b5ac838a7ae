#include "device/emulator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::device {
namespace {

using emulator::Order;
using ::testing::HasSubstr;

struct SumArgs {
  const float* x;
  float* out;  // per block
  int32_t n;   // values of a block
  int32_t fault;
};

// The sum of a block's values, by a tree in shared memory; with faults to be found.
enum Fault { kNone, kNoBarrier, kBranchBarrier, kEarlyReturn, kTwoBarriers };

WEFT_COOPERATIVE_KERNEL(BlockSums, SumArgs, 64) {
  WEFT_SHARED(float, parts, 64);
  const int t = ThreadIndex();
  if (a.fault == kEarlyReturn && t == 5) return;
  float sum = 0.0f;
  for (int i = t; i < a.n; i += 64) sum = sum + a.x[BlockX() * a.n + i];
  parts[t] = sum;
  for (int half = 32; half > 0; half /= 2) {
    if (a.fault != kNoBarrier && (a.fault != kBranchBarrier || t < half)) Barrier();
    if (a.fault == kTwoBarriers && half == 8) {
      if (t < 32) {
        Barrier();
      } else {
        Barrier();
      }
    }
    if (t < half) parts[t] = parts[t] + parts[t + half];
  }
  if (t == 0) a.out[BlockX()] = parts[0];
}

struct ShuffleArgs {
  float* out;
  int32_t fault;
};
WEFT_COOPERATIVE_KERNEL(WarpSums, ShuffleArgs, 64) {
  float value = static_cast<float>(ThreadIndex());
  if (a.fault != 0 && ThreadIndex() == 40) return;
  for (int mask = 16; mask > 0; mask /= 2) value = value + ShuffleXor(value, mask);
  a.out[ThreadIndex()] = value + 1000.0f * Shuffle(static_cast<float>(ThreadIndex()), 3);
}

WEFT_COOPERATIVE_KERNEL(TooMuchShared, ShuffleArgs, 32) {
  WEFT_SHARED(float, many, kSharedBytes / 4);
  WEFT_SHARED(float, more, 1);
  many[ThreadIndex()] = 1.0f;
  Barrier();
  a.out[ThreadIndex()] = ThreadIndex() == 0 ? static_cast<float>(more[0]) : 0.0f;
}

// Every thread says where it was, in the order in which it was there.
struct TraceArgs {
  int32_t* trace;
  int32_t* n;
};
WEFT_KERNEL(Trace, TraceArgs) {
  a.trace[(*a.n)++] = ((BlockZ() * 10 + BlockY()) * 10 + BlockX()) * 10 + ThreadIndex();
}

class BlockSumsTest : public ::testing::TestWithParam<Order> {
 protected:
  Status Sum(int fault) {
    const SumArgs args = {values_.data(), sums_.data(), 100, fault};
    return emulator::Run(BlockSums, {.grid_x = 3, .threads = 64}, &args, GetParam());
  }
  std::vector<float> values_ = std::vector<float>(300, 1.0f);
  std::vector<float> sums_ = std::vector<float>(3);
};

TEST_P(BlockSumsTest, Adds) {
  values_[250] = 5;
  const Status status = Sum(kNone);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(sums_, ::testing::ElementsAre(100, 100, 104));
}

TEST_P(BlockSumsTest, AMissingBarrierIsFound) {
  const Status status = Sum(kNoBarrier);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(status)),
              AllOf(HasSubstr("BlockSums"), HasSubstr("since the last barrier"),
                    HasSubstr("emulator_test.cc")));
  // And nothing stays behind.
  EXPECT_TRUE(Sum(kNone).ok());
}

TEST_P(BlockSumsTest, ABarrierInABranchIsFound) {
  EXPECT_THAT(std::string(Message(Sum(kBranchBarrier))), HasSubstr("do not reach"));
  EXPECT_THAT(std::string(Message(Sum(kTwoBarriers))), HasSubstr("do not reach"));
  EXPECT_TRUE(Sum(kNone).ok());
}

TEST_P(BlockSumsTest, AThreadThatLeavesBeforeABarrierIsFound) {
  EXPECT_THAT(std::string(Message(Sum(kEarlyReturn))), HasSubstr("do not reach"));
  EXPECT_TRUE(Sum(kNone).ok());
}

INSTANTIATE_TEST_SUITE_P(Orders, BlockSumsTest,
                         ::testing::Values(Order::kAscending, Order::kDescending),
                         [](const auto& order) {
                           return order.param == Order::kAscending ? "ascending" : "descending";
                         });

TEST(EmulatorTest, LanesExchangeValues) {
  std::vector<float> out(64);
  ShuffleArgs args = {out.data(), 0};
  ASSERT_TRUE(emulator::Run(WarpSums, {.threads = 64}, &args).ok());
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(out[static_cast<size_t>(i)], i < 32 ? 496 + 3000 : 1520 + 35000) << i;
  }
  args.fault = 1;
  EXPECT_THAT(std::string(Message(emulator::Run(WarpSums, {.threads = 64}, &args))),
              HasSubstr("other lanes"));
}

TEST(EmulatorTest, HoldsKernelsToTheLimitsOfDevices) {
  std::vector<float> out(32);
  const ShuffleArgs args = {out.data(), 0};
  EXPECT_THAT(std::string(Message(emulator::Run(TooMuchShared, {.threads = 32}, &args))),
              HasSubstr("more shared memory"));
  for (const LaunchShape& shape :
       {LaunchShape{.threads = 33}, LaunchShape{.threads = 2048}, LaunchShape{.threads = 0},
        LaunchShape{.grid_x = 0, .threads = 32}, LaunchShape{.grid_y = 70000, .threads = 32}}) {
    EXPECT_THAT(std::string(Message(emulator::Run(WarpSums, shape, &args))),
                HasSubstr("cannot be launched"));
  }
}

TEST(EmulatorTest, TakesBlocksAndThreadsInEitherOrder) {
  std::vector<int32_t> trace(16);
  int32_t n = 0;
  const TraceArgs args = {trace.data(), &n};
  const LaunchShape shape = {2, 2, 2, 2};
  ASSERT_TRUE(emulator::Run(Trace, shape, &args).ok());
  ASSERT_EQ(n, 16);
  EXPECT_EQ(trace[0], 0);
  EXPECT_EQ(trace[1], 1);
  EXPECT_EQ(trace[2], 10);
  EXPECT_EQ(trace[15], 1111);
  std::vector<int32_t> backwards = trace;
  std::reverse(backwards.begin(), backwards.end());
  n = 0;
  ASSERT_TRUE(emulator::Run(Trace, shape, &args, Order::kDescending).ok());
  EXPECT_EQ(trace, backwards);
}

TEST(DialectTest, DotsOfBytesAreSigned) {
  EXPECT_EQ(DotBytes(0x80FF7F01u, 0x807F7F02u, 10), 10 + 2 + 127 * 127 - 127 + 128 * 128);
}

}  // namespace
}  // namespace weft::device
