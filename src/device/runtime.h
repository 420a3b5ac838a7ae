// A device as the host drives it: memory, streams of work, events, captured launches.
//
//   Device   gives memory and makes the others. Several may exist for one piece of hardware;
//            none knows of another, and nothing is global.
//   Memory   a run of bytes of the device, or of the host where the device can reach it
//            ("pinned"). Frees itself; not while enqueued work still uses it.
//   Stream   work in order: launches, copies, fills, events. Enqueuing returns at once. What an
//            error of enqueued work is about is told by whoever waits for it.
//   Event    a place in a stream that can be waited for, asked about, and waited for by another
//            stream.
//   Graph    launches that are enqueued together again and again, with the same arguments.
//
// Work that was enqueued uses the arguments of its launch, copied, and the memory that these
// and copies point to, which must stay until it is done. Pointers to device memory are the
// device's; the host never looks at what they point to.
//
// Threads: a Device's methods may be called from any thread; the other objects, and what is
// made of them, belong to one thread at a time.
#ifndef WEFT_DEVICE_RUNTIME_H_
#define WEFT_DEVICE_RUNTIME_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "base/status.h"
#include "device/kernel.h"

namespace weft::device {

class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Aligned to 256.
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
  // Whether the place is passed; true before it was ever recorded. Lets the device get on.
  virtual StatusOr<bool> Poll() = 0;
};

class Graph {
 public:
  virtual ~Graph() = default;
  template <typename Args>
  void Add(const KernelOf<Args>& kernel, const LaunchShape& shape, const Args& args) {
    AddLaunch(kernel, shape, &args);
  }
  // Once all launches are there. RESOURCE_EXHAUSTED when the device cannot hold it.
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
  // REQUIRES: graph is finished, and made by the same device.
  virtual void Replay(const Graph& graph) = 0;
  // Host memory is pinned.
  virtual void CopyToDevice(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void CopyToHost(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void CopyOnDevice(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void Fill(std::byte* to, uint8_t value, int64_t bytes) = 0;
  // An event recorded again is the later place.
  virtual void Record(Event* event) = 0;
  // What is enqueued after this begins once `event`, of any stream of the device, is passed.
  virtual void WaitFor(const Event& event) = 0;

  // The first error of what was enqueued and has run or been refused since the last call.
  virtual Status TakeError() = 0;
  // Waits for everything. Its first error, which it takes.
  virtual Status Synchronize() = 0;

 protected:
  virtual void EnqueueLaunch(const Kernel& kernel, const LaunchShape& shape, const void* args) = 0;
};

// Of a stream: where work of several is ready, the device begins with that of kUsual.
enum class Priority { kUsual, kLow };

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;
  // Bytes of device memory that this object's Memory holds now.
  virtual int64_t held_bytes() const = 0;
  // RESOURCE_EXHAUSTED when there are not so many. REQUIRES: bytes > 0.
  virtual StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) = 0;
  StatusOr<std::unique_ptr<Stream>> NewStream(Priority priority = Priority::kUsual) {
    return MakeStream(priority);
  }
  virtual StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  virtual std::unique_ptr<Graph> NewGraph() = 0;
  // Whether it multiplies tiles of bytes (dialect.h) in one go.
  virtual bool multiplies_tiles() const = 0;
  // After this a device that says nothing is taken for lost.
  virtual std::chrono::milliseconds patience() const = 0;

 protected:
  virtual StatusOr<std::unique_ptr<Stream>> MakeStream(Priority priority) = 0;
};

// Waits until `poll` says true (true) or `give_up`, asked every now and then, does (false).
// DEADLINE_EXCEEDED after the device's patience.
StatusOr<bool> WaitUntil(const Device& device, FunctionRef<StatusOr<bool>()> poll,
                         FunctionRef<bool()> give_up);
// The same until the event is passed.
StatusOr<bool> WaitFor(const Device& device, Event* event, FunctionRef<bool()> give_up);
Status WaitFor(const Device& device, Event* event);

}  // namespace weft::device

#endif  // WEFT_DEVICE_RUNTIME_H_
