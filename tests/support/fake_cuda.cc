#include "tests/support/fake_cuda.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "device/emulator.h"

namespace weft::testing {

namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): every type here is its
using device::Kernel;
using device::LaunchShape;

constexpr Result kInvalidContext = 201, kInvalidHandle = 400, kInvalidDevice = 101, kUnknown = 999;
constexpr int kPiecesPerQuery = 16;

struct FakeLaunch {
  const Kernel* kernel;
  LaunchShape shape;
  std::vector<std::byte> args;
};
struct FakeStream {
  int card;
  std::deque<std::function<bool()>> work;  // false: not yet
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
  int card;  // -1: the host's
  size_t bytes;
};

}  // namespace

struct FakeCuda::State {
  std::recursive_mutex mutex;
  std::vector<Card> cards;
  std::vector<const Kernel*> kernels;
  std::vector<std::byte> image = std::vector<std::byte>(8);
  std::vector<const std::byte*> images;
  Driver driver;

  std::map<std::string, int64_t, std::less<>> calls;
  std::string planted;
  int64_t until_planted = 0, until_hang = 0;
  bool hangs = false;
  Result planted_result = kSuccess;

  std::vector<int> retained;  // contexts, by card
  std::vector<Result> lost;   // what ended a card's context
  std::map<uintptr_t, FakeMemory> memory;
  std::set<FakeStream*> streams;
  std::set<FakeEvent*> events;
  std::set<FakeGraph*> graphs;
  std::set<FakeExec*> execs;
  std::set<FakeModule*> modules;

  // Whether a run of bytes lies in memory of a card (-1: of the host).
  bool Holds(int card, uintptr_t begin, size_t bytes) const {
    auto next = memory.upper_bound(begin);
    if (next == memory.begin()) return false;
    --next;
    return next->second.card == card && begin + bytes <= next->first + next->second.bytes;
  }
};

namespace {

FakeCuda::State* fake = nullptr;
thread_local std::vector<int> contexts;  // the current one last

Context ContextOf(int card) { return reinterpret_cast<Context>(static_cast<uintptr_t>(card) + 1); }
int CardOf(Context context) { return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1; }

// Of every function: counts the call; false where it is to fail.
struct Call {
  explicit Call(const char* name) : lock(fake->mutex) {
    ++fake->calls[name];
    if (fake->planted == name && fake->until_planted > 0 && --fake->until_planted == 0) {
      result = fake->planted_result;
    }
  }
  // Of those that need a context.
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

bool IsShape(const LaunchShape& shape) {
  const auto within = [](int n, int most) { return n >= 1 && n <= most; };
  return within(shape.grid_x, INT32_MAX) && within(shape.grid_y, device::kMaxGridYz) &&
         within(shape.grid_z, device::kMaxGridYz) && within(shape.threads, device::kMaxThreads);
}

FakeLaunch LaunchOf(Function function, const LaunchShape& shape, void** arguments) {
  const auto* const kernel = reinterpret_cast<const Kernel*>(function);
  const auto* const args = static_cast<const std::byte*>(arguments[0]);
  return {kernel, shape, {args, args + kernel->args_bytes}};
}

void Push(FakeStream* stream, std::function<bool()> work) {
  stream->work.push_back(std::move(work));
}
void PushLaunch(FakeStream* stream, FakeLaunch launch) {
  if (fake->until_hang > 0 && --fake->until_hang == 0) {
    fake->hangs = true;
    Push(stream, [] { return !fake->hangs; });
  }
  Push(stream, [card = stream->card, launch = std::move(launch)] {
    const Status status = device::emulator::Run(*launch.kernel, launch.shape, launch.args.data());
    if (!status.ok()) fake->lost[static_cast<size_t>(card)] = kLaunchFailed;
    return true;
  });
}
// Lets a stream get on. False: it hangs.
bool RunOne(FakeStream* stream) {
  const std::function<bool()> work = stream->work.front();
  if (!work()) return false;
  stream->work.pop_front();
  return true;
}

// --- the driver's functions ---------------------------------------------------------------------

Result GetErrorName(Result result, const char** name) {
  *name = result == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
          : result == kNoDevice     ? "CUDA_ERROR_NO_DEVICE"
                                    : nullptr;
  return *name != nullptr ? kSuccess : kInvalidValue;
}
Result GetErrorString(Result /*result*/, const char** text) {
  *text = "so it was planted";
  return kSuccess;
}
Result Init(unsigned /*flags*/) { return Call("cuInit").result; }
Result DeviceGetCount(int* n) {
  return Call("cuDeviceGetCount").Do([&] { *n = static_cast<int>(fake->cards.size()); });
}
bool IsCard(int number) { return number >= 0 && number < static_cast<int>(fake->cards.size()); }
Result DeviceGet(DeviceNumber* device, int number) {
  Call call("cuDeviceGet");
  return call.Require(IsCard(number), kInvalidDevice).Do([&] { *device = number; });
}
const FakeCuda::Card& CardAt(int number) { return fake->cards[static_cast<size_t>(number)]; }
Result DeviceGetName(char* name, int size, DeviceNumber device) {
  Call call("cuDeviceGetName");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    std::strncpy(name, CardAt(device).name.c_str(), static_cast<size_t>(size));
  });
}
Result DeviceGetAttribute(int* value, int attribute, DeviceNumber device) {
  Call call("cuDeviceGetAttribute");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    *value = attribute == kComputeMajor   ? CardAt(device).compute_major
             : attribute == kComputeMinor ? CardAt(device).compute_minor
             : attribute == kClock        ? 1'000'000
             : attribute == kMemoryClock  ? 2'000'000
             : attribute == kMemoryBus    ? 512
                                          : 10;
  });
}

