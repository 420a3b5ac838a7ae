// The budget of one rendering: steps of work, and bytes held at a time.
//
// Running out is sticky: every later Spend and Hold returns false, so a walk over values may stop
// at any depth and leave it to the interpreter to report status(). One object per rendering, one
// thread.
#ifndef WEFT_JINJA_METER_H_
#define WEFT_JINJA_METER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace weft::jinja {

class Meter {
 public:
  Meter(uint64_t max_steps, size_t max_bytes) : max_steps_(max_steps), max_bytes_(max_bytes) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // A step is about as much work as looking at one value.
  bool Spend(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > max_steps_ || failed_) [[unlikely]]
      return FailSteps();
    return true;
  }
  // For work on this many bytes of text.
  bool SpendBytes(size_t bytes) { return Spend(1 + bytes / 32); }
  // For work that looks at each of this many bytes, but does little with it.
  bool SpendScan(size_t bytes) { return Spend(1 + bytes / 8); }
  // For work that reads every character of this many bytes.
  bool SpendChars(size_t bytes) { return Spend(1 + bytes / 2); }

  // Call before allocating memory; Release returns it. Count the bytes that are allocated: the
  // capacity of a string or vector, not its size, and both the old and the new memory while the
  // content moves.
  bool Hold(size_t bytes) {
    if (bytes > max_bytes_ - held_) [[unlikely]]
      return FailBytes();
    held_ += bytes;
    return true;
  }
  void Release(size_t bytes) { held_ -= bytes; }
  // Whether this many more bytes fit now; fails the meter if not. For memory that is freed, or
  // passed to Hold, before the next allocation.
  bool Fits(size_t bytes) { return bytes <= max_bytes_ - held_ || FailBytes(); }

  // Stops the rendering with the caller's error.
  bool Fail(Status status);
  bool ok() const { return !failed_; }
  const Status& status() const { return status_; }

 private:
  bool FailSteps();
  bool FailBytes();

  const uint64_t max_steps_;
  const size_t max_bytes_;
  uint64_t steps_ = 0;
  size_t held_ = 0;
  bool failed_ = false;
  Status status_;
};

// What the allocator takes besides.
inline constexpr size_t kAllocationBytes = 16;
// An object made by make_shared.
template <typename T>
constexpr size_t SharedBytes() {
  return sizeof(T) + 16 + kAllocationBytes;
}
// What a string or vector has allocated.
template <typename Container>
size_t CapacityBytes(const Container& all) {
  return all.capacity() * sizeof(all[0]) + kAllocationBytes;
}

// Memory that a scope holds, such as that of a growing string or vector.
class Held {
 public:
  explicit Held(Meter* meter) : meter_(meter) {}
  ~Held() { Release(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  bool Add(size_t bytes) {
    if (!meter_->Hold(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  // Makes room for `more` elements. False if there is none; then nothing has changed.
  template <typename Container>
  bool Grow(Container* all, size_t more) {
    if (more <= all->capacity() - all->size()) return true;
    constexpr size_t kSize = sizeof((*all)[0]);
    if (more > SIZE_MAX / 4 / kSize) return meter_->Fits(SIZE_MAX);
    const size_t wanted = std::max(all->size() + more, 2 * all->capacity());
    if (!meter_->Hold(wanted * kSize + kAllocationBytes)) return false;
    all->reserve(wanted);
    Release();
    bytes_ = wanted * kSize + kAllocationBytes;
    return true;
  }
  void Release() { meter_->Release(std::exchange(bytes_, 0)); }

 private:
  Meter* const meter_;
  size_t bytes_ = 0;
};

}  // namespace weft::jinja

#endif  // WEFT_JINJA_METER_H_
