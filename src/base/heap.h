// The memory that free() keeps for later.
#ifndef WEFT_BASE_HEAP_H_
#define WEFT_BASE_HEAP_H_

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace weft {

// Gives what was freed back to the system. An allocator keeps it for the threads that had
// it, so that one large thing after the other, each on another thread, is held many times
// over. Takes milliseconds; does nothing where the C library has no such call.
inline void ReturnFreedMemory() {
#if defined(__GLIBC__)
  (void)malloc_trim(0);
#endif
}

}  // namespace weft

#endif  // WEFT_BASE_HEAP_H_
