#include "compute/device/emulator.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "compute/device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::device {
namespace {

using emulator::Order;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct SumArgs {
  const float* x;
  float* out;  // per block
  int32_t n;   // values per block
  int32_t fault;
};

// Sums a block's values with a tree in shared memory; optionally with a fault.
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

// Copies four rows of 32 words, with two copies pending at a time, and adds up a neighbour's words.
enum CopyFault {
  kCopiesWell,
  kNoWait,           // reads before waiting for the copy
  kWaitsForTooFew,   // reads after waiting for too few groups
  kNoBarrierBehind,  // reads another thread's copy
  kCopiesTooEarly,   // overwrites words that another thread has yet to read
  kWritesOver,       // writes to the target of a pending copy
  kNeverWaits,
  kCopiesToOddWord,
  kLeavesUncommitted
};
struct CopyArgs {
  const float* x;
  float* out;
  int32_t fault;
};
WEFT_STAGING_KERNEL(CopiedSums, CopyArgs, 32, 1024) {
  WEFT_DYNAMIC_SHARED(float, rows, 0, 2 * 128);
  const int t = ThreadIndex();
  const auto begin = [&](int row) {
    CopyWords4(rows, row % 2 * 128 + 4 * t, a.x + 128 * row + 4 * t);
    if (a.fault != kLeavesUncommitted || row < 3) CommitCopies();
  };
  float sum = 0.0f;
  begin(0);
  for (int row = 0; row < 4; ++row) {
    if (row < 3) begin(row + 1);
    if (a.fault == kWritesOver && row == 1 && t == 3) rows[12] = 0.0f;
    if (a.fault == kCopiesToOddWord && row == 2) CopyWords4(rows, 4 * t + 2, a.x);
    if (a.fault == kWaitsForTooFew) WaitCopies<2>();
    if (a.fault != kNoWait && a.fault != kWaitsForTooFew && row < 3) WaitCopies<1>();
    if (row == 3 && a.fault != kNeverWaits) WaitCopies<0>();
    if (row == 3 && a.fault == kNeverWaits) break;
    if (a.fault != kNoBarrierBehind) Barrier();
    const Words4 its = ReadWords4(rows, row % 2 * 128 + 4 * (t ^ 1));
    for (int i = 0; i < 4; ++i) sum = sum + FloatOf(its.w[i]);
    if (a.fault != kCopiesTooEarly) Barrier();
  }
  a.out[t] = sum;
}

WEFT_STAGING_KERNEL(TooMuchDynamic, ShuffleArgs, 32, 1024) {
  WEFT_DYNAMIC_SHARED(float, some, 0, 128);
  WEFT_DYNAMIC_SHARED(float, more, 128, 129);
  some[ThreadIndex()] = 1.0f;
  a.out[ThreadIndex()] = some[ThreadIndex()];
  static_cast<void>(more);
}
WEFT_STAGING_KERNEL(BothKinds, ShuffleArgs, 32, kSharedBytes - 256) {
  WEFT_SHARED(float, own, 61);
  WEFT_DYNAMIC_SHARED(uint32_t, given, 4, kSharedBytes / 4 - 64 - 4);
  const int t = ThreadIndex();
  own[t] = 1.0f;
  const Words4 mine = {{1u, 2u, static_cast<uint32_t>(t), 4u}};
  WriteWords4(given, 4 * t, mine);
  Barrier();
  const int next = (t + 1) % 32;
  a.out[t] = own[next] + static_cast<float>(ReadWords4(given, 4 * next).w[2]);
}

struct WideArgs {
  const std::byte* from;
  std::byte* to;
};
WEFT_KERNEL(LoadWide, WideArgs) {
  const Words4 x = LoadWords4(a.from);
  StoreWords4(a.to, x);
  const Words2 y = LoadWords2(a.from + 8);
  Store(reinterpret_cast<uint16_t*>(a.to),
        Load(reinterpret_cast<const uint16_t*>(a.from)) + (y.w[0] == x.w[2] ? 1 : 0));
}

// Every thread records its position, in the order in which threads run.
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
  // The next launch is not affected.
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
  EXPECT_THAT(std::string(Message(emulator::Run(TooMuchDynamic, {.threads = 32}, &args))),
              HasSubstr("than the kernel is launched with"));
  for (const LaunchShape& shape :
       {LaunchShape{.threads = 33}, LaunchShape{.threads = 2048}, LaunchShape{.threads = 0},
        LaunchShape{.threads = 96}, LaunchShape{.grid_x = 0, .threads = 32},
        LaunchShape{.grid_y = 70000, .threads = 32}}) {
    EXPECT_THAT(std::string(Message(emulator::Run(WarpSums, shape, &args))),
                HasSubstr("cannot be launched"));
  }
}

TEST(EmulatorTest, GivesSharedMemoryOfBothKinds) {
  std::vector<float> out(32);
  const ShuffleArgs args = {out.data(), 0};
  const Status status = emulator::Run(BothKinds, {.threads = 32}, &args);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[31], 1);
}

