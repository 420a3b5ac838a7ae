#include "compute/device/cuda_device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace weft::device {

namespace {

constexpr int kMinCompute = 75;  // 10 * major + minor; the minimum of kernels_gpu's kernels

cuda::DevicePointer Address(const std::byte* p) {
  return static_cast<cuda::DevicePointer>(reinterpret_cast<uintptr_t>(p));
}

// Errors after which the context can no longer be used.
bool EndsContext(cuda::Result result) {
  constexpr std::array kEnding = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
  return std::ranges::count(kEnding, result) > 0;
}

// 8-bit multiply-adds per multiprocessor and clock cycle.
int TensorMacs(int major, int minor) {
  if (major == 9 || major == 10) return 4096;
  return major == 8 && minor == 0 ? 2048 : 1024;
}

int64_t ReserveOf(int64_t total_bytes, bool draws_desktop) {
  constexpr int64_t kMin = int64_t{512} << 20;
  return std::max(total_bytes / 20, kMin) * (draws_desktop ? 2 : 1);
}

unsigned Unsigned(int n) { return static_cast<unsigned>(n); }

}  // namespace

// --- what is shared -----------------------------------------------------------------------------

class CudaDevice::Current {
 public:
  explicit Current(const CudaDevice& device)
      : driver_(device.driver_), result_(driver_.context_push(device.context_)) {}
  ~Current() {
    cuda::Context context = nullptr;
    if (result_ == cuda::kSuccess) driver_.context_pop(&context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  // Calls `fn` with the context current, if it can be made current.
  template <typename Fn>
  cuda::Result Do(Fn fn) const {
    return result_ == cuda::kSuccess ? fn() : result_;
  }

 private:
  const cuda::Driver& driver_;
  const cuda::Result result_;
};

Status CudaDevice::ToStatus(cuda::Result result, std::string_view what) const {
  if (result == cuda::kSuccess) return OkStatus();
  const std::string text = cuda::TextOf(driver_, result);
  if (result == cuda::kOutOfMemory) {
    return ResourceExhausted(name_, " cannot ", what, ": its memory is full (", text, ")");
  }
  return Internal(
      name_, " cannot ", what, " (", text, ")",
      EndsContext(result) ? "; this process can use it no more, so start it again" : "");
}

StatusOr<cuda::Function> CudaDevice::FunctionOf(const Kernel& kernel) {
  const MutexLock lock(&mutex_);
  cuda::Function& known = functions_[kernel.name];  // null: not found yet
  if (known != nullptr) return known;
  const Current current(*this);
  cuda::Result result = cuda::kNotFound;
  for (const cuda::Module module : modules_) {
    cuda::Function found = nullptr;
    result = current.Do([&] { return driver_.module_get_function(&found, module, kernel.name); });
    if (result == cuda::kNotFound) continue;
    if (result == cuda::kSuccess && kernel.dynamic_bytes > 0) {
      result =
          driver_.function_set_attribute(found, cuda::kMaxDynamicSharedBytes, kernel.dynamic_bytes);
    }
    if (result == cuda::kSuccess) return known = found;
    break;
  }
  return ToStatus(result, StrCat("find the kernel ", kernel.name));
}

// --- memory -------------------------------------------------------------------------------------

class CudaMemory : public Memory {
 public:
  CudaMemory(CudaDevice* device, std::byte* data, int64_t bytes, bool pinned)
      : Memory(data, bytes), device_(*device), pinned_(pinned) {
    if (!pinned_) device_.held_bytes_ += bytes;
  }
  // An error here belongs to earlier work, whose stream has already reported it.
  ~CudaMemory() override {
    const CudaDevice::Current current(device_);
    current.Do([&] {
      return pinned_ ? device_.driver_.host_free(data())
                     : device_.driver_.memory_free(Address(data()));
    });
    if (!pinned_) device_.held_bytes_ -= bytes();
  }

 private:
  CudaDevice& device_;
  const bool pinned_;
};

StatusOr<std::unique_ptr<Memory>> CudaDevice::Allocate(int64_t bytes) {
  WEFT_CHECK(bytes > 0, "memory of a device has a size");
  cuda::DevicePointer address = 0;
  const Current current(*this);
  const cuda::Result result =
      current.Do([&] { return driver_.memory_allocate(&address, static_cast<size_t>(bytes)); });
  WEFT_RETURN_IF_ERROR(
      ToStatus(result, StrCat("give ", HumanBytes(static_cast<uint64_t>(bytes)), " of memory")));
  auto* const data = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
  return std::unique_ptr<Memory>(std::make_unique<CudaMemory>(this, data, bytes, false));
}

StatusOr<std::unique_ptr<Memory>> CudaDevice::AllocatePinned(int64_t bytes) {
  WEFT_CHECK(bytes > 0, "pinned memory has a size");
  void* data = nullptr;
  const Current current(*this);
  const cuda::Result result =
      current.Do([&] { return driver_.host_allocate(&data, static_cast<size_t>(bytes), 0); });
  if (result == cuda::kOutOfMemory) {
    return ResourceExhausted("the host has no ", HumanBytes(static_cast<uint64_t>(bytes)),
                             " of memory that ", name_, " could reach");
  }
  WEFT_RETURN_IF_ERROR(ToStatus(result, "pin memory of the host"));
  return std::unique_ptr<Memory>(
      std::make_unique<CudaMemory>(this, static_cast<std::byte*>(data), bytes, true));
}

// --- events -------------------------------------------------------------------------------------

class CudaEvent : public Event {
 public:
  CudaEvent(CudaDevice* device, cuda::Event event) : device_(*device), event_(event) {}
  ~CudaEvent() override {
    const CudaDevice::Current current(device_);
    current.Do([&] { return device_.driver_.event_destroy(event_); });
  }
  StatusOr<bool> Poll() override {
    const CudaDevice::Current current(device_);
    const cuda::Result result = current.Do([&] { return device_.driver_.event_query(event_); });
    if (result == cuda::kNotReady) return false;
    WEFT_RETURN_IF_ERROR(device_.ToStatus(result, "do the work that was waited for"));
    return true;
  }
  cuda::Event event() const { return event_; }

 private:
  CudaDevice& device_;
  const cuda::Event event_;
};

StatusOr<std::unique_ptr<Event>> CudaDevice::NewEvent() {
  cuda::Event event = nullptr;
  const Current current(*this);
  const cuda::Result result =
      current.Do([&] { return driver_.event_create(&event, cuda::kEventDisableTiming); });
  WEFT_RETURN_IF_ERROR(ToStatus(result, "make an event"));
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(this, event));
}

// --- graphs -------------------------------------------------------------------------------------

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(CudaDevice* device) : device_(*device) {}
  ~CudaGraph() override {
    const CudaDevice::Current current(device_);
    if (exec_ != nullptr) current.Do([&] { return device_.driver_.graph_exec_destroy(exec_); });
  }

