#include "tests/support/race_finder.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compute/device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// The calls that the compiler inserts in weft_watched_kernels.
extern "C" void __asan_load4_noabort(const void* p);
extern "C" void __asan_store4_noabort(const void* p);

namespace weft::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum Fault { kNoFault, kNoBarrier, kReadsOtherBlock, kWritesWhatAllRead, kAllWriteOne };
struct PassOnArgs {
  int32_t* x;
  int32_t fault;
};
// Each thread writes its word and, after a barrier, reads its neighbour's.
WEFT_COOPERATIVE_KERNEL(PassOn, PassOnArgs, 32) {
  const int t = ThreadIndex();
  int32_t* const own = a.x + 32 * BlockX();
  __asan_load4_noabort(a.x + 64);  // read by all threads
  __asan_store4_noabort(own + t);
  if (a.fault != kNoBarrier) Barrier();
  __asan_load4_noabort(own + (t + 1) % 32);
  if (a.fault == kReadsOtherBlock && t == 0) __asan_load4_noabort(a.x);
  if (a.fault == kWritesWhatAllRead && BlockX() == 1 && t == 7) __asan_store4_noabort(a.x + 64);
  if (a.fault == kAllWriteOne) __asan_store4_noabort(a.x + 65);
}

std::vector<std::string> RacesOf(int fault, emulator::Order order = emulator::Order::kAscending) {
  std::array<int32_t, 66> memory = {};
  testing::RaceFinder finder;
  const PassOnArgs args = {memory.data(), fault};
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(emulator::Run(PassOn, {.grid_x = 2, .threads = 32}, &args, order).ok());
  }
  EXPECT_EQ(finder.n_launches(), 2);
  return finder.races();
}

TEST(RaceFinderTest, LaunchesAndBarriersPutInOrder) { EXPECT_THAT(RacesOf(kNoFault), IsEmpty()); }

TEST(RaceFinderTest, AMissingBarrierIsFound) {
  EXPECT_THAT(RacesOf(kNoBarrier), Contains(HasSubstr("another thread")));
  EXPECT_THAT(RacesOf(kNoBarrier, emulator::Order::kDescending),
              Contains(HasSubstr("another thread")));
}

TEST(RaceFinderTest, WhatOtherBlocksWriteIsFound) {
  for (const auto order : {emulator::Order::kAscending, emulator::Order::kDescending}) {
    EXPECT_THAT(RacesOf(kReadsOtherBlock, order),
                ElementsAre(AllOf(HasSubstr("PassOn"), HasSubstr("another block"))));
    EXPECT_THAT(RacesOf(kWritesWhatAllRead, order), Not(IsEmpty()));
    EXPECT_THAT(RacesOf(kAllWriteOne, order), Contains(HasSubstr("another block writes")));
  }
}

struct MeetArgs {
  int32_t* x;
  int32_t* count;
  bool last_alone;  // reads the others' writes
};
WEFT_COOPERATIVE_KERNEL(MeetOthers, MeetArgs, 32) {
  WEFT_SHARED(int32_t, last, 1);
  const int t = ThreadIndex();
  __asan_store4_noabort(a.x + 32 * BlockX() + t);
  Barrier();
  if (t == 0) last[0] = Arrive(a.count, 1, 3) ? 1 : 0;
  Barrier();
  if (a.last_alone && last[0] == 0) return;
  for (int block = 0; block < 3; ++block) __asan_load4_noabort(a.x + 32 * block + t);
}

TEST(RaceFinderTest, TheLastToArriveMayReadWhatTheOthersWrote) {
  for (const bool last_alone : {true, false}) {
    std::array<int32_t, 96> memory = {};
    int32_t count = 0;
    testing::RaceFinder finder;
    const MeetArgs args = {memory.data(), &count, last_alone};
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(emulator::Run(MeetOthers, {.grid_x = 3, .threads = 32}, &args).ok());
    }
    EXPECT_EQ(count, 0);
    EXPECT_EQ(finder.races().empty(), last_alone);
  }
}

}  // namespace
}  // namespace weft::device