Result PrimaryContextRetain(Context* context, DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRetain");
  return call.Require(IsCard(device), kInvalidDevice).Do([&] {
    ++fake->retained[static_cast<size_t>(device)];
    *context = ContextOf(device);
  });
}
Result PrimaryContextRelease(DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRelease_v2");
  return call.Require(fake->retained[static_cast<size_t>(device)] > 0, kInvalidContext).Do([&] {
    if (--fake->retained[static_cast<size_t>(device)] == 0) {
      fake->lost[static_cast<size_t>(device)] = kSuccess;
    }
  });
}
Result ContextPush(Context context) {
  Call call("cuCtxPushCurrent_v2");
  const int card = CardOf(context);
  return call
      .Require(IsCard(card) && fake->retained[static_cast<size_t>(card)] > 0, kInvalidContext)
      .Do([&] { contexts.push_back(card); });
}
Result ContextPop(Context* context) {
  Call call("cuCtxPopCurrent_v2");
  return call.Require(!contexts.empty(), kInvalidContext).Do([&] {
    *context = ContextOf(contexts.back());
    contexts.pop_back();
  });
}

int64_t HeldOn(int card) {
  int64_t bytes = 0;
  for (const auto& [address, memory] : fake->memory) {
    if (memory.card == card) bytes += static_cast<int64_t>(memory.bytes);
  }
  return bytes;
}
Result MemoryInfo(size_t* free, size_t* total) {
  Call call("cuMemGetInfo_v2");
  return call.InContext().Do([&] {
    *total = static_cast<size_t>(CardAt(call.card()).memory_bytes);
    *free = *total - static_cast<size_t>(HeldOn(call.card()));
  });
}
// Rubbish, where it is cheap.
void* Take(int card, size_t bytes) {
  void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  WEFT_CHECK(data != nullptr, "the test has memory");
  std::memset(data, 0xFF, std::min<size_t>(bytes, 65536));
  fake->memory[reinterpret_cast<uintptr_t>(data)] = {card, bytes};
  return data;
}
Result Give(int card, uintptr_t address) {
  const auto found = fake->memory.find(address);
  if (found == fake->memory.end() || (card < 0) != (found->second.card < 0)) return kInvalidValue;
  fake->memory.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
Result MemoryAllocate(DevicePointer* address, size_t bytes) {
  Call call("cuMemAlloc_v2");
  call.InContext().Require(bytes > 0);
  if (call.result == kSuccess &&
      HeldOn(call.card()) + static_cast<int64_t>(bytes) > CardAt(call.card()).memory_bytes) {
    return kOutOfMemory;
  }
  return call.Do([&] { *address = reinterpret_cast<uintptr_t>(Take(call.card(), bytes)); });
}
Result MemoryFree(DevicePointer address) {
  Call call("cuMemFree_v2");
  call.InContext();
  // Gone with the context too.
  if (call.result != kSuccess && call.result != kLaunchFailed) return call.result;
  return Give(0, static_cast<uintptr_t>(address));
}
Result HostAllocate(void** data, size_t bytes, unsigned /*flags*/) {
  return Call("cuMemHostAlloc").InContext().Do([&] { *data = Take(-1, bytes); });
}
Result HostFree(void* data) {
  Call call("cuMemFreeHost");
  return Give(-1, reinterpret_cast<uintptr_t>(data));
}

Result CopyBytes(const char* name, Stream handle, int to_card, uintptr_t to, int from_card,
                 uintptr_t from, size_t bytes) {
  Call call(name);
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  call.InContext().Require(fake->streams.count(stream) > 0, kInvalidHandle);
  if (call.result != kSuccess) return call.result;
  const auto card_of = [&](int card) { return card < 0 ? -1 : stream->card; };
  return call.Require(stream->card == call.card(), kInvalidContext)
      .Require(fake->Holds(card_of(to_card), to, bytes))
      .Require(fake->Holds(card_of(from_card), from, bytes))
      .Do([&] {
        Push(stream, [=] {
          std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
          return true;
        });
      });
}
Result CopyToDevice(DevicePointer to, const void* from, size_t bytes, Stream stream) {
  return CopyBytes("cuMemcpyHtoDAsync_v2", stream, 0, static_cast<uintptr_t>(to), -1,
                   reinterpret_cast<uintptr_t>(from), bytes);
}
Result CopyToHost(void* to, DevicePointer from, size_t bytes, Stream stream) {
  return CopyBytes("cuMemcpyDtoHAsync_v2", stream, -1, reinterpret_cast<uintptr_t>(to), 0,
                   static_cast<uintptr_t>(from), bytes);
}
Result CopyOnDevice(DevicePointer to, DevicePointer from, size_t bytes, Stream stream) {
  return CopyBytes("cuMemcpyDtoDAsync_v2", stream, 0, static_cast<uintptr_t>(to), 0,
                   static_cast<uintptr_t>(from), bytes);
}

// The stream of a call in its context, or null and the call's error.
FakeStream* StreamOf(Call* call, Stream handle) {
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  call->InContext().Require(fake->streams.count(stream) > 0, kInvalidHandle);
  if (call->result == kSuccess) call->Require(stream->card == call->card(), kInvalidContext);
  return call->result == kSuccess ? stream : nullptr;
}
Result FillBytes(DevicePointer to, unsigned char value, size_t bytes, Stream handle) {
  Call call("cuMemsetD8Async");
  FakeStream* const stream = StreamOf(&call, handle);
  if (stream != nullptr) call.Require(fake->Holds(stream->card, to, bytes));
  return call.Do([&] {
    Push(stream, [=] {
      std::memset(reinterpret_cast<void*>(static_cast<uintptr_t>(to)), value, bytes);
      return true;
    });
  });
}

Result StreamCreate(Stream* handle, unsigned flags) {
  Call call("cuStreamCreate");
  return call.InContext().Require(flags == kStreamNonBlocking).Do([&] {
    auto* const stream = new FakeStream{.card = call.card(), .work = {}};
    fake->streams.insert(stream);
    *handle = reinterpret_cast<Stream>(stream);
  });
}
Result StreamDestroy(Stream handle) {
  Call call("cuStreamDestroy_v2");
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  return call.Require(fake->streams.erase(stream) > 0, kInvalidHandle).Do([&] {
    while (!stream->work.empty() && RunOne(stream)) {
    }
    for (FakeEvent* const event : fake->events) {
      if (event->stream == stream) event->stream = nullptr;
    }
    delete stream;
  });
}
Result StreamQuery(Stream handle) {
  Call call("cuStreamQuery");
  FakeStream* const stream = StreamOf(&call, handle);
  if (stream == nullptr) return call.result;
  for (int i = 0; i < kPiecesPerQuery && !stream->work.empty(); ++i) {
    if (!RunOne(stream)) break;
  }
  const Result lost = fake->lost[static_cast<size_t>(stream->card)];
  return lost != kSuccess ? lost : stream->work.empty() ? kSuccess : kNotReady;
}

Result EventCreate(Event* handle, unsigned /*flags*/) {
  Call call("cuEventCreate");
  return call.InContext().Do([&] {
    auto* const event = new FakeEvent{.card = call.card()};
    fake->events.insert(event);
    *handle = reinterpret_cast<Event>(event);
  });
}
Result EventDestroy(Event handle) {
  Call call("cuEventDestroy_v2");
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  return call.Require(fake->events.erase(event) > 0, kInvalidHandle).Do([&] { delete event; });
}
FakeEvent* EventOf(Call* call, Event handle) {
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  call->Require(fake->events.count(event) > 0, kInvalidHandle);
  return call->result == kSuccess ? event : nullptr;
}
Result EventRecord(Event handle, Stream stream_handle) {
  Call call("cuEventRecord");
  FakeStream* const stream = StreamOf(&call, stream_handle);
  FakeEvent* const event = EventOf(&call, handle);
  return call.Require(event != nullptr && event->card == stream->card, kInvalidHandle).Do([&] {
    event->stream = stream;
    Push(stream, [passed = event->n_passed, place = ++event->n_recorded] {
      *passed = place;
      return true;
    });
  });
}
Result EventQuery(Event handle) {
  Call call("cuEventQuery");
  FakeEvent* const event = EventOf(&call.InContext(), handle);
  if (event == nullptr) return call.result;
  const auto passed = [&] { return *event->n_passed == event->n_recorded; };
  for (int i = 0; i < kPiecesPerQuery && !passed(); ++i) {
    if (event->stream == nullptr || event->stream->work.empty() || !RunOne(event->stream)) break;
  }
  const Result lost = fake->lost[static_cast<size_t>(event->card)];
  return lost != kSuccess ? lost : passed() ? kSuccess : kNotReady;
}
Result StreamWaitEvent(Stream stream_handle, Event handle, unsigned /*flags*/) {
  Call call("cuStreamWaitEvent");
  FakeStream* const stream = StreamOf(&call, stream_handle);
  FakeEvent* const event = EventOf(&call, handle);
  return call.Do([&] {
    Push(stream, [passed = event->n_passed, place = event->n_recorded, other = event->stream] {
      while (*passed < place) {
        if (fake->streams.count(other) == 0 || other->work.empty() || !RunOne(other)) return false;
      }
      return true;
    });
  });
}

Result ModuleLoad(Module* handle, const void* image) {
  Call call("cuModuleLoadData");
  return call.InContext().Require(image == fake->image.data()).Do([&] {
    auto* const module = new FakeModule{call.card()};
    fake->modules.insert(module);
    *handle = reinterpret_cast<Module>(module);
  });
}
Result ModuleUnload(Module handle) {
  Call call("cuModuleUnload");
  auto* const module = reinterpret_cast<FakeModule*>(handle);
  return call.Require(fake->modules.erase(module) > 0, kInvalidHandle).Do([&] { delete module; });
}
Result ModuleGetFunction(Function* function, Module /*module*/, const char* name) {
  Call call("cuModuleGetFunction");
  call.InContext();
  if (call.result != kSuccess) return call.result;
  for (const Kernel* const kernel : fake->kernels) {
    if (std::string_view(kernel->name) != name) continue;
    *function = reinterpret_cast<Function>(const_cast<Kernel*>(kernel));
    return kSuccess;
  }
  return kNotFound;
}
Result LaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    Stream handle, void** arguments, void** extra) {
  Call call("cuLaunchKernel");
  FakeStream* const stream = StreamOf(&call, handle);
  const LaunchShape shape = {static_cast<int>(grid_x), static_cast<int>(grid_y),
                             static_cast<int>(grid_z), static_cast<int>(block_x)};
  return call
      .Require(IsShape(shape) && block_y == 1 && block_z == 1 && shared_bytes == 0 &&
               extra == nullptr)
      .Do([&] { PushLaunch(stream, LaunchOf(function, shape, arguments)); });
}

