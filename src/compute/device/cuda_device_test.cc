// The runtime's calls to NVIDIA's driver, tested with a fake driver.
#include "compute/device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "compute/device/dialect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda.h"

namespace weft::device {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using weft::testing::FakeCuda;

struct RaiseArgs {
  float* x;
  float added;
};
WEFT_KERNEL(RaiseAll, RaiseArgs) { a.x[ThreadIndex()] = a.x[ThreadIndex()] + a.added; }
// Breaks the dialect's rules, as a real device would not survive.
WEFT_COOPERATIVE_KERNEL(WaitInBranch, RaiseArgs, 32) {
  if (ThreadIndex() < 3) Barrier();
}
// Needs more shared memory than a launch gets by default.
WEFT_STAGING_KERNEL(RaiseThroughShared, RaiseArgs, 32, kSharedBytes) {
  WEFT_DYNAMIC_SHARED(float, staged, kSharedBytes / 4 - 32, 32);
  const int t = ThreadIndex();
  staged[t] = a.x[t % 8] + a.added;
  Barrier();
  if (t < 8) a.x[t] = staged[t];
}
struct NoArgs {
  int nothing;
};
WEFT_KERNEL(NotInTheImage, NoArgs) { static_cast<void>(a); }

constexpr int kValues = 8;
constexpr int64_t kBytes = kValues * 4;

std::string TextOf(const Status& status) { return std::string(Message(status)); }

class CudaDeviceTest : public ::testing::Test {
 protected:
  StatusOr<std::shared_ptr<CudaDevice>> Open(int number = 0, bool graphs = true) {
    return CudaDevice::Open(fake_.driver(), number, fake_.images(),
                            {.graphs = graphs, .patience = std::chrono::milliseconds(20)});
  }

  // Uses everything that the runtime offers. Starting from zeros, the sum is 1 + 2 + 2 + 3.
  StatusOr<float> RunAll(CudaDevice* device) {
    WEFT_ASSIGN_OR_RETURN(const auto memory, device->Allocate(kBytes));
    WEFT_ASSIGN_OR_RETURN(const auto copy, device->Allocate(kBytes));
    WEFT_ASSIGN_OR_RETURN(const auto host, device->AllocatePinned(kBytes));
    WEFT_ASSIGN_OR_RETURN(const auto stream, device->NewStream());
    WEFT_ASSIGN_OR_RETURN(const auto other, device->NewStream());
    WEFT_ASSIGN_OR_RETURN(const auto event, device->NewEvent());
    const auto graph = device->NewGraph();
    graph->Add(RaiseAll, {.threads = kValues}, {copy->As<float>(), 2});
    graph->Add(RaiseThroughShared, {.threads = 32}, {copy->As<float>(), 2});
    WEFT_RETURN_IF_ERROR(graph->Finish());
    std::fill_n(host->As<float>(), kValues, 1.0f);
    stream->Fill(memory->data(), 0, kBytes);
    stream->CopyToDevice(memory->data(), host->data(), kBytes);
    stream->CopyOnDevice(copy->data(), memory->data(), kBytes);
    stream->Record(event.get());
    other->WaitFor(*event);
    other->Replay(*graph);
    other->Launch(RaiseAll, {.threads = kValues}, {copy->As<float>(), 3});
    other->CopyToHost(host->data(), copy->data(), kBytes);
    other->Record(event.get());
    WEFT_RETURN_IF_ERROR(stream->TakeError());
    WEFT_RETURN_IF_ERROR(WaitFor(*device, event.get()));
    WEFT_RETURN_IF_ERROR(other->TakeError());
    WEFT_RETURN_IF_ERROR(stream->Synchronize());
    return host->As<float>()[kValues - 1];
  }

  StatusOr<float> OpenAndRunAll(bool graphs) {
    WEFT_ASSIGN_OR_RETURN(const auto device, Open(0, graphs));
    return RunAll(device.get());
  }

