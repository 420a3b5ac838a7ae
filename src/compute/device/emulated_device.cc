#include "compute/device/emulated_device.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::device {

namespace {

// Pieces of work that run per poll of an event.
constexpr int kPiecesPerPoll = 16;

// True exactly once: when the counter reaches zero.
bool Strikes(std::atomic<int64_t>* counter) { return *counter > 0 && --*counter == 0; }

class EmulatedMemory : public Memory {
 public:
  EmulatedMemory(std::byte* data, int64_t bytes, std::atomic<int64_t>* held)
      : Memory(data, bytes), held_(held) {
    *held_ += bytes;
  }
  ~EmulatedMemory() override {
    if (emulator::observer != nullptr) emulator::observer->OnFree(data());
    *held_ -= bytes();
    std::free(data());
  }

 private:
  std::atomic<int64_t>* const held_;
};

StatusOr<std::unique_ptr<Memory>> AllocateHost(int64_t bytes, std::atomic<int64_t>* held) {
  // Only the beginning is filled with garbage, to stay cheap. Large memory comes from the system
  // untouched.
  constexpr int64_t kRubbishBytes = 64 << 10;
  WEFT_CHECK(bytes > 0, "memory of a device has a size");
  const size_t rounded = (static_cast<size_t>(bytes) + 255) / 256 * 256;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, rounded));
  if (data == nullptr) {
    return ResourceExhausted("the emulator has no ", HumanBytes(static_cast<uint64_t>(bytes)),
                             " of memory left");
  }
  std::memset(data, 0xFF, static_cast<size_t>(std::min(bytes, kRubbishBytes)));
  return std::unique_ptr<Memory>(std::make_unique<EmulatedMemory>(data, bytes, held));
}

void TellOfCopy(const std::byte* to, const std::byte* from, int64_t bytes) {
  if (emulator::observer == nullptr) return;
  emulator::observer->OnDeviceCopy(to, from, static_cast<size_t>(bytes));
}

struct Captured {
  const Kernel* kernel;
  LaunchShape shape;
  std::vector<std::byte> args;
};

Captured Capture(const Kernel& kernel, const LaunchShape& shape, const void* args) {
  const auto* const bytes = static_cast<const std::byte*>(args);
  return {&kernel, shape, {bytes, bytes + kernel.args_bytes}};
}

class EmulatedGraph : public Graph {
 public:
  Status Finish() override { return OkStatus(); }
  const std::vector<Captured>& launches() const { return launches_; }

 protected:
  void AddLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) override {
    launches_.push_back(Capture(kernel, shape, args));
  }

 private:
  std::vector<Captured> launches_;
};

}  // namespace

// The work queue of a stream. Its events share it, because polling them runs queued work.
class EmulatedQueue {
 public:
  void Push(std::function<Status()> work) { work_.push_back(std::move(work)); }
  bool empty() const { return work_.empty(); }
  // Runs the next piece of work.
  void RunOne() {
    const std::function<Status()> work = std::move(work_.front());
    work_.pop_front();
    const Status status = work();
    if (!status.ok() && error_.ok()) error_ = status;
  }
  Status TakeError() { return std::exchange(error_, OkStatus()); }

 private:
  std::deque<std::function<Status()>> work_;
  Status error_;
};

class EmulatedEvent : public Event {
 public:
  StatusOr<bool> Poll() override {
    if (state_->n_recorded == state_->n_passed) return true;
    const auto queue = queue_.lock();
    for (int i = 0; i < kPiecesPerPoll && queue != nullptr && !queue->empty(); ++i) {
      queue->RunOne();
      if (state_->n_recorded == state_->n_passed) return true;
    }
    return false;
  }

 private:
  friend class EmulatedStream;
  struct State {
    int64_t n_recorded = 0, n_passed = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::weak_ptr<EmulatedQueue> queue_;
};

class EmulatedStream : public Stream {
 public:
  explicit EmulatedStream(EmulatedDevice* device) : device_(*device) {}
  ~EmulatedStream() override { static_cast<void>(Synchronize()); }

