#include "tests/support/fake_cuda.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tests/support/fake_cuda_internal.h"

namespace weft::testing {

namespace fake_cuda {

FakeCuda::State* fake = nullptr;
thread_local std::vector<int> contexts;

namespace {

constexpr Driver kDriver = {
    .get_error_name = GetErrorName,
    .get_error_string = GetErrorString,
    .driver_get_version = DriverGetVersion,
    .init = Init,
    .device_get_count = DeviceGetCount,
    .device_get = DeviceGet,
    .device_get_name = DeviceGetName,
    .device_get_attribute = DeviceGetAttribute,
    .primary_context_retain = PrimaryContextRetain,
    .primary_context_release = PrimaryContextRelease,
    .context_push = ContextPush,
    .context_pop = ContextPop,
    .context_priorities = ContextPriorities,
    .memory_info = MemoryInfo,
    .memory_allocate = MemoryAllocate,
    .memory_free = MemoryFree,
    .host_allocate = HostAllocate,
    .host_free = HostFree,
    .copy_to_device = CopyToDevice,
    .copy_to_host = CopyToHost,
    .copy_on_device = CopyOnDevice,
    .fill = FillBytes,
    .stream_create = StreamCreate,
    .stream_destroy = StreamDestroy,
    .stream_query = StreamQuery,
    .stream_wait_event = StreamWaitEvent,
    .event_create = EventCreate,
    .event_destroy = EventDestroy,
    .event_record = EventRecord,
    .event_query = EventQuery,
    .module_load = ModuleLoad,
    .module_unload = ModuleUnload,
    .module_get_function = ModuleGetFunction,
    .function_set_attribute = FunctionSetAttribute,
    .launch_kernel = LaunchKernel,
    .graph_create = GraphCreate,
    .graph_destroy = GraphDestroy,
    .graph_add_kernel = GraphAddKernel,
    .graph_instantiate = GraphInstantiate,
    .graph_launch = GraphLaunch,
    .graph_exec_destroy = GraphExecDestroy,
};

}  // namespace

const Driver& TheDriver() { return kDriver; }

}  // namespace fake_cuda

using fake_cuda::fake;

FakeCuda::FakeCuda(std::vector<Card> cards, std::vector<const device::Kernel*> kernels)
    : state_(std::make_unique<State>()) {
  WEFT_CHECK(fake == nullptr, "there is one fake driver at a time");
  state_->retained.resize(cards.size());
  state_->lost.resize(cards.size(), device::cuda::kSuccess);
  state_->cards = std::move(cards);
  state_->kernels = std::move(kernels);
  state_->images = {state_->image.data()};
  state_->driver = fake_cuda::TheDriver();
  fake = state_.get();
}

FakeCuda::~FakeCuda() { fake = nullptr; }

const device::cuda::Driver& FakeCuda::driver() const { return state_->driver; }
device::KernelImages FakeCuda::images() const { return state_->images; }

void FakeCuda::Plant(std::string_view function, int64_t n, device::cuda::Result result) {
  state_->planted = function;
  state_->until_planted = n;
  state_->planted_result = result;
}
bool FakeCuda::struck() const { return state_->until_planted == 0; }
void FakeCuda::Hang(int64_t n) { state_->until_hang = n; }
void FakeCuda::Unhang() { state_->hangs = false; }

int64_t FakeCuda::CallsOf(std::string_view function) const {
  const auto found = state_->calls.find(function);
  return found == state_->calls.end() ? 0 : found->second;
}
int64_t FakeCuda::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& [address, memory] : state_->memory) bytes += static_cast<int64_t>(memory.bytes);
  return bytes;
}
int64_t FakeCuda::n_alive() const {
  int64_t n = 0;
  for (const int retained : state_->retained) n += retained;
  for (const size_t size : {state_->memory.size(), state_->streams.size(), state_->events.size(),
                            state_->graphs.size(), state_->execs.size(), state_->modules.size()}) {
    n += static_cast<int64_t>(size);
  }
  return n;
}
std::vector<int> FakeCuda::stream_priorities() const {
  std::vector<int> priorities;
  for (const fake_cuda::FakeStream* const stream : state_->streams) {
    priorities.push_back(stream->priority);
  }
  std::ranges::sort(priorities);
  return priorities;
}
int64_t FakeCuda::n_current() const { return std::ssize(fake_cuda::contexts); }

}  // namespace weft::testing
