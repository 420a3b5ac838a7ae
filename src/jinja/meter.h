// The budget of one rendering: steps of work, and bytes held at a time.
//
// Running out is sticky: every later Spend and Hold returns false, so a walk over values may stop
// at any depth and leave it to the interpreter to report status(). One object per rendering, one
// thread.
#ifndef WEFT_JINJA_METER_H_
#define WEFT_JINJA_METER_H_

#include <cstddef>
#include <cstdint>

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

  // Call before allocating memory; Release returns it.
  bool Hold(size_t bytes) {
    if (bytes > max_bytes_ - held_) [[unlikely]]
      return FailBytes();
    held_ += bytes;
    return SpendBytes(bytes);
  }
  void Release(size_t bytes) { held_ -= bytes; }
  // Whether this many more bytes could be held now; fails the meter if not.
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

}  // namespace weft::jinja

#endif  // WEFT_JINJA_METER_H_
