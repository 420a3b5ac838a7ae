// An event counter for waiting on any of several sources: each of them advances it when it has
// something new.
//
//   const uint64_t seen = wakeup.count();
//   if (!check all sources) wakeup.WaitPast(seen, deadline);
//
// Events between the check and the wait are not missed. Any thread.
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
  // False if the count is still `seen` at the deadline.
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
