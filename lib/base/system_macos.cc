#include <fcntl.h>
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <pthread/qos.h>
#include <sys/event.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/system.h"

namespace weft {
namespace {

// 0 where there is no such number.
int64_t NumberOf(const char* name) {
  int64_t value = 0;  // 4 or 8 bytes, little-endian
  size_t size = sizeof(value);
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 ? value : 0;
}

}  // namespace

int64_t HostMemoryBytes() {
  static const int64_t bytes = NumberOf("hw.memsize");
  return bytes;
}

int64_t FreeHostMemoryBytes() {
  const mach_port_t host = mach_host_self();
  vm_statistics64_data_t pages = {};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  const kern_return_t result =
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count);
  mach_port_deallocate(mach_task_self(), host);
  if (result != KERN_SUCCESS) return HostMemoryBytes() / 2;
  // The system frees file caches on demand. (Speculative pages are counted as free.)
  const int64_t n_pages =
      int64_t{pages.free_count} + int64_t{pages.inactive_count} + int64_t{pages.purgeable_count};
  return n_pages * static_cast<int64_t>(vm_kernel_page_size);
}

// Swap space grows on demand.
int64_t LoadableMemoryBytes() { return HostMemoryBytes(); }

int64_t ResidentMemoryBytes() {
  mach_task_basic_info_data_t info = {};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t result = task_info(mach_task_self(), MACH_TASK_BASIC_INFO,
                                         reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? static_cast<int64_t>(info.resident_size) : 0;
}

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss};  // in bytes here
}

void ForgetPeakMemory() {}

void ReturnFreedMemory() { (void)malloc_zone_pressure_relief(nullptr, 0); }

// The system's own pages have 16 KiB, and larger ones are not to be had.
void PreferHugePages(void*, size_t) {}

// MADV_DONTNEED keeps the content here.
bool DiscardPages(void* begin, size_t bytes) {
  return mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) ==
         begin;
}

bool MapZeros(uintptr_t begin, size_t bytes) {
  void* const at = reinterpret_cast<void*>(begin);
  return mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) == at;
}

ArmFeatures FindArmFeatures() {
  return {.dot_products = NumberOf("hw.optional.arm.FEAT_DotProd") != 0,
          .matrix_products = NumberOf("hw.optional.arm.FEAT_I8MM") != 0};
}

void YieldToOthers() { pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0); }

int CountThreads() {
  thread_act_array_t threads = nullptr;
  mach_msg_type_number_t n = 0;
  if (task_threads(mach_task_self(), &threads, &n) != KERN_SUCCESS) return 0;
  for (mach_msg_type_number_t i = 0; i < n; ++i) mach_port_deallocate(mach_task_self(), threads[i]);
  vm_deallocate(mach_task_self(), reinterpret_cast<vm_address_t>(threads), n * sizeof(*threads));
  return static_cast<int>(n);
}

// Blocks that were read are counted without their size.
ProcessUse UseSoFar() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) { return int64_t{t.tv_sec} * 1'000'000 + t.tv_usec; };
  return {us(usage.ru_utime) + us(usage.ru_stime), 0};
}

// fsync hands data to the disk, which may lose them from its cache. Not every file system knows
// more.
int SyncFile(int fd) { return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : fsync(fd); }

void StartWriteback(int, int64_t, int64_t) {}

void DropCachedPages(int, int64_t, int64_t) {}

timespec ModifiedAt(const struct stat& info) { return info.st_mtimespec; }

timespec AccessedAt(const struct stat& info) { return info.st_atimespec; }

int MakePipe(int (&ends)[2]) {
  if (pipe(ends) != 0) return -1;
  for (const int end : ends) (void)fcntl(end, F_SETFD, FD_CLOEXEC);
  return 0;
}

// A queue of events hears of signals that are blocked, too.
int OpenSignals(const sigset_t& signals) {
  const int queue = kqueue();
  if (queue < 0) return -1;
  (void)fcntl(queue, F_SETFD, FD_CLOEXEC);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&signals, signal) != 1) continue;
    struct kevent change = {};
    EV_SET(&change, signal, EVFILT_SIGNAL, EV_ADD, 0, 0, nullptr);
    if (kevent(queue, &change, 1, nullptr, 0, nullptr) == 0) continue;
    const int error = errno;
    close(queue);
    errno = error;
    return -1;
  }
  return queue;
}

int TakeSignal(int fd) {
  struct kevent event = {};
  return kevent(fd, nullptr, 0, &event, 1, nullptr) == 1 ? static_cast<int>(event.ident) : 0;
}

void WatchPeer(int socket, int idle_s, int interval_s, int n_probes) {
  const auto set = [socket](int level, int option, int value) {
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPALIVE, idle_s);  // the time before the first question
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, n_probes);
}

int UnacknowledgedBytes(int socket) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  return getsockopt(socket, SOL_SOCKET, SO_NWRITE, &bytes, &size) == 0 ? bytes : 0;
}

}  // namespace weft
