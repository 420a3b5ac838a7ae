// The default memory budget for sessions.
#ifndef WEFT_ENGINE_MEMORY_BUDGET_H_
#define WEFT_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>

#include "backend/backend.h"
#include "base/status.h"

namespace weft {

// Half of the device's free memory, at least 64 MiB. `taken_bytes` of what the system counts as
// free are not.
StatusOr<int64_t> DefaultMemoryBudget(const Backend& backend, int device, int64_t taken_bytes = 0);

}  // namespace weft

#endif  // WEFT_ENGINE_MEMORY_BUDGET_H_
