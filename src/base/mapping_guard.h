// Keeps the process alive when a mapped file can no longer be read: it was cut short, or its
// disk fails. Reading such a page raises SIGBUS, whose default is the end of the process.
//
// While a guard lives, such a fault in its range puts pages of zeros from there to the range's
// end and marks the guard as damaged; the reader goes on, and whoever uses what it has made of
// the zeros must look at the mark first. A fault elsewhere goes to whoever handled SIGBUS
// before. The handler is the process's, installed with the first guard; whoever installs
// another one later calls this one for what is not theirs, or loses the protection.
//
// Any thread.
#ifndef WEFT_BASE_MAPPING_GUARD_H_
#define WEFT_BASE_MAPPING_GUARD_H_

#include <cstddef>

namespace weft {

class MappingGuard {
 public:
  // `data` is what mmap returned, or null where there is nothing to guard.
  MappingGuard(const std::byte* data, size_t size);
  // Before the range is unmapped.
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  // Whether zeros stand where something could not be read.
  bool damaged() const;

 private:
  struct Range;
  class Handler;
  Range* const range_;  // null where there is nothing to guard
};

}  // namespace weft

#endif  // WEFT_BASE_MAPPING_GUARD_H_
