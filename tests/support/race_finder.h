// Finds races in global memory: a byte that one thread writes and another reads or writes in the
// same launch, unless both are of one block with a barrier between, or of two where the later one
// was the last to arrive at a count (dialect.h) at which the other had arrived. Blocks of a launch
// run in any order and beside each other on a card; the emulator's one after the other hide it.
//
// Of kernels that are compiled for it (watched_accesses.h).
#ifndef WEFT_TESTS_SUPPORT_RACE_FINDER_H_
#define WEFT_TESTS_SUPPORT_RACE_FINDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/emulator.h"

namespace weft::testing {

class RaceFinder : public device::emulator::Observer {
 public:
  // Looks at what runs on this thread from now on, while it lives.
  RaceFinder() { device::emulator::observer = this; }
  ~RaceFinder() override { device::emulator::observer = nullptr; }
  RaceFinder(const RaceFinder&) = delete;
  RaceFinder& operator=(const RaceFinder&) = delete;

  // The first of each pair of places, with kernel, threads and addresses in the code.
  const std::vector<std::string>& races() const { return races_; }
  int64_t n_launches() const { return launch_; }

  void OnLaunch(const device::Kernel& kernel) override;
  void OnBarrier() override { ++barrier_; }
  void OnBlockEnd(const device::Kernel& kernel) override;
  void OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) override;
  void OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) override;
  void OnArrival(const void* count, bool last) override;

 private:
  // Who used a byte last: in which launch and block, behind how many barriers.
  struct Use {
    int64_t launch = 0, block = 0, barrier = 0;
    int thread = 0;
    uintptr_t code = 0;
  };
  struct Byte {
    Use write, read;
    // Whether others than `read` have read it: of other blocks in the launch, or of its own block
    // since the same barrier.
    bool other_blocks = false, other_threads = false;

    void NoteRead(const Use& now);
  };
  static constexpr uintptr_t kPage = 256;
  using Page = std::array<Byte, kPage>;

  // Whether both may happen at once.
  bool Meet(const Use& before, const Use& now) const;
  void Tell(const Use& before, const char* did, const Use& now, const char* does);

  const device::Kernel* kernel_ = nullptr;
  int64_t launch_ = 0, block_ = 0, barrier_ = 0;
  std::unordered_map<const void*, std::vector<int64_t>> arrived_;  // blocks of the launch, by count
  std::vector<int64_t> passed_;  // those that the running block has found arrived
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::string> races_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_RACE_FINDER_H_
