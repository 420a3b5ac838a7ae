// A driver of NVIDIA's with cards that are not there: what it is asked to launch, the emulator
// runs, as late as it may. It refuses what the real one would (a handle of nobody's, a call
// without its context, an argument out of bounds), and counts what is left behind.
#ifndef WEFT_TESTS_SUPPORT_FAKE_CUDA_H_
#define WEFT_TESTS_SUPPORT_FAKE_CUDA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda_device.h"
#include "device/cuda_driver.h"
#include "device/kernel.h"

namespace weft::testing {

// One at a time in a process: the driver's functions have no argument that says whose they are.
class FakeCuda {
 public:
  struct Card {
    std::string name = "Loom 9000";
    int compute_major = 9, compute_minor = 0;
    int64_t memory_bytes = int64_t{1} << 30;
    bool draws_desktop = false;
  };

  // `kernels`: what is in the images that a device loads.
  FakeCuda(std::vector<Card> cards, std::vector<const device::Kernel*> kernels);
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  const device::cuda::Driver& driver() const;
  device::KernelImages images() const;

  // The n-th call of that function of the library from now on (from 1) has this result, and does
  // nothing.
  void Plant(std::string_view function, int64_t n, device::cuda::Result result);
  // Whether what was planted has struck.
  bool struck() const;
  // The n-th kernel from now on never ends.
  void Hang(int64_t n);
  // Lets what hangs end.
  void Unhang();

  int64_t CallsOf(std::string_view function) const;
  // Memory, pinned or not, of all cards.
  int64_t held_bytes() const;
  // Everything that was made and not given back: memory, streams, events, graphs, modules,
  // contexts.
  int64_t n_alive() const;
  // Of this thread.
  int64_t n_current() const;
  // Of all streams, ascending.
  std::vector<int> stream_priorities() const;

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_FAKE_CUDA_H_
