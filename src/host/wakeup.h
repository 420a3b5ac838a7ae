// What somebody sleeps on who waits for any of several things: a count that each of them
// advances when it has something new.
//
//   const uint64_t seen = wakeup.count();
//   if (!look everywhere) wakeup.WaitPast(seen, deadline);
//
// Nothing that happens between the look and the wait is missed. Any thread.
#ifndef WEFT_HOST_WAKEUP_H_
#define WEFT_HOST_WAKEUP_H_

#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace weft::serve {

class Wakeup {
 public:
  uint64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }
  void Advance() {
    MutexLock lock(&mutex_);
    ++count_;
    advanced_.NotifyAll();
  }
  // False when the count is still `seen` at the deadline.
  bool WaitPast(uint64_t seen, std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(&mutex_);
    while (count_ == seen) {
      if (!advanced_.WaitUntil(&mutex_, deadline)) return count_ != seen;
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  CondVar advanced_;
  uint64_t count_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::serve

#endif  // WEFT_HOST_WAKEUP_H_
