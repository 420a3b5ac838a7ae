#include "base/files/mapping_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

constexpr size_t kPages = 16;
const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// A mapping of an unnamed temporary file; lives as long as the object.
class Mapping {
 public:
  Mapping() {
    std::string path = StrCat(::testing::TempDir(), "weft_guard_XXXXXX");
    fd_ = mkstemp(path.data());
    EXPECT_GE(fd_, 0);
    unlink(path.c_str());
    const std::vector<char> text(kPages * kPage, 'x');
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    void* const mapping = mmap(nullptr, text.size(), PROT_READ, MAP_PRIVATE, fd_, 0);
    EXPECT_NE(mapping, MAP_FAILED);
    data_ = static_cast<std::byte*>(mapping);
  }
  ~Mapping() {
    munmap(data_, size());
    close(fd_);
  }
  void Cut(size_t pages) { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(pages * kPage)), 0); }
  const std::byte* data() const { return data_; }
  static size_t size() { return kPages * kPage; }
  char At(size_t page) const {
    return static_cast<char>(const_cast<const volatile std::byte*>(data_)[page * kPage]);
  }

 private:
  int fd_ = -1;
  std::byte* data_ = nullptr;
};

TEST(MappingGuardTest, WhatCannotBeReadIsZeroAndMarked) {
  Mapping mapping, other;
  const MappingGuard guard(mapping.data(), Mapping::size());
  const MappingGuard other_guard(other.data(), Mapping::size());
  EXPECT_EQ(mapping.At(15), 'x');
  mapping.Cut(4);
  EXPECT_FALSE(guard.damaged());
  EXPECT_EQ(mapping.At(9), 0);
  EXPECT_TRUE(guard.damaged());
  EXPECT_EQ(mapping.At(15), 0);
  EXPECT_EQ(mapping.At(4), 0);
  EXPECT_EQ(mapping.At(3), 'x');
  EXPECT_FALSE(other_guard.damaged());
}

TEST(MappingGuardTest, ARangeIsFreshWhenItsPlaceIsUsedAgain) {
  for (int i = 0; i < 100; ++i) {
    Mapping mapping;
    const MappingGuard guard(mapping.data(), Mapping::size());
    EXPECT_FALSE(guard.damaged());
    mapping.Cut(0);
    EXPECT_EQ(mapping.At(0), 0);
    EXPECT_TRUE(guard.damaged());
  }
  const MappingGuard nothing(nullptr, 0);
  EXPECT_FALSE(nothing.damaged());
}

TEST(MappingGuardTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        Mapping mapping;
        const MappingGuard guard(mapping.data(), Mapping::size());
        mapping.Cut(2);
        std::atomic<int> zeros{0};
        std::thread reader([&] {
          for (size_t page = 2; page < kPages; ++page) zeros += mapping.At(page) == 0 ? 1 : 0;
        });
        for (size_t page = kPages; page-- > 2;) zeros += mapping.At(page) == 0 ? 1 : 0;
        reader.join();
        EXPECT_EQ(zeros, 2 * (static_cast<int>(kPages) - 2));
        EXPECT_TRUE(guard.damaged());
        EXPECT_EQ(mapping.At(1), 'x');
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void ExitWithSeven(int) { _exit(7); }

// Run in separate processes that have not installed a guard yet.
class MappingGuardDeathTest : public ::testing::Test {
 protected:
  MappingGuardDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Installs `former`, then faults once inside a guarded range and once outside.
void FaultElsewhere(void (*former)(int)) {
  signal(SIGBUS, former);
  Mapping mapping, other;
  const MappingGuard guard(mapping.data(), Mapping::size());
  mapping.Cut(0);
  if (mapping.At(1) != 0) _exit(1);
  other.Cut(0);
  (void)other.At(1);
}

void SendTheSignal() {
  signal(SIGBUS, SIG_DFL);
  Mapping mapping;
  const MappingGuard guard(mapping.data(), Mapping::size());
  raise(SIGBUS);
}

TEST_F(MappingGuardDeathTest, AFaultElsewhereEndsTheProcessAsBefore) {
  EXPECT_EXIT(FaultElsewhere(SIG_DFL), ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(SendTheSignal(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappingGuardDeathTest, TheFormerHandlerGetsWhatIsElsewhere) {
  EXPECT_EXIT(FaultElsewhere(ExitWithSeven), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace weft
