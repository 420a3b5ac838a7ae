#include "tests/support/access_counter.h"

#include <array>
#include <cstdint>
#include <string>

#include "compute/device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::device {
namespace {

using testing::AccessCounter;

struct StrideArgs {
  const uint32_t* x;
  int32_t stride;  // words between lanes
  int32_t words;   // per lane
};
// The call that the compiler inserts in weft_watched_kernels.
extern "C" void __asan_loadN_noabort(const void* p, size_t bytes);
#define WatchLoad __asan_loadN_noabort
WEFT_COOPERATIVE_KERNEL(ReadStrided, StrideArgs, 64) {
  const uint32_t own[1] = {static_cast<uint32_t>(ThreadIndex())};
  for (int i = 0; i < 2; ++i) {
    const uint32_t* const p = a.x + (64 * i + ThreadIndex()) * a.stride;
    WatchLoad(p, 4 * static_cast<size_t>(a.words));
  }
  WatchLoad(a.x, 4);       // all lanes the same
  WatchLoad(&a.words, 4);  // an argument
  WatchLoad(own, 4);       // on the stack
}

WEFT_COOPERATIVE_KERNEL(CopyStrided, StrideArgs, 32) {
  WEFT_SHARED(uint32_t, words, 32 * 32);
  const int t = ThreadIndex();
  CopyWords4(words, 4 * t, a.x + 4 * a.stride * t);
  CommitCopies();
  WaitCopies<0>();
  Barrier();
  static_cast<void>(ReadWords4(words, 4 * t));  // four times eight lanes, using all banks
  Barrier();
  words[a.stride * t] = 1u;
}

AccessCounter::Count CountsOf(const KernelOf<StrideArgs>& kernel, int threads, int stride,
                              int words) {
  alignas(128) static std::array<uint32_t, 128 * 32> memory = {};
  AccessCounter counter;
  counter.Start();
  const StrideArgs args = {memory.data(), stride, words};
  const Status status = emulator::Run(kernel, {.threads = threads}, &args);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(counter.Of("Multiply").requests, 0);
  return counter.Of(kernel.name);
}

TEST(AccessCounterTest, CountsTheSectorsOfWarps) {
  const auto neighbours = CountsOf(ReadStrided, 64, 1, 1);
  EXPECT_EQ(neighbours.requests, 2 * 2 + 2);
  EXPECT_EQ(neighbours.sectors, 2 * 2 * 4 + 2);
  EXPECT_EQ(neighbours.lines, 2 * 2 + 2);
  EXPECT_EQ(neighbours.SectorRatio(), 1);
  const auto wide = CountsOf(ReadStrided, 64, 4, 4);
  EXPECT_EQ(wide.sectors, 2 * 2 * 16 + 2);
  EXPECT_EQ(wide.SectorRatio(), 1);
  EXPECT_EQ(CountsOf(ReadStrided, 64, 2, 1).SectorRatio(), 2);
  EXPECT_EQ(CountsOf(ReadStrided, 64, 32, 1).SectorRatio(), 8);
}

TEST(AccessCounterTest, CountsTheBanksOfSharedMemory) {
  EXPECT_EQ(CountsOf(CopyStrided, 32, 1, 0).SharedRatio(), 1);
  EXPECT_EQ(CountsOf(CopyStrided, 32, 1, 0).SectorRatio(), 1);
  const auto strided = CountsOf(CopyStrided, 32, 2, 0);
  EXPECT_EQ(strided.shared_cycles, 4 + 2);
  EXPECT_EQ(strided.SectorRatio(), 2 * 16 / 16.0);
  EXPECT_EQ(CountsOf(CopyStrided, 32, 32, 0).shared_cycles, 4 + 32);
  EXPECT_EQ(CountsOf(CopyStrided, 32, 31, 0).shared_cycles, 4 + 1);
}

}  // namespace
}  // namespace weft::device
