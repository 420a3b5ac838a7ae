#include "base/aligned_buffer.h"

#include <cstdlib>

#include "base/system.h"

namespace weft {
namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(size_t size) {
  if (size == 0) return;
  const size_t alignment = size >= 4 * kHugePageBytes ? kHugePageBytes : kCacheLineBytes;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (rounded < size) return;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) return;
  if (alignment == kHugePageBytes) PreferHugePages(memory, rounded);
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
}

AlignedBuffer::~AlignedBuffer() { std::free(data_); }

}  // namespace weft
