#include "base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace weft {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// Reads a number from a cgroup file; kUnknown for "max".
int64_t ReadNumber(const char* path) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? value : kUnknown;
}

int64_t AvailableInSystem() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(in, unit);
  }
  return int64_t{2} << 30;
}

int64_t AvailableInContainer() {
  const int64_t limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const int64_t used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return std::max<int64_t>(0, limit - used);
}

}  // namespace

int64_t HostMemoryBytes() {
  static const int64_t bytes = sysconf(_SC_PHYS_PAGES) * int64_t{sysconf(_SC_PAGESIZE)};
  return bytes;
}

int64_t FreeHostMemoryBytes() { return std::min(AvailableInSystem(), AvailableInContainer()); }

}  // namespace weft
