// Streams, events, launches and graphs of the fake driver.
#include <cstring>
#include <utility>

#include "compute/device/emulator.h"
#include "tests/support/fake_cuda_internal.h"

namespace weft::testing::fake_cuda {

namespace {

bool IsShape(const LaunchShape& shape) {
  const auto within = [](int n, int most) { return n >= 1 && n <= most; };
  return within(shape.grid_x, INT32_MAX) && within(shape.grid_y, device::kMaxGridYz) &&
         within(shape.grid_z, device::kMaxGridYz) && within(shape.threads, device::kMaxThreads);
}

// Whether a launch may have this number of threads and of bytes of dynamic shared memory. More than
// the default needs the kernel's limit to be raised first.
bool MayHave(Function function, int threads, unsigned shared_bytes) {
  const auto* const kernel = reinterpret_cast<const Kernel*>(function);
  const auto allowed = fake->dynamic_bytes.find(kernel);
  const int bytes = static_cast<int>(shared_bytes);
  return threads <= kernel->max_threads && bytes == kernel->dynamic_bytes &&
         bytes <= (allowed == fake->dynamic_bytes.end() ? 0 : allowed->second);
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
// Runs a stream's next work. False: it hangs.
bool RunOne(FakeStream* stream) {
  const std::function<bool()> work = stream->work.front();
  if (!work()) return false;
  stream->work.pop_front();
  return true;
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

// The stream of a call in its context, or null, with the call's error set.
FakeStream* StreamOf(Call* call, Stream handle) {
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  call->InContext().Require(fake->streams.count(stream) > 0, kInvalidHandle);
  if (call->result == kSuccess) call->Require(stream->card == call->card(), kInvalidContext);
  return call->result == kSuccess ? stream : nullptr;
}
FakeEvent* EventOf(Call* call, Event handle) {
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  call->Require(fake->events.count(event) > 0, kInvalidHandle);
  return call->result == kSuccess ? event : nullptr;
}

}  // namespace

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

Result StreamCreate(Stream* handle, unsigned flags, int priority) {
  Call call("cuStreamCreateWithPriority");
  return call.InContext().Require(flags == kStreamNonBlocking).Do([&] {
    auto* const stream = new FakeStream{.card = call.card(), .priority = priority, .work = {}};
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

Result LaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                    Stream handle, void** arguments, void** extra) {
  Call call("cuLaunchKernel");
  FakeStream* const stream = StreamOf(&call, handle);
  const LaunchShape shape = {static_cast<int>(grid_x), static_cast<int>(grid_y),
                             static_cast<int>(grid_z), static_cast<int>(block_x)};
  return call
      .Require(IsShape(shape) && block_y == 1 && block_z == 1 && extra == nullptr &&
               MayHave(function, shape.threads, shared_bytes))
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
// A node is its number, from 1; each depends on the one before.
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
               launch->block_z == 1 &&
               MayHave(launch->function, shape.threads, launch->shared_bytes))
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

}  // namespace weft::testing::fake_cuda
