// The machine's memory.
#ifndef WEFT_BASE_HOST_MEMORY_H_
#define WEFT_BASE_HOST_MEMORY_H_

#include <cstdint>

namespace weft {

// What the machine has.
int64_t HostMemoryBytes();
// What programs may still take without swapping, in the machine and in this process's container.
int64_t FreeHostMemoryBytes();

}  // namespace weft

#endif  // WEFT_BASE_HOST_MEMORY_H_
