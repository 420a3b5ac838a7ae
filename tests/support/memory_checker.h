// Finds invalid accesses of kernels to memory of the emulated device: outside of allocations, to
// the byte, and reads of bytes that nobody has written.
//
// Only for kernels that are compiled for it (watched_accesses.h). Host memory counts as
// initialized.
#ifndef WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_
#define WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compute/device/emulator.h"

namespace weft::testing {

class MemoryChecker : public device::emulator::Observer {
 public:
  // Observes this thread during its lifetime. Allocations made before are unknown to it.
  MemoryChecker() { device::emulator::observer = this; }
  ~MemoryChecker() override { device::emulator::observer = nullptr; }
  MemoryChecker(const MemoryChecker&) = delete;
  MemoryChecker& operator=(const MemoryChecker&) = delete;

  // The first fault at each place, with kernel and code address.
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
  // The allocation that contains all of these bytes, or null.
  Allocation* Find(const void* p, size_t bytes);
  void Tell(const char* what, const std::string& where);

  const device::Kernel* kernel_ = nullptr;
  int64_t n_accesses_ = 0;
  std::map<uintptr_t, Allocation> allocations_;  // by address
  std::vector<std::string> faults_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_MEMORY_CHECKER_H_
