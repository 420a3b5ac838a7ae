// Time as the engine sees it: a monotonic clock in microseconds.
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

}  // namespace weft

#endif  // WEFT_BASE_CLOCK_H_