Result GraphCreate(Graph* handle, unsigned /*flags*/) {
  return Call("cuGraphCreate").Do([&] {
    auto* const graph = new FakeGraph;
    fake->graphs.insert(graph);
    *handle = reinterpret_cast<Graph>(graph);
  });
}
Result GraphDestroy(Graph handle) {
  Call call("cuGraphDestroy");
  auto* const graph = reinterpret_cast<FakeGraph*>(handle);
  return call.Require(fake->graphs.erase(graph) > 0, kInvalidHandle).Do([&] { delete graph; });
}
// A node is its number, from 1; each follows the one before.
Result GraphAddKernel(GraphNode* node, Graph handle, const GraphNode* after, size_t n_after,
                      const KernelNode* launch) {
  Call call("cuGraphAddKernelNode_v2");
  auto* const graph = reinterpret_cast<FakeGraph*>(handle);
  call.InContext().Require(fake->graphs.count(graph) > 0, kInvalidHandle);
  if (call.result != kSuccess) return call.result;
  const size_t n = graph->launches.size();
  const bool follows =
      n == 0 ? n_after == 0 : n_after == 1 && reinterpret_cast<uintptr_t>(*after) == n;
  const LaunchShape shape = {static_cast<int>(launch->grid_x), static_cast<int>(launch->grid_y),
                             static_cast<int>(launch->grid_z), static_cast<int>(launch->block_x)};
  return call
      .Require(follows && IsShape(shape) && launch->kernel == nullptr && launch->block_y == 1 &&
               launch->block_z == 1)
      .Do([&] {
        graph->launches.push_back(LaunchOf(launch->function, shape, launch->arguments));
        *node = reinterpret_cast<GraphNode>(n + 1);
      });
}
Result GraphInstantiate(GraphExec* handle, Graph graph_handle,
                        unsigned long long /*flags*/) {  // NOLINT(google-runtime-int)
  Call call("cuGraphInstantiateWithFlags");
  auto* const graph = reinterpret_cast<FakeGraph*>(graph_handle);
  call.InContext().Require(fake->graphs.count(graph) > 0, kInvalidHandle);
  return call.Do([&] {
    auto* const exec = new FakeExec{call.card(), graph->launches};
    fake->execs.insert(exec);
    *handle = reinterpret_cast<GraphExec>(exec);
  });
}
Result GraphLaunch(GraphExec handle, Stream stream_handle) {
  Call call("cuGraphLaunch");
  FakeStream* const stream = StreamOf(&call, stream_handle);
  auto* const exec = reinterpret_cast<FakeExec*>(handle);
  call.Require(fake->execs.count(exec) > 0, kInvalidHandle);
  if (call.result == kSuccess) call.Require(exec->card == stream->card, kInvalidContext);
  return call.Do([&] {
    for (const FakeLaunch& launch : exec->launches) PushLaunch(stream, launch);
  });
}
Result GraphExecDestroy(GraphExec handle) {
  Call call("cuGraphExecDestroy");
  auto* const exec = reinterpret_cast<FakeExec*>(handle);
  return call.Require(fake->execs.erase(exec) > 0, kInvalidHandle).Do([&] { delete exec; });
}

