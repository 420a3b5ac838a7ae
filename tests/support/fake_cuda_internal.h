// The inside of fake_cuda.h: the fake driver's state and its functions.
#ifndef WEFT_TESTS_SUPPORT_FAKE_CUDA_INTERNAL_H_
#define WEFT_TESTS_SUPPORT_FAKE_CUDA_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_cuda.h"

namespace weft::testing {

namespace fake_cuda {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): every type here is its
using device::Kernel;
using device::LaunchShape;

inline constexpr Result kInvalidContext = 201, kInvalidHandle = 400, kInvalidDevice = 101,
                        kUnknown = 999;
inline constexpr int kPiecesPerQuery = 16;
inline constexpr int kMinPriority = 0, kGreatestPriority = -5;

struct FakeLaunch {
  const Kernel* kernel;
  LaunchShape shape;
  std::vector<std::byte> args;
};
struct FakeStream {
  int card;
  int priority;
  std::deque<std::function<bool()>> work;  // false: not ready yet
};
struct FakeEvent {
  int card;
  FakeStream* stream = nullptr;
  int64_t n_recorded = 0;
  std::shared_ptr<int64_t> n_passed = std::make_shared<int64_t>(0);
};
struct FakeGraph {
  std::vector<FakeLaunch> launches;
};
struct FakeExec {
  int card;
  std::vector<FakeLaunch> launches;
};
struct FakeModule {
  int card;
};
struct FakeMemory {
  int card;  // -1: host memory
  size_t bytes;
};

}  // namespace fake_cuda

struct FakeCuda::State {
  std::recursive_mutex mutex;
  std::vector<Card> cards;
  std::vector<const fake_cuda::Kernel*> kernels;
  std::vector<std::byte> image = std::vector<std::byte>(8);
  std::vector<const std::byte*> images;
  fake_cuda::Driver driver;

  std::map<std::string, int64_t, std::less<>> calls;
  std::string planted;
  int64_t until_planted = 0, until_hang = 0;
  bool hangs = false;
  fake_cuda::Result planted_result = device::cuda::kSuccess;

  std::vector<int> retained;            // contexts, by card
  std::vector<fake_cuda::Result> lost;  // the error that ended each card's context
  std::map<uintptr_t, fake_cuda::FakeMemory> memory;
  std::set<fake_cuda::FakeStream*> streams;
  // Max dynamic shared memory of kernels for which it was raised.
  std::map<const fake_cuda::Kernel*, int> dynamic_bytes;
  std::set<fake_cuda::FakeEvent*> events;
  std::set<fake_cuda::FakeGraph*> graphs;
  std::set<fake_cuda::FakeExec*> execs;
  std::set<fake_cuda::FakeModule*> modules;

  // Whether a run of bytes is inside one allocation of a card (-1: of the host).
  bool Holds(int card, uintptr_t begin, size_t bytes) const {
    auto next = memory.upper_bound(begin);
    if (next == memory.begin()) return false;
    --next;
    return next->second.card == card && begin + bytes <= next->first + next->second.bytes;
  }
};

namespace fake_cuda {

extern FakeCuda::State* fake;
// The calling thread's stack of contexts, the current one last.
extern thread_local std::vector<int> contexts;

inline Context ContextOf(int card) {
  return reinterpret_cast<Context>(static_cast<uintptr_t>(card) + 1);
}
inline int CardOf(Context context) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
}

// Begins every function: counts the call, and applies a planted failure.
struct Call {
  explicit Call(const char* name) : lock(fake->mutex) {
    ++fake->calls[name];
    if (fake->planted == name && fake->until_planted > 0 && --fake->until_planted == 0) {
      result = fake->planted_result;
    }
  }
  // For functions that need a context.
  Call& InContext() {
    if (result != kSuccess) return *this;
    if (contexts.empty())
      result = kInvalidContext;
    else
      result = fake->lost[static_cast<size_t>(contexts.back())];
    return *this;
  }
  Call& Require(bool condition, Result otherwise = kInvalidValue) {
    if (result == kSuccess && !condition) result = otherwise;
    return *this;
  }
  template <typename Fn>
  Result Do(Fn fn) {
    if (result == kSuccess) fn();
    return result;
  }
  int card() const { return contexts.empty() ? -1 : contexts.back(); }

  std::lock_guard<std::recursive_mutex> lock;
  Result result = kSuccess;
};

// --- the driver's functions

Result GetErrorName(Result result, const char** name);
Result GetErrorString(Result /*result*/, const char** text);
Result DriverGetVersion(int* version);
Result Init(unsigned /*flags*/);
Result DeviceGetCount(int* n);
Result DeviceGet(DeviceNumber* device, int number);
Result DeviceGetName(char* name, int size, DeviceNumber device);
Result DeviceGetAttribute(int* value, int attribute, DeviceNumber device);
Result PrimaryContextRetain(Context* context, DeviceNumber device);
Result PrimaryContextRelease(DeviceNumber device);
Result ContextPush(Context context);
Result ContextPop(Context* context);
Result ContextPriorities(int* least, int* greatest);
Result MemoryInfo(size_t* free, size_t* total);
Result MemoryAllocate(DevicePointer* address, size_t bytes);
Result MemoryFree(DevicePointer address);
Result HostAllocate(void** data, size_t bytes, unsigned /*flags*/);
Result HostFree(void* data);
Result ModuleLoad(Module* handle, const void* image);
Result ModuleUnload(Module handle);
Result ModuleGetFunction(Function* function, Module /*module*/, const char* name);
Result FunctionSetAttribute(Function function, int attribute, int value);
Result CopyToDevice(DevicePointer to, const void* from, size_t bytes, Stream stream);
Result CopyToHost(void* to, DevicePointer from, size_t bytes, Stream stream);
Result CopyOnDevice(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
Result FillBytes(DevicePointer to, unsigned char value, size_t bytes, Stream handle);
Result StreamCreate(Stream* handle, unsigned flags, int priority);
Result StreamDestroy(Stream handle);
Result StreamQuery(Stream handle);
Result EventCreate(Event* handle, unsigned /*flags*/);
Result EventDestroy(Event handle);
Result EventRecord(Event handle, Stream stream_handle);
Result EventQuery(Event handle);
Result StreamWaitEvent(Stream stream_handle, Event handle, unsigned /*flags*/);
Result LaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    Stream handle, void** arguments, void** extra);
Result GraphCreate(Graph* handle, unsigned /*flags*/);
Result GraphDestroy(Graph handle);
Result GraphAddKernel(GraphNode* node, Graph handle, const GraphNode* after, size_t n_after,
                      const KernelNode* launch);
Result GraphInstantiate(GraphExec* handle, Graph graph_handle, unsigned long long /*flags*/);
Result GraphLaunch(GraphExec handle, Stream stream_handle);
Result GraphExecDestroy(GraphExec handle);

}  // namespace fake_cuda

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_FAKE_CUDA_INTERNAL_H_
