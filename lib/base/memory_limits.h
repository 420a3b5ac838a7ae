// The memory limits that Linux sets containers and services by control groups, of both versions.
#ifndef WEFT_BASE_MEMORY_LIMITS_H_
#define WEFT_BASE_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// What is free under the strictest limit of the groups in `groups`, as /proc/self/cgroup lists
// them, and of those that contain them. The cached pages of files count as free, since the system
// takes them back. `root` is where the groups are mounted. INT64_MAX without a limit.
int64_t FreeUnderLimits(std::string_view groups, const std::string& root);

}  // namespace weft

#endif  // WEFT_BASE_MEMORY_LIMITS_H_