constexpr Driver kDriver = {
    .get_error_name = GetErrorName,
    .get_error_string = GetErrorString,
    .init = Init,
    .device_get_count = DeviceGetCount,
    .device_get = DeviceGet,
    .device_get_name = DeviceGetName,
    .device_get_attribute = DeviceGetAttribute,
    .primary_context_retain = PrimaryContextRetain,
    .primary_context_release = PrimaryContextRelease,
    .context_push = ContextPush,
    .context_pop = ContextPop,
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
    .launch_kernel = LaunchKernel,
    .graph_create = GraphCreate,
    .graph_destroy = GraphDestroy,
    .graph_add_kernel = GraphAddKernel,
    .graph_instantiate = GraphInstantiate,
    .graph_launch = GraphLaunch,
    .graph_exec_destroy = GraphExecDestroy,
};

}  // namespace

FakeCuda::FakeCuda(std::vector<Card> cards, std::vector<const Kernel*> kernels)
    : state_(std::make_unique<State>()) {
  WEFT_CHECK(fake == nullptr, "there is one fake driver at a time");
  state_->retained.resize(cards.size());
  state_->lost.resize(cards.size(), kSuccess);
  state_->cards = std::move(cards);
  state_->kernels = std::move(kernels);
  state_->images = {state_->image.data()};
  state_->driver = kDriver;
  fake = state_.get();
}

FakeCuda::~FakeCuda() { fake = nullptr; }

const Driver& FakeCuda::driver() const { return state_->driver; }
device::KernelImages FakeCuda::images() const { return state_->images; }

void FakeCuda::Plant(std::string_view function, int64_t n, Result result) {
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
int64_t FakeCuda::n_current() const { return std::ssize(contexts); }

}  // namespace weft::testing
