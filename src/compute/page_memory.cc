#include "compute/page_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/system.h"

namespace weft {

namespace {

// Small enough that a small model's state reserves little address space, large enough that a big
// machine needs a few thousand mappings at most.
constexpr int64_t kSlabBytes = int64_t{32} << 20;

int64_t SystemPageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

PageMemory::PageMemory(int64_t page_bytes) : stride_bytes_(RoundUp(page_bytes, SystemPageBytes())) {
  WEFT_CHECK(page_bytes > 0, "a page holds something");
  while ((stride_bytes_ << (slab_shift_ + 1)) <= kSlabBytes) ++slab_shift_;
  slab_mask_ = (int64_t{1} << slab_shift_) - 1;
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : stride_bytes_(other.stride_bytes_),
      slab_shift_(other.slab_shift_),
      slab_mask_(other.slab_mask_),
      slabs_(std::exchange(other.slabs_, {})),
      touched_(std::exchange(other.touched_, {})),
      n_touched_(std::exchange(other.n_touched_, 0)) {}

PageMemory::~PageMemory() {
  for (std::byte* slab : slabs_) munmap(slab, slab_bytes());
}

Status PageMemory::Grow(int64_t n_pages) {
  if (n_pages <= this->n_pages()) return OkStatus();
  if (n_pages > HostMemoryBytes() / stride_bytes_ || n_pages > std::numeric_limits<PageId>::max()) {
    return ResourceExhausted("cannot have ", n_pages, " pages of ", HumanBytes(stride_bytes_),
                             ": the machine has ", HumanBytes(HostMemoryBytes()),
                             " of memory; use a shorter context or fewer sessions");
  }
  const size_t had = slabs_.size();
  const size_t need = ((n_pages - 1) >> slab_shift_) + 1;
  const auto undo = [&] {
    for (size_t i = had; i < slabs_.size(); ++i) munmap(slabs_[i], slab_bytes());
    slabs_.resize(had);
  };
  try {
    slabs_.reserve(need);
    touched_.reserve(n_pages);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory while making room for ", n_pages, " pages");
  }
  while (slabs_.size() < need) {
    void* slab = mmap(nullptr, slab_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) {
      undo();
      return ResourceExhausted("the system refuses the memory for ", n_pages, " pages of ",
                               HumanBytes(stride_bytes_));
    }
    slabs_.push_back(static_cast<std::byte*>(slab));
  }
  touched_.resize(n_pages, false);
  return OkStatus();
}

void PageMemory::Touch(PageId id) {
  WEFT_CHECK(id >= 0 && id < n_pages(), "page id out of range");
  if (touched_[id]) return;
  touched_[id] = true;
  ++n_touched_;
}

void PageMemory::Zero(PageId id) {
  WEFT_CHECK(id >= 0 && id < n_pages(), "page id out of range");
  if (!DiscardPages(page(id), stride_bytes_)) {
    std::memset(page(id), 0, stride_bytes_);
    return;
  }
  n_touched_ -= touched_[id] ? 1 : 0;
  touched_[id] = false;
}

void PageMemory::Discard(std::span<const PageId> ids) {
  std::vector<PageId> held;
  for (const PageId id : ids) {
    WEFT_CHECK(id >= 0 && id < n_pages(), "page id out of range");
    if (!touched_[id]) continue;
    touched_[id] = false;
    --n_touched_;
    held.push_back(id);
  }
  // One system call frees a whole run of neighbours.
  std::sort(held.begin(), held.end());
  for (size_t begin = 0, end; begin < held.size(); begin = end) {
    std::byte* const first = page(held[begin]);
    for (end = begin + 1; end < held.size(); ++end) {
      if (page(held[end]) != first + static_cast<int64_t>(end - begin) * stride_bytes_) break;
    }
    DiscardPages(first, static_cast<int64_t>(end - begin) * stride_bytes_);
  }
}

}  // namespace weft
