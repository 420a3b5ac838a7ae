// How much memory sessions may take when nobody said.
#ifndef WEFT_ENGINE_MEMORY_BUDGET_H_
#define WEFT_ENGINE_MEMORY_BUDGET_H_

#include <cstdint>

namespace weft {

// Half of what the machine (or its container) can still give, at least 64 MiB.
int64_t DefaultMemoryBudget();

}  // namespace weft

#endif  // WEFT_ENGINE_MEMORY_BUDGET_H_
