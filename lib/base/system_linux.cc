#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "base/memory_limits.h"
#include "base/system.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace weft {
namespace {

// Of /proc/meminfo, such as "SwapFree:".
int64_t MemoryFigure(std::string_view wanted) {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (in >> key >> kib) {
    if (key == wanted) return kib * 1024;
    std::getline(in, unit);
  }
  return wanted == "MemAvailable:" ? int64_t{2} << 30 : 0;
}

int64_t AvailableInContainer() {
  std::ifstream in("/proc/self/cgroup");
  const std::string groups(std::istreambuf_iterator<char>(in), {});
  return FreeUnderLimits(groups, "/sys/fs/cgroup");
}

}  // namespace

int64_t HostMemoryBytes() {
  static const int64_t bytes = sysconf(_SC_PHYS_PAGES) * int64_t{sysconf(_SC_PAGESIZE)};
  return bytes;
}

int64_t FreeHostMemoryBytes() {
  return std::min(MemoryFigure("MemAvailable:"), AvailableInContainer());
}

int64_t LoadableMemoryBytes() {
  return std::min(MemoryFigure("MemAvailable:") + MemoryFigure("SwapFree:"),
                  AvailableInContainer());
}

int64_t ResidentMemoryBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream statm("/proc/self/statm");
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void ForgetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

void ReturnFreedMemory() {
#if defined(__GLIBC__)
  (void)malloc_trim(0);
#endif
}

void PreferHugePages(void* begin, size_t bytes) { madvise(begin, bytes, MADV_HUGEPAGE); }

bool DiscardPages(void* begin, size_t bytes) { return madvise(begin, bytes, MADV_DONTNEED) == 0; }

// Not mmap(): the sanitizers intercept it with more than a system call.
bool MapZeros(uintptr_t begin, size_t bytes) {
  return syscall(SYS_mmap, begin, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) == static_cast<long>(begin);
}

ArmFeatures FindArmFeatures() {
  ArmFeatures features;
#if defined(__aarch64__)
  // The kernel's numbers, which the C library's headers may be too old to name.
  constexpr unsigned long kDotProducts = 1ul << 20;     // HWCAP_ASIMDDP
  constexpr unsigned long kMatrixProducts = 1ul << 13;  // HWCAP2_I8MM
  features.dot_products = (getauxval(AT_HWCAP) & kDotProducts) != 0;
  features.matrix_products = (getauxval(AT_HWCAP2) & kMatrixProducts) != 0;
#endif
  return features;
}

void YieldToOthers() {
  // A nice value belongs to a thread, and anybody may raise his own.
  constexpr int kNice = 5;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

int CountThreads() {
  std::error_code error;
  int n = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end;
       at.increment(error)) {
    ++n;
  }
  return n;
}

ProcessUse UseSoFar() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) { return int64_t{t.tv_sec} * 1'000'000 + t.tv_usec; };
  return {us(usage.ru_utime) + us(usage.ru_stime), int64_t{usage.ru_inblock} * 512};
}

int SyncFile(int fd) { return fsync(fd); }

// To the kernel, no bytes are all up to the end.
void StartWriteback(int fd, int64_t offset, int64_t bytes) {
  if (bytes <= 0) return;
  (void)sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void DropCachedPages(int fd, int64_t offset, int64_t bytes) {
  if (bytes <= 0) return;
  (void)sync_file_range(
      fd, offset, bytes,
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  (void)posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED);
}

timespec ModifiedAt(const struct stat& info) { return info.st_mtim; }

timespec AccessedAt(const struct stat& info) { return info.st_atim; }

int MakePipe(int (&ends)[2]) { return pipe2(ends, O_CLOEXEC); }

int OpenSignals(const sigset_t& signals) { return signalfd(-1, &signals, SFD_CLOEXEC); }

int TakeSignal(int fd) {
  signalfd_siginfo info = {};
  return read(fd, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

void WatchPeer(int socket, int idle_s, int interval_s, int n_probes) {
  const auto set = [socket](int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, n_probes);
}

int UnacknowledgedBytes(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace weft
