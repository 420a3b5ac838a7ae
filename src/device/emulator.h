// Runs kernels on the host, block by block, each thread of a block a fiber.
//
// A thread runs until it waits for others (a barrier, an exchange between the lanes of a warp)
// or ends; then the next one does. Results are those of a device wherever the kernel is correct,
// and where it is not the emulator says so as far as it sees:
//
//   - a barrier that some threads of the block do not reach, or reach at another place in the
//     code (a barrier in a divergent branch);
//   - an exchange that some lanes of the warp do not take part in;
//   - shared memory that one thread writes and another reads or writes with no barrier between
//     (a missing barrier), whichever of them came first;
//   - shared memory into which a copy is under way that is used by whoever has not waited for it,
//     and a copy that nobody waits for;
//   - several words loaded, stored or copied in one go that are not aligned to all of them;
//   - a count of arrivals that gets beyond what was to arrive;
//   - more shared memory or threads than devices have, or than the kernel is declared with.
//
// It does not see races in global memory. Blocks and threads can be taken in reverse order,
// which shows results that depend on it.
//
// Threads: Run may be called from any number of threads at once.
#ifndef WEFT_DEVICE_EMULATOR_H_
#define WEFT_DEVICE_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <version>
#ifdef __cpp_lib_source_location
#include <source_location>
#endif

#include "base/status.h"
#include "device/kernel.h"
#include "device/words.h"

namespace weft::device::emulator {

enum class Order { kAscending, kDescending };  // of blocks, and of threads in them

// Runs a whole launch. INTERNAL, with the kernel, the thread and the place, where the kernel
// broke a rule; the launch ends there.
Status Run(const Kernel& kernel, const LaunchShape& shape, const void* args,
           Order order = Order::kAscending);

// --- what the dialect's emulated side is made of ----------------------------------------

struct ThreadPlace {
  int thread = 0, n_threads = 1;
  int block_x = 0, block_y = 0, block_z = 0;
  int grid_x = 1;
};
extern constinit thread_local ThreadPlace place;
// What CountTile has counted on this thread.
extern constinit thread_local int64_t n_tiles;

#ifdef __cpp_lib_source_location
using Site = std::source_location;
#else
// Compilers without it (Clang 14) see no difference between two places of one line.
class Site {
 public:
  static constexpr Site current(const char* file = __builtin_FILE(),
                                uint_least32_t line = __builtin_LINE()) {
    Site site;
    site.file_ = file;
    site.line_ = line;
    return site;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr uint_least32_t line() const { return line_; }
  constexpr uint_least32_t column() const { return 0; }

 private:
  const char* file_ = "";
  uint_least32_t line_ = 0;
};
#endif

// Sees what the launches of a thread do, one block after the other; for tests. What is done is
// done by the thread at `place`.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnLaunch(const Kernel& /*kernel*/) {}
  // That all threads of the block have reached.
  virtual void OnBarrier() {}
  virtual void OnBlockEnd(const Kernel& /*kernel*/) {}
  // `n_words` words of shared memory in one go.
  virtual void OnShared(int /*word*/, int /*n_words*/, const Site& /*site*/) {}
  // From global memory to shared memory.
  virtual void OnCopy(const void* /*from*/, size_t /*bytes*/, const Site& /*site*/) {}
  // Of global memory, at an address in the code: by kernels that are compiled to tell of it
  // (tests/support/watched_accesses.h).
  virtual void OnGlobal(const void* /*p*/, size_t /*bytes*/, bool /*writes*/, uintptr_t /*code*/) {}
  // Of the block at the count of others (dialect.h); whether it is the last.
  virtual void OnArrival(const void* /*count*/, bool /*last*/) {}
  // What the emulated device does with its memory: gives it, takes it back, copies to it (`from`
  // null: fills it).
  virtual void OnAllocation(const void* /*p*/, size_t /*bytes*/) {}
  virtual void OnFree(const void* /*p*/) {}
  virtual void OnDeviceCopy(const void* /*to*/, const void* /*from*/, size_t /*bytes*/) {}
};
extern constinit thread_local Observer* observer;
// Whether that is not the device's memory but the running thread's: its stack, the kernel's
// arguments, what its warp exchanged.
bool IsOwn(const void* p);

void WaitForBlock(const Site& site);
// What the lanes of a warp give to each other in one exchange.
struct LaneWords {
  uint32_t w[6] = {};
};
// Gives that; what all lanes of the warp give, which stays until the next exchange.
const LaneWords* ExchangeInWarp(const LaneWords& words, const Site& site);

// The next `n_words` words of the block's shared memory, aligned to four; the same for all of its
// threads, which all ask in the same order. Words hold rubbish at first.
int TakeShared(int n_words, const Site& site);
// Words of what the launch gives, from its word `first` on.
int TakeDynamic(int first, int n_words, const Site& site);
uint32_t ReadShared(int word, const Site& site);
void WriteShared(int word, uint32_t value, const Site& site);
// Four in one go, the first of which is aligned to that.
Words4 ReadSharedWords(int word, const Site& site);
void WriteSharedWords(int word, const Words4& x, const Site& site);

// Copies of the calling thread from global memory, four words each: begun, put into a group with
// the others since the last call, and waited for but for the newest `n_left` groups. The bytes are
// read when they are waited for.
void BeginCopy(int word, const void* from, const Site& site);
void CommitCopies();
void WaitCopies(int n_left);

// See Arrive of dialect.h; a count that gets beyond `all` breaks a rule.
bool Arrive(int32_t* count, int n, int all, const Site& site);

void ComplainOfAlignment(const Site& site);
// A load or store of so many bytes in one go.
inline void CheckAligned(const void* p, size_t bytes, const Site& site) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) ComplainOfAlignment(site);
}

}  // namespace weft::device::emulator

#endif  // WEFT_DEVICE_EMULATOR_H_