class CopiesTest : public ::testing::TestWithParam<Order> {
 protected:
  CopiesTest() { std::iota(values_.begin(), values_.end(), 0.0f); }
  Status Sum(int fault) {
    const CopyArgs args = {values_.data(), out_.data(), fault};
    return emulator::Run(CopiedSums, {.threads = 32}, &args, GetParam());
  }
  std::string ComplaintAbout(int fault) {
    const std::string text(Message(Sum(fault)));
    EXPECT_THAT(text, AnyOf(HasSubstr("CopiedSums"), ::testing::IsEmpty()));
    EXPECT_TRUE(Sum(kCopiesWell).ok()) << "nothing stays behind of " << text;
    return text;
  }
  alignas(16) std::array<float, 512> values_;
  std::array<float, 32> out_;
};

TEST_P(CopiesTest, BringWhatTheyAreWaitedFor) {
  ASSERT_TRUE(Sum(kCopiesWell).ok()) << Sum(kCopiesWell);
  EXPECT_EQ(out_[0], 4 * (4 + 5 + 6 + 7) + 4 * 128 * (1 + 2 + 3));
  EXPECT_EQ(out_[31], 4 * (120 + 121 + 122 + 123) + 4 * 128 * (1 + 2 + 3));
}

TEST_P(CopiesTest, AUseBeforeTheWaitIsFound) {
  EXPECT_THAT(ComplaintAbout(kNoWait), HasSubstr("reads shared memory before the copy"));
  EXPECT_THAT(ComplaintAbout(kWaitsForTooFew), HasSubstr("reads shared memory before the copy"));
  EXPECT_THAT(ComplaintAbout(kWritesOver), HasSubstr("writes shared memory before the copy"));
}

// The order decides which of the two uses is first, so either complaint is right.
TEST_P(CopiesTest, AMissingBarrierIsFound) {
  for (const int fault : {kNoBarrierBehind, kCopiesTooEarly}) {
    EXPECT_THAT(ComplaintAbout(fault),
                AnyOf(HasSubstr("another thread wrote since"),
                      HasSubstr("another thread read since"), HasSubstr("before the copy")));
  }
}

TEST_P(CopiesTest, ACopyThatNobodyWaitsForIsFound) {
  EXPECT_THAT(ComplaintAbout(kNeverWaits), HasSubstr("ends before it has waited for the copy"));
  EXPECT_THAT(ComplaintAbout(kLeavesUncommitted), HasSubstr("before the copy"));
}

TEST_P(CopiesTest, WordsAreAligned) {
  EXPECT_THAT(ComplaintAbout(kCopiesToOddWord), HasSubstr("shared memory that are not aligned"));
}

INSTANTIATE_TEST_SUITE_P(Orders, CopiesTest,
                         ::testing::Values(Order::kAscending, Order::kDescending),
                         [](const auto& order) {
                           return order.param == Order::kAscending ? "ascending" : "descending";
                         });

TEST(EmulatorTest, WideLoadsAndStoresAreAligned) {
  alignas(16) std::array<std::byte, 64> from = {}, to = {};
  from[4] = std::byte{7};
  WideArgs args = {from.data(), to.data()};
  const Status status = emulator::Run(LoadWide, {}, &args);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(to[4], std::byte{7});
  EXPECT_EQ(to[0], std::byte{1});
  for (const auto& [from_at, to_at] : {std::pair(8, 0), std::pair(0, 4)}) {
    args = {from.data() + from_at, to.data() + to_at};
    EXPECT_THAT(std::string(Message(emulator::Run(LoadWide, {}, &args))),
                AllOf(HasSubstr("LoadWide"), HasSubstr("not aligned to all of them")));
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

struct ArriveArgs {
  int32_t* count;
  int32_t* n_last;
  int32_t each, all;
};
WEFT_COOPERATIVE_KERNEL(ArriveTogether, ArriveArgs, 32) {
  Barrier();
  if (ThreadIndex() == 0 && Arrive(a.count, a.each, a.all)) *a.n_last += 1;
  Barrier();
}

TEST(EmulatorTest, OneBlockIsTheLastToArriveAndNoneIsTooMany) {
  int32_t count = 0, n_last = 0;
  ArriveArgs args = {&count, &n_last, 8, 32};
  for (const Order order : {Order::kAscending, Order::kDescending}) {
    ASSERT_TRUE(emulator::Run(ArriveTogether, {.grid_x = 4, .threads = 32}, &args, order).ok());
  }
  EXPECT_EQ(count, 0);
  EXPECT_EQ(n_last, 2);
  args.all = 12;
  const Status status = emulator::Run(ArriveTogether, {.grid_x = 4, .threads = 32}, &args);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("counts more arrivals than there are"));
}

}  // namespace
}  // namespace weft::device
