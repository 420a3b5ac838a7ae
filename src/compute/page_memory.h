// Host memory for pages by id: reserves address space in slabs, takes memory from the system when a
// page is first written, and returns it page by page.
//
// For backends with state in ordinary memory. One PageMemory serves one KvGroup, or all slots.
// Pages never move, so pointers stay valid until the object is destroyed. Page contents are
// undefined after Grow and after Discard.
//
// Threads: Grow, Touch and Discard belong to the engine's thread; helper threads may call page()
// while none of these runs.
#ifndef WEFT_COMPUTE_PAGE_MEMORY_H_
#define WEFT_COMPUTE_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/state_ids.h"
#include "base/status.h"

namespace weft {

class PageMemory {
 public:
  // REQUIRES: page_bytes > 0. Takes no memory yet.
  explicit PageMemory(int64_t page_bytes);
  ~PageMemory();
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&&) = delete;

  // Makes ids [0, n_pages) usable; does nothing if there are already as many. RESOURCE_EXHAUSTED,
  // with nothing changed, if the pages would exceed the machine's memory or the system refuses.
  Status Grow(int64_t n_pages);

  // The page's first byte, aligned to 64. REQUIRES: 0 <= id < n_pages(). Call Touch before writing.
  std::byte* page(PageId id) const {
    return slabs_[static_cast<size_t>(id) >> slab_shift_] +
           (static_cast<int64_t>(id) & slab_mask_) * stride_bytes_;
  }

  // Marks the page as held, before it is written. REQUIRES: id is in range.
  void Touch(PageId id);

  // Returns the pages' memory to the system. REQUIRES: ids are in range.
  void Discard(std::span<const PageId> ids);

  // Makes the page all zeros; it then holds no memory. REQUIRES: id is in range.
  void Zero(PageId id);

  int64_t n_pages() const { return static_cast<int64_t>(touched_.size()); }
  // Bytes of the pages that were touched and not discarded since.
  int64_t held_bytes() const { return n_touched_ * stride_bytes_; }

 private:
  int64_t slab_bytes() const { return (slab_mask_ + 1) * stride_bytes_; }

  // Distance between pages: a multiple of the system's page size, so that each page's memory can be
  // returned by itself.
  const int64_t stride_bytes_;
  int slab_shift_ = 0;  // log2 of the pages in a slab
  int64_t slab_mask_ = 0;
  std::vector<std::byte*> slabs_;
  std::vector<bool> touched_;  // one per page
  int64_t n_touched_ = 0;
};

}  // namespace weft

#endif  // WEFT_COMPUTE_PAGE_MEMORY_H_
