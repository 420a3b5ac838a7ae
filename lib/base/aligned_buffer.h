// Uninitialised, cache-line-aligned memory for weights, scratch and state.
#ifndef WEFT_BASE_ALIGNED_BUFFER_H_
#define WEFT_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <span>
#include <utility>

namespace weft {

inline constexpr size_t kCacheLineBytes = 64;

// Owns `size` bytes aligned to 64. Large buffers are aligned to 2 MiB and ask for huge pages. Empty
// when default-constructed or when allocation failed: check `data()` if the size comes from
// outside.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // Views the buffer as whole values of T.
  template <typename T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), size_ / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weft

#endif  // WEFT_BASE_ALIGNED_BUFFER_H_
