// A device whose memory is the host's and whose kernels the emulator runs.
//
// It is as lazy as it may be: enqueued work runs when somebody waits for it or asks about it,
// a few pieces per question, on the asking thread. So a host that reads a result too early, or
// changes what a copy has still to read, gets it wrong here as it would on a device. Memory
// begins as rubbish, and what is freed is counted.
//
// Faults can be planted, each once: see Faults.
#ifndef WEFT_DEVICE_EMULATED_DEVICE_H_
#define WEFT_DEVICE_EMULATED_DEVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "device/emulator.h"
#include "device/runtime.h"

namespace weft::device {

class EmulatedDevice : public Device {
 public:
  // What goes wrong: counts down, and strikes when it gets from 1 to 0. At 0 nothing does.
  struct Faults {
    std::atomic<int64_t> until_allocation_fails = 0;
    std::atomic<int64_t> until_launch_fails = 0;
    std::atomic<int64_t> until_event_is_lost = 0;  // recorded, and never passed
  };

  // Tiles of bytes cost the emulator several times what other products do, and have their bits.
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
  // Launches that have run.
  int64_t n_launches() const { return n_launches_; }
  // Graphs that were enqueued, and launches beside them.
  int64_t n_graphs() const { return n_graphs_; }
  int64_t n_single_launches() const { return n_single_launches_; }
  // Tiles of keys and values, 32 positions of a head, that warps have read.
  int64_t n_tiles() const { return n_tiles_; }
  int64_t pinned_bytes() const { return pinned_bytes_; }

 protected:
  StatusOr<std::unique_ptr<Stream>> MakeStream(Priority priority) override;

 private:
  friend class EmulatedStream;

  const std::string name_ = "the emulator";
  const emulator::Order order_;
  const bool multiplies_tiles_;
  std::chrono::milliseconds patience_ = std::chrono::minutes(2);
  std::atomic<int64_t> held_bytes_ = 0, pinned_bytes_ = 0, n_launches_ = 0, n_tiles_ = 0;
  std::atomic<int64_t> n_graphs_ = 0, n_single_launches_ = 0;
  Faults faults_;
};

}  // namespace weft::device

#endif  // WEFT_DEVICE_EMULATED_DEVICE_H_
