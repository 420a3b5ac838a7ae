// Finds races in global memory: a byte that one thread writes and another reads or writes in the
// same launch. No race: two threads of one block with a barrier between; two blocks of which the
// later one was the last to arrive at a count (dialect.h) where the other had arrived. On a card,
// the blocks of a launch run in any order and in parallel; the emulator's sequential order hides
// races.
//
// Only for kernels that are compiled for it (watched_accesses.h).
#ifndef WEFT_TESTS_SUPPORT_RACE_FINDER_H_
#define WEFT_TESTS_SUPPORT_RACE_FINDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compute/device/emulator.h"

namespace weft::testing {

class RaceFinder : public device::emulator::Observer {
 public:
  // Observes this thread during its lifetime.
  RaceFinder() { device::emulator::observer = this; }
  ~RaceFinder() override { device::emulator::observer = nullptr; }
  RaceFinder(const RaceFinder&) = delete;
  RaceFinder& operator=(const RaceFinder&) = delete;

  // The first race of each pair of places, with kernel, threads and code addresses.
  const std::vector<std::string>& races() const { return races_; }
  int64_t n_launches() const { return launch_; }

  void OnLaunch(const device::Kernel& kernel) override;
  void OnBarrier() override { ++barrier_; }
  void OnBlockEnd(const device::Kernel& kernel) override;
  void OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) override;
  void OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) override;
  void OnArrival(const void* count, bool last) override;

 private:
  // The last use of a byte: launch, block, number of barriers before it, thread, code.
  struct Use {
    int64_t launch = 0, block = 0, barrier = 0;
    int thread = 0;
    uintptr_t code = 0;
  };
  struct Byte {
    Use write, read;
    // Whether threads other than `read` have read it: in other blocks of the launch, or in its own
    // block since the same barrier.
    bool other_blocks = false, other_threads = false;

    void NoteRead(const Use& now);
  };
  static constexpr uintptr_t kPage = 256;
  using Page = std::array<Byte, kPage>;

  // Whether both may happen at the same time.
  bool Meet(const Use& before, const Use& now) const;
  void Tell(const Use& before, const char* did, const Use& now, const char* does);

  const device::Kernel* kernel_ = nullptr;
  int64_t launch_ = 0, block_ = 0, barrier_ = 0;
  std::unordered_map<const void*, std::vector<int64_t>> arrived_;  // blocks of the launch, by count
  std::vector<int64_t> passed_;  // blocks that the running block knows to have arrived
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::string> races_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_RACE_FINDER_H_
