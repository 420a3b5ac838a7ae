// Finds what kernels do with memory of the emulated device that is not theirs to do: an access
// outside of what was allocated, to the byte, and a byte that is read before anybody wrote it.
//
// Of kernels that are compiled for it (watched_accesses.h). The host's memory counts as written.
#ifndef WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_
#define WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/emulator.h"

namespace weft::testing {

class MemoryChecker : public device::emulator::Observer {
 public:
  // Looks at what this thread does from now on, while it lives. Of memory that was allocated
  // before it knows nothing.
  MemoryChecker() { device::emulator::observer = this; }
  ~MemoryChecker() override { device::emulator::observer = nullptr; }
  MemoryChecker(const MemoryChecker&) = delete;
  MemoryChecker& operator=(const MemoryChecker&) = delete;

  // The first at each place, with kernel and address in the code.
  const std::vector<std::string>& faults() const { return faults_; }
  int64_t n_accesses() const { return n_accesses_; }

  void OnLaunch(const device::Kernel& kernel) override { kernel_ = &kernel; }
  void OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) override;
  void OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) override;
  void OnAllocation(const void* p, size_t bytes) override;
  void OnFree(const void* p) override;
  void OnDeviceCopy(const void* to, const void* from, size_t bytes) override;

 private:
  struct Allocation {
    uintptr_t begin = 0;
    std::vector<bool> written;
  };
  // The allocation that has all of these bytes, or null.
  Allocation* Find(const void* p, size_t bytes);
  void Tell(const char* what, const std::string& where);

  const device::Kernel* kernel_ = nullptr;
  int64_t n_accesses_ = 0;
  std::map<uintptr_t, Allocation> allocations_;  // by where they begin
  std::vector<std::string> faults_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_
