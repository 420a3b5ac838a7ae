// The default memory budget for sessions.
#ifndef WEFT_ENGINE_MEMORY_BUDGET_H_
#define WEFT_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>

namespace weft {

// Half of the free memory of the machine (or its container), at least 64 MiB.
int64_t DefaultMemoryBudget();

}  // namespace weft

#endif  // WEFT_ENGINE_MEMORY_BUDGET_H_