  FakeCuda fake_{{{}, {.name = "Loom 9001"}}, {&RaiseAll, &RaiseThroughShared, &WaitInBranch}};
};

TEST_F(CudaDeviceTest, WorkIsDoneInOrderWithGraphsAndWithout) {
  for (const bool graphs : {true, false}) {
    const auto sum = OpenAndRunAll(graphs);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(*sum, 8);
    EXPECT_EQ(fake_.n_alive(), 0);
    EXPECT_EQ(fake_.n_current(), 0);
  }
  EXPECT_EQ(fake_.CallsOf("cuGraphLaunch"), 1);
  EXPECT_EQ(fake_.CallsOf("cuLaunchKernel"), 1 + 3);
}

TEST_F(CudaDeviceTest, StreamsHavePriorities) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto usual = (*device)->NewStream();
  const auto low = (*device)->NewStream(Priority::kLow);
  ASSERT_TRUE(usual.ok() && low.ok());
  EXPECT_THAT(fake_.stream_priorities(), ::testing::ElementsAre(-5, 0));
}

// The host must check this itself, because only the card would notice.
TEST_F(CudaDeviceTest, ALaunchWithMoreThreadsThanTheKernelIsCompiledForIsRefused) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = (*device)->NewStream();
  ASSERT_TRUE(stream.ok());
  (*stream)->Launch(RaiseThroughShared, {.threads = 64}, {nullptr, 0});
  EXPECT_THAT(TextOf((*stream)->TakeError()), HasSubstr("launch RaiseThroughShared"));
}

TEST_F(CudaDeviceTest, MemoryIsCountedAndRefusedWhereThereIsNone) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  {
    const auto memory = (*device)->Allocate(1000);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*device)->held_bytes(), 1000);
    const auto info = CudaMemoryOf(fake_.driver(), 0);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->total_bytes - info->free_bytes, 1000);
    const auto too_much = (*device)->Allocate(int64_t{1} << 30);
    EXPECT_EQ(too_much.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(TextOf(too_much.status()),
                AllOf(HasSubstr("CUDA device 0 (Loom 9000)"), HasSubstr("1.0 GiB")));
  }
  EXPECT_EQ((*device)->held_bytes(), 0);
}

// Every driver error becomes a status, and nothing leaks.
TEST_F(CudaDeviceTest, EveryCallMayFail) {
  int n_functions = 0;
#define WEFT_NAME_(member, symbol, arguments) #symbol,
  for (const std::string function : {WEFT_CUDA_FUNCTIONS(WEFT_NAME_)}) {
#undef WEFT_NAME_
    // Functions that free something have nobody to report to, and cannot run without a context.
    const bool gives_back =
        function.find("Push") != function.npos || function.find("Destroy") != function.npos ||
        function.find("Free") != function.npos || function.find("Release") != function.npos ||
        function.find("Pop") != function.npos || function.find("Unload") != function.npos;
    if (gives_back) continue;
    for (int64_t n = 1;; ++n) {
      fake_.Plant(function, n, cuda::kOutOfMemory);
      const auto sum = OpenAndRunAll(n % 2 == 1);
      if (!fake_.struck()) {
        EXPECT_TRUE(sum.ok()) << function << ' ' << n << ' ' << sum.status();
        n_functions += n > 1 ? 1 : 0;
        break;
      }
      // Destroying a stream queries it, too.
      if (sum.ok() && n > 1 && function == "cuStreamQuery") break;
      // Without a graph, kernels are launched one by one.
      const bool does_without = function == "cuGraphInstantiateWithFlags";
      EXPECT_THAT(sum.status().code(),
                  does_without ? Matcher<StatusCode>(StatusCode::kOk)
                               : AnyOf(StatusCode::kResourceExhausted, StatusCode::kInternal))
          << function << ' ' << n;
      EXPECT_EQ(fake_.n_alive(), 0) << function << ' ' << n;
      EXPECT_EQ(fake_.n_current(), 0) << function << ' ' << n;
    }
  }
  EXPECT_GT(n_functions, 20);
  fake_.Plant("cuCtxPushCurrent_v2", 1, cuda::kOutOfMemory);
  EXPECT_EQ(Open().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(fake_.n_alive(), 0);
}

TEST_F(CudaDeviceTest, WhatHangsIsToldOf) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  fake_.Hang(2);
  EXPECT_EQ(RunAll(device->get()).status().code(), StatusCode::kDeadlineExceeded);
  fake_.Unhang();
  const auto again = RunAll(device->get());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, 8);
}

