// The memory budget for sessions.
#ifndef WEFT_ENGINE_MEMORY_BUDGET_H_
#define WEFT_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>

#include "backend/backend.h"
#include "base/status.h"

namespace weft {

// What is free now and will not stay so.
struct MemoryClaims {
  int64_t taken_bytes = 0;  // in use already, although the system counts them as free
  int64_t later_bytes = 0;  // Executor::later_bytes
};

// Half of what is free of the host's memory; of a device's own all but MemoryInfo::reserve_bytes.
// At least 64 MiB.
StatusOr<int64_t> DefaultMemoryBudget(const Backend& backend, int device,
                                      const MemoryClaims& claims = {});
// As much of `wanted_bytes` as a device with memory of its own has; all of it elsewhere, where the
// host can make room.
StatusOr<int64_t> LimitMemoryBudget(int64_t wanted_bytes, const Backend& backend, int device,
                                    const MemoryClaims& claims);

}  // namespace weft

#endif  // WEFT_ENGINE_MEMORY_BUDGET_H_
