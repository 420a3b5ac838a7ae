// A device as the host uses it: memory, streams of work, events, captured launches.
//
//   Device   allocates memory and creates the other objects. Several may exist for one piece of
//            hardware; they do not know of each other, and nothing is global.
//   Memory   a run of bytes on the device, or on the host if the device can access it ("pinned").
//            Frees itself; destroy it only when no enqueued work uses it.
//   Stream   work in order: launches, copies, fills, events. Enqueuing returns at once. An error of
//            enqueued work is reported to whoever waits for it.
//   Event    a position in a stream that the host or another stream can wait for, and that the host
//            can poll.
//   Graph    launches that are enqueued together repeatedly, with the same arguments.
//
// Enqueued work uses a copy of its launch's arguments, and the memory that they and copies point
// to, which must stay valid until the work is done. The host never dereferences pointers to device
// memory.
//
// Threads: a Device's methods may be called from any thread; the other objects, and objects made
// from them, belong to one thread at a time.
#ifndef WEFT_COMPUTE_DEVICE_RUNTIME_H_
#define WEFT_COMPUTE_DEVICE_RUNTIME_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "compute/device/kernel.h"

namespace weft::device {

class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Aligned to 256 bytes.
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }

 protected:
  Memory(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}

 private:
  std::byte* const data_;
  const int64_t bytes_;
};

class Event {
 public:
  virtual ~Event() = default;
  // Whether the stream has passed the event; true if it was never recorded. Lets emulated work
  // advance.
  virtual StatusOr<bool> Poll() = 0;
};

class Graph {
 public:
  virtual ~Graph() = default;
  template <typename Args>
  void Add(const KernelOf<Args>& kernel, const LaunchShape& shape, const Args& args) {
    AddLaunch(kernel, shape, &args);
  }
  // Call it once all launches are added. RESOURCE_EXHAUSTED if the device cannot hold the graph.
  virtual Status Finish() = 0;

 protected:
  virtual void AddLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;

  template <typename Args>
  void Launch(const KernelOf<Args>& kernel, const LaunchShape& shape, const Args& args) {
    EnqueueLaunch(kernel, shape, &args);
  }
  // REQUIRES: the graph is finished, and was made by the same device.
  virtual void Replay(const Graph& graph) = 0;
  // REQUIRES: host memory is pinned.
  virtual void CopyToDevice(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void CopyToHost(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void CopyOnDevice(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void Fill(std::byte* to, uint8_t value, int64_t bytes) = 0;
  // Recording an event again moves it to the later position.
  virtual void Record(Event* event) = 0;
  // Work enqueued after this begins once `event`, of any stream of the device, is passed.
  virtual void WaitFor(const Event& event) = 0;

  // Returns and clears the first error since the last call, of work that has run or was refused.
  virtual Status TakeError() = 0;
  // Waits for all work. Returns and clears its first error.
  virtual Status Synchronize() = 0;

 protected:
  virtual void EnqueueLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) = 0;
};

// Priority of a stream: if several have work ready, the device begins with kUsual.
enum class Priority { kUsual, kLow };

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;
  // Bytes of device memory that this object's Memory holds now.
  virtual int64_t held_bytes() const = 0;
  // RESOURCE_EXHAUSTED if there is not enough memory. REQUIRES: bytes > 0.
  virtual StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) = 0;
  StatusOr<std::unique_ptr<Stream>> NewStream(Priority priority = Priority::kUsual) {
    return MakeStream(priority);
  }
  virtual StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  virtual std::unique_ptr<Graph> NewGraph() = 0;
  // Whether it has an instruction for tiles of bytes (dialect.h).
  virtual bool multiplies_tiles() const = 0;
  // A device that makes no progress for this long is considered lost.
  virtual std::chrono::milliseconds patience() const = 0;

 protected:
  virtual StatusOr<std::unique_ptr<Stream>> MakeStream(Priority priority) = 0;
};

// Waits until `poll` returns true (true) or `give_up`, called from time to time, does (false).
// DEADLINE_EXCEEDED after the device's patience.
StatusOr<bool> WaitUntil(const Device& device, FunctionRef<StatusOr<bool>()> poll,
                         FunctionRef<bool()> give_up);
// The same until the event is passed.
StatusOr<bool> WaitFor(const Device& device, Event* event, FunctionRef<bool()> give_up);
Status WaitFor(const Device& device, Event* event);

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_RUNTIME_H_
