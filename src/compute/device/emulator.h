// Runs kernels on the host, block by block, with a fiber for each thread of a block.
//
// A thread runs until it waits for others (at a barrier, or in an exchange between the lanes of a
// warp) or ends; then the next thread runs. Results equal a device's for correct kernels. The
// emulator reports these faults of incorrect ones:
//
//   - a barrier that some threads of the block do not reach, or reach at another place in the
//     code (a barrier in a divergent branch);
//   - an exchange that some lanes of the warp do not take part in;
//   - shared memory that one thread writes and another reads or writes with no barrier between
//     (a missing barrier), in either order;
//   - shared memory that a thread uses while a copy into it is pending, and a copy that nobody
//     waits for;
//   - an access to several words that is not aligned to all of them;
//   - a count of arrivals that exceeds the expected number;
//   - more shared memory or threads than devices have, or than the kernel is declared with.
//
// It does not see races in global memory. Blocks and threads can run in reverse order, which
// reveals results that depend on the order.
//
// Threads: Run may be called from any number of threads at once.
#ifndef WEFT_COMPUTE_DEVICE_EMULATOR_H_
#define WEFT_COMPUTE_DEVICE_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <version>
#ifdef __cpp_lib_source_location
#include <source_location>
#endif

#include "base/status.h"
#include "compute/device/kernel.h"
#include "compute/device/words.h"

namespace weft::device::emulator {

enum class Order { kAscending, kDescending };  // order of blocks, and of threads in a block

// Runs a whole launch. If the kernel breaks a rule, returns INTERNAL with the kernel, the thread
// and the source line, and the launch ends there.
Status Run(const Kernel& kernel, const LaunchShape& shape, const void* args,
           Order order = Order::kAscending);

// --- building blocks of the dialect's emulated side -------------------------------------

struct ThreadPlace {
  int thread = 0, n_threads = 1;
  int block_x = 0, block_y = 0, block_z = 0;
  int grid_x = 1;
};
extern constinit thread_local ThreadPlace place;
// CountTile's count on this thread.
extern constinit thread_local int64_t n_tiles;

#ifdef __cpp_lib_source_location
using Site = std::source_location;
#else
// Compilers without std::source_location (Clang 14) cannot tell two places in one line apart.
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

// Observes a thread's launches, one block after the other; for tests. The acting thread is the one
// at `place`.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnLaunch(const Kernel& /*kernel*/) {}
  // All threads of the block have reached a barrier.
  virtual void OnBarrier() {}
  virtual void OnBlockEnd(const Kernel& /*kernel*/) {}
  // One access to `n_words` words of shared memory.
  virtual void OnShared(int /*word*/, int /*n_words*/, const Site& /*site*/) {}
  // A copy from global to shared memory.
  virtual void OnCopy(const void* /*from*/, size_t /*bytes*/, const Site& /*site*/) {}
  // An access to global memory, by the instruction at `code`. Only kernels compiled with
  // instrumentation report it (tests/support/watched_accesses.h).
  virtual void OnGlobal(const void* /*p*/, size_t /*bytes*/, bool /*writes*/, uintptr_t /*code*/) {}
  // The block arrives at a count (Arrive in dialect.h); `last`: it is the last one.
  virtual void OnArrival(const void* /*count*/, bool /*last*/) {}
  // Operations of the emulated device on its memory: allocate, free, and copy or fill (null
  // `from`).
  virtual void OnAllocation(const void* /*p*/, size_t /*bytes*/) {}
  virtual void OnFree(const void* /*p*/) {}
  virtual void OnDeviceCopy(const void* /*to*/, const void* /*from*/, size_t /*bytes*/) {}
};
extern constinit thread_local Observer* observer;
// Whether the address belongs to the running thread and not to device memory: its stack, the
// kernel's arguments, or its warp's exchanged words.
bool IsOwn(const void* p);

void WaitForBlock(const Site& site);
// One lane's words in an exchange.
struct LaneWords {
  uint32_t w[6] = {};
};
// Contributes this lane's words, and returns those of all lanes of the warp, valid until the next
// exchange.
const LaneWords* ExchangeInWarp(const LaneWords& words, const Site& site);

// Allocates the next `n_words` words of the block's shared memory, aligned to four. All threads
// allocate in the same order and get the same words. Words start as garbage.
int TakeShared(int n_words, const Site& site);
// Words of the launch's dynamic shared memory, from word `first` on.
int TakeDynamic(int first, int n_words, const Site& site);
uint32_t ReadShared(int word, const Site& site);
void WriteShared(int word, uint32_t value, const Site& site);
// One access to four words; the first must be aligned to four.
Words4 ReadSharedWords(int word, const Site& site);
void WriteSharedWords(int word, const Words4& x, const Site& site);

// The calling thread's copies from global memory, four words each: begin one, commit those begun
// since the last call as a group, wait for all but the newest `n_left` groups. The bytes are read
// during the wait.
void BeginCopy(int word, const void* from, const Site& site);
void CommitCopies();
void WaitCopies(int n_left);

// See Arrive in dialect.h; a count above `all` breaks a rule.
bool Arrive(int32_t* count, int n, int all, const Site& site);

void ComplainOfAlignment(const Site& site);
// Checks one load or store of `bytes` bytes.
inline void CheckAligned(const void* p, size_t bytes, const Site& site) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) ComplainOfAlignment(site);
}

}  // namespace weft::device::emulator

#endif  // WEFT_COMPUTE_DEVICE_EMULATOR_H_
