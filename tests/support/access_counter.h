// How kernels access memory, as a card would see it. For every launch that the emulator runs on
// this thread, a warp's loads or stores at one place in the code are one request, which touches a
// number of 32-byte sectors; for shared memory, a request takes a number of cycles.
//
// Only for kernels that are compiled for it (watched_accesses.h).
//
// A request to a single sector cannot be improved, so the ratios cover only requests to several.
#ifndef WEFT_TESTS_SUPPORT_ACCESS_COUNTER_H_
#define WEFT_TESTS_SUPPORT_ACCESS_COUNTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compute/device/emulator.h"

namespace weft::testing {

class AccessCounter : public device::emulator::Observer {
 public:
  // Counts of a kernel's launches, or of one place in its code.
  struct Count {
    int64_t requests = 0;  // by warps, to global memory
    int64_t sectors = 0, lines = 0, bytes = 0;
    // Requests to more than one sector: their sectors, and the fewest that could hold the same
    // bytes.
    int64_t wide_sectors = 0, wide_ideal = 0;
    // Cycles of shared memory, and the fewest possible, without bank conflicts.
    int64_t shared_cycles = 0, shared_ideal = 0;

    double SectorRatio() const;
    double SharedRatio() const;
    Count& operator+=(const Count& other);
  };
  // A place in the code: an address, or a line.
  struct Place {
    uintptr_t code = 0;
    std::string_view file;
    unsigned line = 0;
    auto operator<=>(const Place&) const = default;
  };

  AccessCounter() = default;
  ~AccessCounter() override;
  AccessCounter(const AccessCounter&) = delete;
  AccessCounter& operator=(const AccessCounter&) = delete;

  // Counts from now on.
  void Start();
  // Counts of all kernels whose names begin with `name`.
  Count Of(std::string_view name) const;
  // A line for each kernel, and one for each place with a bad ratio; addr2line resolves addresses.
  std::string Report() const;

  void OnGlobal(const void* p, size_t bytes, bool writes, uintptr_t code) override;
  void OnShared(int word, int n_words, const device::emulator::Site& site) override;
  void OnCopy(const void* from, size_t bytes, const device::emulator::Site& site) override;
  void OnBlockEnd(const device::Kernel& kernel) override;

 private:
  struct Piece {
    uintptr_t at;
    size_t bytes;
  };
  // The accesses of a warp's lanes when they execute a place for the n-th time.
  struct Request {
    int n = 0;
    std::array<Piece, 32> pieces;
  };
  // For the running block.
  struct Visits {
    bool is_shared = false;
    std::vector<int> n_of_thread;
    std::vector<std::vector<Request>> of_warp;
    Count count;
  };
  void Note(const Piece& piece, bool is_shared, const Place& place);
  static void Fold(const Request& request, bool is_shared, Count* count);

  std::map<Place, Visits> visits_;
  std::map<std::string, std::map<Place, Count>, std::less<>> counts_;  // by kernel
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_ACCESS_COUNTER_H_
