// A device whose memory is the host's and whose kernels run in the emulator.
//
// It is as lazy as the contract allows: enqueued work runs only when somebody waits for it or polls
// an event, a few pieces per poll, on the polling thread. So a host that reads a result too early,
// or changes the source of a pending copy, fails here as it would on a device. Memory starts as
// garbage, and held bytes are counted.
//
// Faults can be planted, each once: see Faults.
#ifndef WEFT_COMPUTE_DEVICE_EMULATED_DEVICE_H_
#define WEFT_COMPUTE_DEVICE_EMULATED_DEVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "compute/device/emulator.h"
#include "compute/device/runtime.h"

namespace weft::device {

class EmulatedDevice : public Device {
 public:
  // Planted faults: a counter counts down, and the call that takes it from 1 to 0 fails. 0: no
  // fault.
  struct Faults {
    std::atomic<int64_t> until_allocation_fails = 0;
    std::atomic<int64_t> until_launch_fails = 0;
    std::atomic<int64_t> until_event_is_lost = 0;  // recorded, but never passed
  };

  // `multiplies_tiles`: has tensor-core tiles. They are several times slower to emulate than other
  // products, and give the same bits.
  explicit EmulatedDevice(emulator::Order order = emulator::Order::kAscending,
                          bool multiplies_tiles = false)
      : order_(order), multiplies_tiles_(multiplies_tiles) {}

  const std::string& name() const override { return name_; }
  int64_t held_bytes() const override { return held_bytes_; }
  StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override;
  StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) override;
  StatusOr<std::unique_ptr<Event>> NewEvent() override;
  std::unique_ptr<Graph> NewGraph() override;
  bool multiplies_tiles() const override { return multiplies_tiles_; }
  std::chrono::milliseconds patience() const override { return patience_; }

  Faults& faults() { return faults_; }
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  // Number of kernels launched so far.
  int64_t n_launches() const { return n_launches_; }
  // Number of enqueued graphs, and of launches outside graphs.
  int64_t n_graphs() const { return n_graphs_; }
  int64_t n_single_launches() const { return n_single_launches_; }
  // Number of tiles of the KV cache (32 positions of a head) read by warps.
  int64_t n_tiles() const { return n_tiles_; }
  int64_t pinned_bytes() const { return pinned_bytes_; }

 protected:
  StatusOr<std::unique_ptr<Stream>> MakeStream(Priority priority) override;

 private:
  friend class EmulatedStream;

  const std::string name_ = "the emulator";
  const emulator::Order order_;
  const bool multiplies_tiles_;
  // It cannot hang, but a kernel may take long on a busy machine.
  std::chrono::milliseconds patience_ = std::chrono::hours(1);
  std::atomic<int64_t> held_bytes_ = 0, pinned_bytes_ = 0, n_launches_ = 0, n_tiles_ = 0;
  std::atomic<int64_t> n_graphs_ = 0, n_single_launches_ = 0;
  Faults faults_;
};

}  // namespace weft::device

#endif  // WEFT_COMPUTE_DEVICE_EMULATED_DEVICE_H_