TEST_F(CudaDeviceTest, AKernelsFaultEndsItsCardAndNoOther) {
  {
    const auto hurt = Open(0), well = Open(1);
    ASSERT_TRUE(hurt.ok() && well.ok());
    const auto memory = (*hurt)->Allocate(kBytes);
    const auto stream = (*hurt)->NewStream();
    ASSERT_TRUE(memory.ok() && stream.ok());
    (*stream)->Launch(WaitInBranch, {.threads = 32}, {(*memory)->As<float>(), 0});
    const Status status = (*stream)->Synchronize();
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(TextOf(status), AllOf(HasSubstr("CUDA device 0 (Loom 9000)"),
                                      HasSubstr("CUDA_ERROR_LAUNCH_FAILED: so it was planted"),
                                      HasSubstr("start it again")));
    EXPECT_FALSE(RunAll(hurt->get()).ok());
    EXPECT_TRUE(RunAll(well->get()).ok());
  }
  EXPECT_EQ(fake_.n_current(), 0);
}

TEST_F(CudaDeviceTest, AKernelThatWasNotCompiledIsNamed) {
  const auto device = Open();
  ASSERT_TRUE(device.ok());
  const auto stream = (*device)->NewStream();
  ASSERT_TRUE(stream.ok());
  (*stream)->Launch(NotInTheImage, {}, {});
  EXPECT_THAT(TextOf((*stream)->TakeError()), HasSubstr("NotInTheImage"));
  EXPECT_TRUE((*stream)->TakeError().ok());
}

TEST_F(CudaDeviceTest, WhatCannotBeOpenedSaysWhy) {
  EXPECT_THAT(TextOf(Open(2).status()), HasSubstr("CUDA device 2"));
  fake_.Plant("cuModuleLoadData", 1, cuda::kNoBinaryForDevice);
  EXPECT_THAT(TextOf(Open().status()), HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90"));
  fake_.Plant("cuModuleLoadData", 1, cuda::kUnsupportedPtx);
  EXPECT_THAT(TextOf(Open().status()), AllOf(HasSubstr("knows CUDA 12.4"), HasSubstr("need 580"),
                                             HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=90")));
  fake_.Plant("cuModuleLoadData", 1, cuda::kInvalidImage);
  EXPECT_THAT(TextOf(Open().status()), AllOf(HasSubstr("CUDA 12.4"), HasSubstr("damaged")));
  EXPECT_EQ(fake_.n_alive(), 0);
}

TEST(CudaDeviceOfOldTest, IsRefused) {
  const FakeCuda fake({{.name = "Spindle", .compute_major = 6, .compute_minor = 1}}, {});
  const auto device = CudaDevice::Open(fake.driver(), 0, fake.images(), {});
  EXPECT_THAT(TextOf(device.status()), AllOf(HasSubstr("6.1"), HasSubstr("7.5")));
}

TEST(CudaDriverTest, ALibraryThatIsNotThereIsNamed) {
  const cuda::LoadedDriver driver = cuda::LoadDriver("libnot-there.so.1");
  EXPECT_THAT(driver.problem, HasSubstr("libnot-there.so.1"));
}

TEST(CudaDriverTest, ALibraryThatIsNoDriverIsNotTaken) {
  const cuda::LoadedDriver driver = cuda::LoadDriver("libm.so.6");
  if (driver.problem.find("not installed") != driver.problem.npos) GTEST_SKIP() << driver.problem;
  EXPECT_THAT(driver.problem, HasSubstr("cuGetErrorName"));
}

}  // namespace
}  // namespace weft::device
