// The memory budget for sessions.
#ifndef WEFT_ENGINE_MEMORY_BUDGET_H_
#define WEFT_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>

#include "base/status.h"
#include "compute/backend.h"

namespace weft {

// Memory that is free now but will not stay so.
struct MemoryClaims {
  int64_t taken_bytes = 0;  // in use already, although the system counts them as free
  int64_t later_bytes = 0;  // Executor::later_bytes
};

// Half of the host's free memory, or all of a device's own but MemoryInfo::reserve_bytes. At least
// 64 MiB.
StatusOr<int64_t> DefaultMemoryBudget(const Backend& backend, int device,
                                      const MemoryClaims& claims = {});
// `wanted_bytes`, limited by a device's own memory. Not limited on the host, which can make room.
StatusOr<int64_t> LimitMemoryBudget(int64_t wanted_bytes, const Backend& backend, int device,
                                    const MemoryClaims& claims);

// Bytes of the keys and values of one position of a session, without what pages are rounded up to.
double KvBytesPerToken(const ModelSpec& spec, KvTypes types);

}  // namespace weft

#endif  // WEFT_ENGINE_MEMORY_BUDGET_H_
