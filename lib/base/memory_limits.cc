#include "base/memory_limits.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace weft {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The names of a group's files.
struct Files {
  const char* limit;
  const char* used;
  const char* cached[2];  // in memory.stat
};
constexpr Files kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Files kVersion2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

// Nothing for "max", or without such a file.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

int64_t CachedBytes(const std::string& folder, const Files& files) {
  std::ifstream in(folder + "memory.stat");
  std::string key;
  int64_t value = 0, sum = 0;
  while (in >> key >> value) {
    if (key == files.cached[0] || key == files.cached[1]) sum += value;
  }
  return sum;
}

int64_t FreeInGroup(const std::string& folder, const Files& files) {
  const std::optional<int64_t> limit = ReadNumber(folder + files.limit);
  const std::optional<int64_t> used = ReadNumber(folder + files.used);
  if (!limit || !used) return kNoLimit;
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - CachedBytes(folder, files)));
}

// Of the group and of all above it. Inside a container, the path may be the one outside, whose
// folders are not there; the root's files are then the container's.
int64_t FreeInGroups(const std::string& root, std::string path, const Files& files) {
  int64_t least = kNoLimit;
  while (true) {
    while (path.ends_with('/')) path.pop_back();
    least = std::min(least, FreeInGroup(root + path + "/", files));
    if (path.empty()) return least;
    path.resize(path.rfind('/') + 1);
  }
}

}  // namespace

int64_t FreeUnderLimits(std::string_view groups, const std::string& root) {
  int64_t least = kNoLimit;
  std::istringstream lines{std::string(groups)};
  // Such as 4:cpu,memory:/user, or 0::/user for version 2.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos || line[second + 1] != '/') continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, FreeInGroups(root, path, kVersion2));
    if (controllers.find(",memory,") == controllers.npos) continue;
    least = std::min(least, FreeInGroups(root + "/memory", path, kVersion1));
  }
  return least;
}

}  // namespace weft