  void Replay(const Graph& graph) override {
    ++device_.n_graphs_;
    for (const Captured& launch : static_cast<const EmulatedGraph&>(graph).launches()) {
      Enqueue(launch);
    }
  }
  void CopyToDevice(std::byte* to, const std::byte* from, int64_t bytes) override {
    Copy(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, int64_t bytes) override {
    Copy(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, int64_t bytes) override {
    Copy(to, from, bytes);
  }
  void Fill(std::byte* to, uint8_t value, int64_t bytes) override {
    queue_->Push([=] {
      std::memset(to, value, static_cast<size_t>(bytes));
      TellOfCopy(to, nullptr, bytes);
      return OkStatus();
    });
  }

  void Record(Event* event) override {
    auto& own = static_cast<EmulatedEvent&>(*event);
    own.queue_ = queue_;
    const int64_t place = ++own.state_->n_recorded;
    if (Strikes(&device_.faults().until_event_is_lost)) return;
    queue_->Push([state = own.state_, place] {
      state->n_passed = place;
      return OkStatus();
    });
  }

  void WaitFor(const Event& event) override {
    const auto& other = static_cast<const EmulatedEvent&>(event);
    const int64_t place = other.state_->n_recorded;
    queue_->Push([state = other.state_, place, queue = other.queue_]() -> Status {
      while (state->n_passed < place) {
        const auto its = queue.lock();
        if (its == nullptr || its->empty()) {
          return DeadlineExceeded("a stream waits for an event that never comes");
        }
        its->RunOne();
      }
      return OkStatus();
    });
  }

  Status TakeError() override { return queue_->TakeError(); }
  Status Synchronize() override {
    while (!queue_->empty()) queue_->RunOne();
    return TakeError();
  }

 protected:
  void EnqueueLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) override {
    ++device_.n_single_launches_;
    Enqueue(Capture(kernel, shape, args));
  }

 private:
  void Enqueue(Captured launch) {
    queue_->Push([device = &device_, launch = std::move(launch)]() -> Status {
      ++device->n_launches_;
      if (Strikes(&device->faults().until_launch_fails)) {
        return Internal("the device refused to launch ", launch.kernel->name);
      }
      const int64_t n_tiles = emulator::n_tiles;
      const Status status =
          emulator::Run(*launch.kernel, launch.shape, launch.args.data(), device->order_);
      device->n_tiles_ += emulator::n_tiles - n_tiles;
      return status;
    });
  }
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
    queue_->Push([=] {
      std::memmove(to, from, static_cast<size_t>(bytes));
      TellOfCopy(to, from, bytes);
      return OkStatus();
    });
  }

  EmulatedDevice& device_;
  const std::shared_ptr<EmulatedQueue> queue_ = std::make_shared<EmulatedQueue>();
};

StatusOr<std::unique_ptr<Memory>> EmulatedDevice::Allocate(int64_t bytes) {
  if (Strikes(&faults_.until_allocation_fails)) {
    return ResourceExhausted("the device refused to give ",
                             HumanBytes(static_cast<uint64_t>(bytes)));
  }
  auto memory = AllocateHost(bytes, &held_bytes_);
  if (memory.ok() && emulator::observer != nullptr) {
    emulator::observer->OnAllocation((*memory)->data(), static_cast<size_t>(bytes));
  }
  return memory;
}

StatusOr<std::unique_ptr<Memory>> EmulatedDevice::AllocatePinned(int64_t bytes) {
  if (Strikes(&faults_.until_allocation_fails)) {
    return ResourceExhausted("the device refused to pin ",
                             HumanBytes(static_cast<uint64_t>(bytes)));
  }
  return AllocateHost(bytes, &pinned_bytes_);
}

StatusOr<std::unique_ptr<Stream>> EmulatedDevice::MakeStream(Priority /*priority*/) {
  return std::unique_ptr<Stream>(std::make_unique<EmulatedStream>(this));
}

StatusOr<std::unique_ptr<Event>> EmulatedDevice::NewEvent() {
  return std::unique_ptr<Event>(std::make_unique<EmulatedEvent>());
}

std::unique_ptr<Graph> EmulatedDevice::NewGraph() { return std::make_unique<EmulatedGraph>(); }

}  // namespace weft::device