  Status Finish() override {
    if (!device_.options_.graphs || launches_.empty()) return OkStatus();
    const CudaDevice::Current current(device_);
    const cuda::Driver& driver = device_.driver_;
    cuda::Graph graph = nullptr;
    cuda::Result result = current.Do([&] { return driver.graph_create(&graph, 0); });
    WEFT_RETURN_IF_ERROR(device_.ToStatus(result, "begin a graph"));
    Status status = AddNodes(graph);
    if (status.ok()) {
      result = driver.graph_instantiate(&exec_, graph, 0);
      if (result != cuda::kSuccess) exec_ = nullptr;
      status = device_.ToStatus(result, "hold a graph");
    }
    driver.graph_destroy(graph);
    // If there is no memory for the graph, its kernels are launched one by one.
    if (result == cuda::kOutOfMemory) return OkStatus();
    if (status.ok()) launches_.clear();
    return status;
  }

  struct Captured {
    const Kernel* kernel;
    LaunchShape shape;
    std::vector<std::byte> args;
  };
  // Either the instantiated graph or, without one, the list of launches; the other is empty.
  cuda::GraphExec exec() const { return exec_; }
  const std::vector<Captured>& launches() const { return launches_; }

 protected:
  void AddLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) override {
    const auto* const bytes = static_cast<const std::byte*>(args);
    launches_.push_back({&kernel, shape, {bytes, bytes + kernel.args_bytes}});
  }

 private:
  // Adds the launches as a chain of nodes.
  Status AddNodes(cuda::Graph graph) {
    cuda::GraphNode last = nullptr;
    for (Captured& launch : launches_) {
      WEFT_ASSIGN_OR_RETURN(const cuda::Function function, device_.FunctionOf(*launch.kernel));
      const LaunchShape& shape = launch.shape;
      void* arguments[] = {launch.args.data()};
      const cuda::KernelNode node = {.function = function,
                                     .grid_x = Unsigned(shape.grid_x),
                                     .grid_y = Unsigned(shape.grid_y),
                                     .grid_z = Unsigned(shape.grid_z),
                                     .block_x = Unsigned(shape.threads),
                                     .block_y = 1,
                                     .block_z = 1,
                                     .shared_bytes = Unsigned(launch.kernel->dynamic_bytes),
                                     .arguments = arguments,
                                     .extra = nullptr,
                                     .kernel = nullptr,
                                     .context = nullptr};
      const cuda::GraphNode after = last;
      const size_t n_after = after == nullptr ? 0 : 1;
      const cuda::Result result =
          device_.driver_.graph_add_kernel(&last, graph, &after, n_after, &node);
      WEFT_RETURN_IF_ERROR(
          device_.ToStatus(result, StrCat("put ", launch.kernel->name, " into a graph")));
    }
    return OkStatus();
  }

  CudaDevice& device_;
  std::vector<Captured> launches_;
  cuda::GraphExec exec_ = nullptr;
};

