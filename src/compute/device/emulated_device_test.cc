#include "compute/device/emulated_device.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compute/device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::device {
namespace {

using ::testing::HasSubstr;

struct AddArgs {
  float* x;
  float added;
};
WEFT_KERNEL(AddToAll, AddArgs) { a.x[ThreadIndex()] = a.x[ThreadIndex()] + a.added; }

constexpr int kValues = 8;
constexpr int64_t kBytes = kValues * 4;

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  EmulatedDeviceTest()
      : memory_(*device_.Allocate(kBytes)),
        host_(*device_.AllocatePinned(kBytes)),
        stream_(*device_.NewStream()),
        event_(*device_.NewEvent()) {
    SetHost(1);
  }
  void SetHost(float value) { std::fill_n(host_->As<float>(), kValues, value); }
  float host() const { return host_->As<float>()[kValues - 1]; }
  AddArgs Adding(float x) { return {memory_->As<float>(), x}; }
  void Add(float x) { stream_->Launch(AddToAll, {.threads = kValues}, Adding(x)); }
  void Load() { stream_->CopyToDevice(memory_->data(), host_->data(), kBytes); }
  void Store() { stream_->CopyToHost(host_->data(), memory_->data(), kBytes); }

  EmulatedDevice device_;
  std::unique_ptr<Memory> memory_, host_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> event_;
};

TEST_F(EmulatedDeviceTest, WorkHappensInOrderAndNotBeforeSomebodyWaits) {
  Load();
  Add(2);
  Store();
  stream_->Record(event_.get());
  Add(100);
  EXPECT_EQ(host(), 1) << "nobody has waited";
  EXPECT_EQ(device_.n_launches(), 0);
  ASSERT_TRUE(WaitFor(device_, event_.get()).ok());
  EXPECT_EQ(host(), 3);
  EXPECT_EQ(device_.n_launches(), 1) << "no further than the event";
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(device_.n_launches(), 2);
}

// A pending copy reads its source when it runs, so changing the source changes the result.
TEST_F(EmulatedDeviceTest, CopiesReadWhatIsThereWhenTheyRun) {
  Load();
  SetHost(7);
  Store();
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(host(), 7);
}

TEST_F(EmulatedDeviceTest, AStreamWaitsForAnother) {
  const auto other = *device_.NewStream();
  stream_->Fill(memory_->data(), 0, kBytes);
  Add(4);
  stream_->Record(event_.get());
  Add(1000);
  other->WaitFor(*event_);
  other->CopyToHost(host_->data(), memory_->data(), kBytes);
  ASSERT_TRUE(other->Synchronize().ok());
  EXPECT_EQ(host(), 4);
}

TEST_F(EmulatedDeviceTest, GraphsAreReplayed) {
  const auto graph = device_.NewGraph();
  graph->Add(AddToAll, {.threads = kValues}, Adding(1));
  graph->Add(AddToAll, {.threads = kValues}, Adding(10));
  ASSERT_TRUE(graph->Finish().ok());
  Load();
  stream_->Replay(*graph);
  stream_->Replay(*graph);
  Store();
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(host(), 23);
}

TEST_F(EmulatedDeviceTest, MemoryIsCountedWhileItIsHeld) {
  EXPECT_EQ(device_.held_bytes(), kBytes);
  EXPECT_EQ(device_.pinned_bytes(), kBytes);
  auto more = *device_.Allocate(1000);
  EXPECT_EQ(device_.held_bytes(), kBytes + 1000);
  more.reset();
  EXPECT_EQ(device_.held_bytes(), kBytes);
}

TEST_F(EmulatedDeviceTest, MemoryBeginsAsRubbish) {
  Store();
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_NE(host(), host()) << "NaN";
}

TEST_F(EmulatedDeviceTest, TheNthAllocationFails) {
  device_.faults().until_allocation_fails = 2;
  EXPECT_TRUE(device_.Allocate(100).ok());
  const auto failed = device_.Allocate(100);
  EXPECT_EQ(failed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(device_.Allocate(100).ok()) << "once";
  EXPECT_EQ(device_.held_bytes(), kBytes);
}

TEST_F(EmulatedDeviceTest, AFailedLaunchIsToldOnceToItsStreamAlone) {
  const auto other = *device_.NewStream();
  device_.faults().until_launch_fails = 2;
  Load();
  Add(1);
  Add(1);
  Add(1);
  Store();
  const Status status = stream_->Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("AddToAll"));
  EXPECT_EQ(host(), 3) << "what follows goes on";
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(other->Synchronize().ok());
}

TEST_F(EmulatedDeviceTest, WhoeverWaitsForALostEventIsTold) {
  device_.set_patience(std::chrono::milliseconds(5));
  device_.faults().until_event_is_lost = 1;
  Load();
  stream_->Record(event_.get());
  const Status status = WaitFor(device_, event_.get());
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("emulator"));
  stream_->Record(event_.get());
  EXPECT_TRUE(WaitFor(device_, event_.get()).ok()) << "the next time it comes";
}

TEST_F(EmulatedDeviceTest, AWaitCanBeGivenUp) {
  for (int i = 0; i < 1000; ++i) Add(0);
  stream_->Record(event_.get());
  int n_asked = 0;
  const auto passed = WaitFor(device_, event_.get(), [&] { return ++n_asked == 3; });
  ASSERT_TRUE(passed.ok());
  EXPECT_FALSE(*passed);
  EXPECT_LT(device_.n_launches(), 1000);
}

}  // namespace
}  // namespace weft::device
