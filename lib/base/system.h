// Functions that differ between operating systems, implemented in system_linux.cc and
// system_macos.cc. No other file asks which system it is built for.
//
// Any thread, unless said otherwise.
#ifndef WEFT_BASE_SYSTEM_H_
#define WEFT_BASE_SYSTEM_H_

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

namespace weft {

// --- memory -----------------------------------------------------------------------

// The machine's memory.
int64_t HostMemoryBytes();
// Memory that programs may still take without swapping, on the machine and in this container.
int64_t FreeHostMemoryBytes();
// What a program can take before the system ends one: the above and free swap space.
int64_t LoadableMemoryBytes();
// The process's memory, touched pages of mapped files included: now, and its peak since the start
// or since ForgetPeakMemory, which does nothing on systems that cannot reset the peak.
int64_t ResidentMemoryBytes();
int64_t PeakMemoryBytes();
void ForgetPeakMemory();

// Returns freed memory to the system. The allocator caches it per thread, so a series of large
// allocations on different threads would otherwise be held many times over. Takes milliseconds;
// does nothing where the C library has no such call.
void ReturnFreedMemory();

// Asks for huge pages, where there are any, for memory that nobody has touched yet.
void PreferHugePages(void* begin, size_t bytes);

// Gives whole pages of private anonymous memory back; they read as zeros from then on. False where
// the system refuses: then nothing has changed.
bool DiscardPages(void* begin, size_t bytes);

// Replaces a mapping with readable zeros. May be called in a signal handler.
bool MapZeros(uintptr_t begin, size_t bytes);

// --- processors and threads -------------------------------------------------------

// Features that not all AArch64 processors have; all false on other architectures.
struct ArmFeatures {
  bool dot_products = false;     // FEAT_DotProd: int8 dot products
  bool matrix_products = false;  // FEAT_I8MM: int8 matrix products
};
ArmFeatures FindArmFeatures();

// The calling thread's share of a contended core becomes about a third of an ordinary thread's.
void YieldToOthers();
// How many threads the process has.
int CountThreads();

// What the process has used since its start.
struct ProcessUse {
  int64_t cpu_us = 0;
  // Read for it from disks, and not found in memory; 0 where the system does not say.
  int64_t disk_bytes = 0;
};
ProcessUse UseSoFar();

// --- files and descriptors --------------------------------------------------------

// Flushes the file's data to the disk's own storage. Returns as fsync does: 0, or -1 and errno.
int SyncFile(int fd);
// Both do nothing where the system has no such call. They start writing a part of a file to the
// disk, without waiting for it; and wait until it is there, then give its cached pages back.
void StartWriteback(int fd, int64_t offset, int64_t bytes);
void DropCachedPages(int fd, int64_t offset, int64_t bytes);
// When the file's content was last changed.
timespec ModifiedAt(const struct stat& info);
// When it was last read, as far as the file system keeps that.
timespec AccessedAt(const struct stat& info);
// A pipe whose ends programs started later do not inherit. As pipe: 0, or -1 and errno.
int MakePipe(int (&ends)[2]);

// --- signals ----------------------------------------------------------------------

// A descriptor that is readable, for poll, while one of `signals` has come and was not taken.
// REQUIRES: they are blocked in every thread. -1 and errno if there is none.
int OpenSignals(const sigset_t& signals);
// Takes the next signal from such a descriptor, waiting for it: its number, or 0.
int TakeSignal(int fd);

// --- sockets ----------------------------------------------------------------------

// Turns on TCP keepalive: after `idle_s`, the system sends `n_probes` probes, one every
// `interval_s`, and closes the connection if the peer does not answer. Ignores options that the
// system refuses.
void WatchPeer(int socket, int idle_s, int interval_s, int n_probes);
// Bytes that the peer has not acknowledged yet; 0 if unknown.
int UnacknowledgedBytes(int socket);

}  // namespace weft

#endif  // WEFT_BASE_SYSTEM_H_