std::unique_ptr<Graph> CudaDevice::NewGraph() { return std::make_unique<CudaGraph>(this); }

// --- streams ------------------------------------------------------------------------------------

class CudaStream : public Stream {
 public:
  CudaStream(CudaDevice* device, cuda::Stream stream) : device_(*device), stream_(stream) {}
  ~CudaStream() override {
    static_cast<void>(Synchronize());
    const CudaDevice::Current current(device_);
    current.Do([&] { return driver().stream_destroy(stream_); });
  }

  void Replay(const Graph& graph) override {
    const auto& own = static_cast<const CudaGraph&>(graph);
    if (own.exec() != nullptr) {
      Enqueue("replay a graph", [&] { return driver().graph_launch(own.exec(), stream_); });
    }
    for (const CudaGraph::Captured& launch : own.launches()) {
      EnqueueLaunch(*launch.kernel, launch.shape, launch.args.data());
    }
  }
  void CopyToDevice(std::byte* to, const std::byte* from, int64_t bytes) override {
    Enqueue("copy to the device", [&] {
      return driver().copy_to_device(Address(to), from, static_cast<size_t>(bytes), stream_);
    });
  }
  void CopyToHost(std::byte* to, const std::byte* from, int64_t bytes) override {
    Enqueue("copy to the host", [&] {
      return driver().copy_to_host(to, Address(from), static_cast<size_t>(bytes), stream_);
    });
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, int64_t bytes) override {
    Enqueue("copy on the device", [&] {
      return driver().copy_on_device(Address(to), Address(from), static_cast<size_t>(bytes),
                                     stream_);
    });
  }
  void Fill(std::byte* to, uint8_t value, int64_t bytes) override {
    Enqueue("fill memory",
            [&] { return driver().fill(Address(to), value, static_cast<size_t>(bytes), stream_); });
  }
  void Record(Event* event) override {
    Enqueue("record an event", [&] {
      return driver().event_record(static_cast<CudaEvent*>(event)->event(), stream_);
    });
  }
  void WaitFor(const Event& event) override {
    Enqueue("wait for an event", [&] {
      return driver().stream_wait_event(stream_, static_cast<const CudaEvent&>(event).event(), 0);
    });
  }

  Status TakeError() override { return std::exchange(error_, OkStatus()); }
  Status Synchronize() override {
    const auto passed = WaitUntil(
        device_, [&] { return Poll(); }, [] { return false; });
    const Status refused = TakeError();
    return refused.ok() ? passed.status() : refused;
  }

