// A fake NVIDIA driver with fake cards: the emulator runs the launches, as late as the contract
// allows. It refuses what the real driver would refuse (an unknown handle, a call without its
// context, an argument out of bounds), and counts leaks.
#ifndef WEFT_TESTS_SUPPORT_FAKE_CUDA_H_
#define WEFT_TESTS_SUPPORT_FAKE_CUDA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compute/device/cuda_device.h"
#include "compute/device/cuda_driver.h"
#include "compute/device/kernel.h"

namespace weft::testing {

// One at a time per process, because the driver's functions have no argument that identifies it.
class FakeCuda {
 public:
  struct Card {
    std::string name = "Loom 9000";
    int compute_major = 9, compute_minor = 0;
    int64_t memory_bytes = int64_t{1} << 30;
    bool draws_desktop = false;
  };

  // `kernels`: the contents of the images that a device loads.
  FakeCuda(std::vector<Card> cards, std::vector<const device::Kernel*> kernels);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  const device::cuda::Driver& driver() const;
  device::KernelImages images() const;

  // The n-th call (from 1) of this library function from now on does nothing and returns `result`.
  void Plant(std::string_view function, int64_t n, device::cuda::Result result);
  // Whether the planted call has happened.
  bool struck() const;
  // The n-th kernel from now on never ends.
  void Hang(int64_t n);
  // Lets hanging kernels end.
  void Unhang();

  int64_t CallsOf(std::string_view function) const;
  // Memory of all cards, and pinned memory.
  int64_t held_bytes() const;
  // Number of objects that were made and not freed: memory, streams, events, graphs, modules,
  // contexts.
  int64_t n_alive() const;
  // Depth of this thread's context stack.
  int64_t n_current() const;
  // Priorities of all streams, ascending.
  std::vector<int> stream_priorities() const;

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_FAKE_CUDA_H_
