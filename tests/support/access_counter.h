// What kernels ask of memory, as a card would see it: of every launch that the emulator runs on
// this thread, the loads and stores of a warp at one place in the code are one request, which
// touches so many sectors of 32 bytes, and shared memory serves so many words a cycle.
//
// Of kernels that are compiled for it (watched_accesses.h).
//
// Requests to one sector cost as much whoever makes them, so ratios are over the others.
#ifndef WEFT_TESTS_SUPPORT_ACCESS_COUNTER_H_
#define WEFT_TESTS_SUPPORT_ACCESS_COUNTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/emulator.h"

namespace weft::testing {

class AccessCounter : public device::emulator::Observer {
 public:
  // Of one kernel, all launches, or of a place in it.
  struct Count {
    int64_t requests = 0;  // of warps to global memory
    int64_t sectors = 0, lines = 0, bytes = 0;
    // Of requests to more than one sector: those, and how few would hold the same bytes.
    int64_t wide_sectors = 0, wide_ideal = 0;
    // Cycles of shared memory, and how few would do if no two words lay in one bank.
    int64_t shared_cycles = 0, shared_ideal = 0;

    double SectorRatio() const;
    double SharedRatio() const;
    Count& operator+=(const Count& other);
  };
  // Where in the code: an address, or a line.
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
  // Of kernels whose names begin like that.
  Count Of(std::string_view name) const;
  // A line for each kernel, and for each place in it that asks for much more than it gets; of an
  // address addr2line tells where it is.
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
  // What the lanes of a warp ask for at a place the n-th time that they come to it.
  struct Request {
    int n = 0;
    std::array<Piece, 32> pieces;
  };
  // Of the block that runs.
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