 protected:
  void EnqueueLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) override {
    const auto function = device_.FunctionOf(kernel);
    if (!function.ok()) return Keep(function.status());
    void* arguments[] = {const_cast<void*>(args)};  // the driver copies them
    Enqueue(StrCat("launch ", kernel.name), [&] {
      return driver().launch_kernel(*function, Unsigned(shape.grid_x), Unsigned(shape.grid_y),
                                    Unsigned(shape.grid_z), Unsigned(shape.threads), 1, 1,
                                    Unsigned(kernel.dynamic_bytes), stream_, arguments, nullptr);
    });
  }

 private:
  const cuda::Driver& driver() const { return device_.driver_; }
  StatusOr<bool> Poll() {
    const CudaDevice::Current current(device_);
    const cuda::Result result = current.Do([&] { return driver().stream_query(stream_); });
    if (result == cuda::kNotReady) return false;
    WEFT_RETURN_IF_ERROR(device_.ToStatus(result, "do what was enqueued"));
    return true;
  }
  void Keep(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }
  template <typename Fn>
  void Enqueue(std::string_view what, Fn fn) {
    const CudaDevice::Current current(device_);
    const cuda::Result result = current.Do(fn);
    if (result != cuda::kSuccess) Keep(device_.ToStatus(result, what));
  }

  CudaDevice& device_;
  const cuda::Stream stream_;
  Status error_;
};

// Non-blocking: not ordered with the default stream, which nothing here uses.
StatusOr<std::unique_ptr<Stream>> CudaDevice::MakeStream(Priority priority) {
  cuda::Stream stream = nullptr;
  const Current current(*this);
  // Smaller numbers are higher priorities; a device without priorities returns 0 and 0.
  int low = 0, high = 0;
  cuda::Result result = current.Do([&] { return driver_.context_priorities(&low, &high); });
  if (result == cuda::kSuccess) {
    result = driver_.stream_create(&stream, cuda::kStreamNonBlocking,
                                   priority == Priority::kLow ? low : high);
  }
  WEFT_RETURN_IF_ERROR(ToStatus(result, "make a stream"));
  return std::unique_ptr<Stream>(std::make_unique<CudaStream>(this, stream));
}

// --- opening ------------------------------------------------------------------------------------

int CountCudaCards(const cuda::Driver& driver) {
  int n = 0;
  return driver.device_get_count(&n) == cuda::kSuccess ? n : 0;
}

StatusOr<CudaCard> CudaCardOf(const cuda::Driver& driver, int number) {
  CudaCard card;
  cuda::DeviceNumber device = 0;
  std::array<char, 256> name = {};
  cuda::Result result = driver.device_get(&device, number);
  const auto ask = [&](auto fn, auto... arguments) {
    if (result == cuda::kSuccess) result = fn(arguments..., device);
  };
  ask(driver.device_get_name, name.data(), static_cast<int>(name.size()) - 1);
  ask(driver.device_get_attribute, &card.compute_major, cuda::kComputeMajor);
  ask(driver.device_get_attribute, &card.compute_minor, cuda::kComputeMinor);
  int clock_khz = 0, n_processors = 0, memory_khz = 0, bus_bits = 0;
  ask(driver.device_get_attribute, &clock_khz, cuda::kClock);
  ask(driver.device_get_attribute, &n_processors, cuda::kMultiprocessors);
  ask(driver.device_get_attribute, &memory_khz, cuda::kMemoryClock);
  ask(driver.device_get_attribute, &bus_bits, cuda::kMemoryBus);
  card.bytes_per_s = 2e3 * memory_khz * bus_bits / 8;  // two transfers per clock cycle
  card.int8_macs_per_s =
      1e3 * clock_khz * n_processors * TensorMacs(card.compute_major, card.compute_minor);
  card.name = name.data();
  if (result == cuda::kSuccess) return card;
  return Internal("CUDA device ", number, " says nothing of itself (", cuda::TextOf(driver, result),
                  ")");
}

