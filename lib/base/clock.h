// Time in microseconds: monotonic for durations, wall-clock for times that outlive the process.
#ifndef WEFT_BASE_CLOCK_H_
#define WEFT_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace weft {

inline int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Since 1970. May jump, even backwards.
inline int64_t WallClockMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace weft

#endif  // WEFT_BASE_CLOCK_H_
