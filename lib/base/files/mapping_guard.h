// Keeps the process alive when a mapped file can no longer be read because it was truncated or its
// disk fails. Reading such a page raises SIGBUS, which kills the process by default.
//
// While a guard lives, a fault in its range maps pages of zeros from there to the end of the range
// and marks the guard as damaged. The reader carries on; check the mark before using anything
// computed from the zeros. Faults elsewhere go to the previous SIGBUS handler. The handler is
// process-wide and installed with the first guard; code that installs another one later must chain
// to this one, or the protection is lost.
//
// Any thread.
#ifndef WEFT_BASE_FILES_MAPPING_GUARD_H_
#define WEFT_BASE_FILES_MAPPING_GUARD_H_

#include <cstddef>

namespace weft {

class MappingGuard {
 public:
  // `data` is the result of mmap, or null if there is nothing to guard.
  MappingGuard(const std::byte* data, size_t size);
  // Call before unmapping the range.
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  // Whether zeros have replaced anything unreadable.
  bool damaged() const;

 private:
  struct Range;
  class Handler;
  Range* const range_;  // null if there is nothing to guard
};

}  // namespace weft

#endif  // WEFT_BASE_FILES_MAPPING_GUARD_H_