StatusOr<CudaMemoryInfo> CudaMemoryOf(const cuda::Driver& driver, int number) {
  cuda::DeviceNumber device = 0;
  cuda::Context context = nullptr;
  size_t free = 0, total = 0;
  cuda::Result result = driver.device_get(&device, number);
  if (result == cuda::kSuccess) result = driver.primary_context_retain(&context, device);
  if (result == cuda::kSuccess) {
    result = driver.context_push(context);
    if (result == cuda::kSuccess) {
      result = driver.memory_info(&free, &total);
      driver.context_pop(&context);
    }
    driver.primary_context_release(device);
  }
  int draws_desktop = 0;
  if (result == cuda::kSuccess) {
    result = driver.device_get_attribute(&draws_desktop, cuda::kDrawsDesktop, device);
  }
  if (result == cuda::kSuccess) {
    const auto total_bytes = static_cast<int64_t>(total);
    return CudaMemoryInfo{static_cast<int64_t>(free), total_bytes,
                          ReserveOf(total_bytes, draws_desktop != 0)};
  }
  return Internal("CUDA device ", number, " does not say how much memory it has (",
                  cuda::TextOf(driver, result), ")");
}

StatusOr<std::shared_ptr<CudaDevice>> CudaDevice::Open(const cuda::Driver& driver, int number,
                                                       KernelImages images,
                                                       const Options& options) {
  std::shared_ptr<CudaDevice> device(new CudaDevice(driver, number, options));
  WEFT_RETURN_IF_ERROR(device->Start(images));
  return device;
}

Status CudaDevice::Start(KernelImages images) {
  WEFT_ASSIGN_OR_RETURN(const CudaCard card, CudaCardOf(driver_, number_));
  name_ = StrCat("CUDA device ", number_, " (", card.name, ")");
  if (10 * card.compute_major + card.compute_minor < kMinCompute) {
    return FailedPrecondition(name_, " has compute capability ", card.compute_major, ".",
                              card.compute_minor, "; the kernels need 7.5 or more");
  }
  WEFT_RETURN_IF_ERROR(ToStatus(driver_.device_get(&device_, number_), "be had"));
  const cuda::Result retained = driver_.primary_context_retain(&context_, device_);
  if (retained != cuda::kSuccess) context_ = nullptr;
  WEFT_RETURN_IF_ERROR(ToStatus(retained, "be used"));
  const Current current(*this);
  for (const std::byte* const image : images) {
    cuda::Module module = nullptr;
    const cuda::Result result = current.Do([&] { return driver_.module_load(&module, image); });
    WEFT_RETURN_IF_ERROR(StatusOfLoad(result, card));
    modules_.push_back(module);
  }
  return OkStatus();
}

// Turns the driver's refusal to load our kernels into advice.
Status CudaDevice::StatusOfLoad(cuda::Result result, const CudaCard& card) const {
  const std::string build =
      StrCat("build this program with -DCMAKE_CUDA_ARCHITECTURES=", card.compute_major,
             card.compute_minor);
  switch (result) {
    case cuda::kNoBinaryForDevice:
      return FailedPrecondition(name_, " has compute capability ", card.compute_major, ".",
                                card.compute_minor, ", for which this program has no kernels; ",
                                build);
    case cuda::kUnsupportedPtx:
      return FailedPrecondition(
          name_, " would have to compile the kernels itself, and its driver, which knows ",
          cuda::VersionOf(driver_), ", is older than the CUDA that they were made by; install ",
          cuda::kReleases, ", or ", build);
    case cuda::kInvalidImage:
      return FailedPrecondition(
          name_, " does not take the kernels for any: its driver, which knows ",
          cuda::VersionOf(driver_), ", is older than the CUDA that made them (install ",
          cuda::kReleases, "), or this program's file is damaged");
    default:
      return ToStatus(result, "load the kernels");
  }
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  {
    const Current current(*this);
    for (const cuda::Module module : modules_) {
      current.Do([&] { return driver_.module_unload(module); });
    }
  }
  driver_.primary_context_release(device_);
}

}  // namespace weft::device
