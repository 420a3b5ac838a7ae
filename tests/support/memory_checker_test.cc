#include "tests/support/memory_checker.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compute/device/dialect.h"
#include "compute/device/emulated_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// The calls that the compiler inserts in weft_watched_kernels.
extern "C" void __asan_load4_noabort(const void* p);
extern "C" void __asan_store4_noabort(const void* p);

namespace weft::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct CopyArgs {
  const std::byte* from;
};
WEFT_COOPERATIVE_KERNEL(CopyIn, CopyArgs, 32) {
  WEFT_SHARED(uint32_t, words, 4);
  if (ThreadIndex() == 0) CopyWords4(words, 0, a.from);
  CommitCopies();
  WaitCopies<0>();
}

struct TouchArgs {
  const int32_t* read;
  int32_t* written;
};
WEFT_KERNEL(Touch, TouchArgs) {
  if (a.read != nullptr) __asan_load4_noabort(a.read);
  if (a.written != nullptr) __asan_store4_noabort(a.written);
}

class MemoryCheckerTest : public ::testing::Test {
 protected:
  std::vector<std::string> FaultsOf(const int32_t* read, int32_t* written) {
    stream_->Launch(Touch, {}, {read, written});
    EXPECT_TRUE(stream_->Synchronize().ok());
    return checker_.faults();
  }

  testing::MemoryChecker checker_;
  EmulatedDevice device_;
  const std::unique_ptr<Memory> memory_ = *device_.Allocate(100), copy_ = *device_.Allocate(100);
  const std::unique_ptr<Stream> stream_ = *device_.NewStream();
  int32_t* const x_ = memory_->As<int32_t>();
};

TEST_F(MemoryCheckerTest, WhatWasWrittenMayBeRead) {
  EXPECT_THAT(FaultsOf(nullptr, x_ + 24), IsEmpty());
  EXPECT_THAT(FaultsOf(x_ + 24, nullptr), IsEmpty());
  stream_->Fill(memory_->data(), 0, 8);
  EXPECT_THAT(FaultsOf(x_ + 1, nullptr), IsEmpty());
  EXPECT_EQ(checker_.n_accesses(), 3);
}

TEST_F(MemoryCheckerTest, AReadOfWhatNobodyWroteIsFound) {
  EXPECT_THAT(FaultsOf(x_ + 2, nullptr), ElementsAre(HasSubstr("Touch reads what nobody has")));
}

// Checked to the byte, although the emulator's allocation is larger.
TEST_F(MemoryCheckerTest, AnAccessBehindTheEndIsFound) {
  EXPECT_THAT(FaultsOf(nullptr, x_ + 25), ElementsAre(HasSubstr("writes what is not allocated")));
}

// Copies of uninitialized bytes are allowed, since some of the sixteen may be.
TEST_F(MemoryCheckerTest, ACopyToSharedMemoryFromBehindTheEndIsFound) {
  stream_->Launch(CopyIn, {.threads = 32}, {memory_->data() + 80});
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(checker_.faults(), IsEmpty());
  stream_->Launch(CopyIn, {.threads = 32}, {memory_->data() + 96});
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_THAT(checker_.faults(), ElementsAre(HasSubstr("CopyIn copies what is not allocated")));
}

TEST_F(MemoryCheckerTest, CopiesBringWhatIsWritten) {
  EXPECT_THAT(FaultsOf(nullptr, x_), IsEmpty());
  stream_->CopyOnDevice(copy_->data(), memory_->data(), 100);
  const auto* const y = copy_->As<int32_t>();
  EXPECT_THAT(FaultsOf(y, nullptr), IsEmpty());
  EXPECT_THAT(FaultsOf(y + 1, nullptr), ElementsAre(HasSubstr("nobody has written")));
}

}  // namespace
}  // namespace weft::device
