#include "engine/memory_budget.h"

#include <algorithm>

namespace weft {

StatusOr<int64_t> DefaultMemoryBudget(const Backend& backend, int device, int64_t taken_bytes) {
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo memory, backend.MemoryOf(device));
  return std::max<int64_t>((memory.free_bytes - taken_bytes) / 2, int64_t{64} << 20);
}

}  // namespace weft
