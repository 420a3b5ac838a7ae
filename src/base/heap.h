// Memory that free() caches instead of returning to the system.
#ifndef WEFT_BASE_HEAP_H_
#define WEFT_BASE_HEAP_H_

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace weft {

// Returns freed memory to the system. The allocator caches it per thread, so a series of large
// allocations on different threads would otherwise be held many times over. Takes milliseconds;
// does nothing where the C library has no such call.
inline void ReturnFreedMemory() {
#if defined(__GLIBC__)
  (void)malloc_trim(0);
#endif
}

}  // namespace weft

#endif  // WEFT_BASE_HEAP_H_
