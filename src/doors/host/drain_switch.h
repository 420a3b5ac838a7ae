// Whether an operator has drained the server: turns that run go on, new ones are refused, and
// everything else is answered, until the switch is turned off again.
//
// One per server, shared by the hosts of its models. Any thread.
#ifndef WEFT_DOORS_HOST_DRAIN_SWITCH_H_
#define WEFT_DOORS_HOST_DRAIN_SWITCH_H_

#include <functional>
#include <list>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"

namespace weft::serve {

class DrainSwitch {
 public:
  using Watcher = std::function<void(bool is_on)>;

  bool is_on() const {
    MutexLock lock(&mutex_);
    return is_on_;
  }
  // Returns whether that changes it.
  bool Set(bool is_on);
  // UNAVAILABLE while it is on, with what a client can do.
  Status MayBegin() const;
  // Calls `watcher` now and at each change, until the result is destroyed. It must return at once
  // and not use the switch. The switch outlives the result.
  [[nodiscard]] std::shared_ptr<void> Watch(Watcher watcher);

 private:
  mutable Mutex mutex_;
  bool is_on_ WEFT_GUARDED_BY(mutex_) = false;
  std::list<Watcher> watchers_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_DRAIN_SWITCH_H_
