// The StepGate that gives each engine the same time, by its measured use of it.
//
// Each place has a clock: the time that it has computed. Of those that wait, the place with the
// earliest clock goes next. A place that was idle starts at the clock of the current step: it goes
// next, but idle time earns it no more than that.
//
// Any thread.
#ifndef WEFT_ENGINE_TURNS_SHARED_GATE_H_
#define WEFT_ENGINE_TURNS_SHARED_GATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "weft/step_gate.h"

namespace weft {

class SharedGate : public StepGate, public std::enable_shared_from_this<SharedGate> {
 public:
  using Clock = std::function<int64_t()>;
  explicit SharedGate(Clock now_us = NowMicros) : now_us_(std::move(now_us)) {}

  std::unique_ptr<Place> NewPlace() override;
  // Places that wait for their turn.
  int waiting() const;

 private:
  class Member;

  int64_t Enter(Member* member) WEFT_EXCLUDES(mutex_);
  void PassOn(Member* member) WEFT_EXCLUDES(mutex_);
  void Leave(Member* member) WEFT_EXCLUDES(mutex_);
  void Begin(Member* member) WEFT_REQUIRES(mutex_);
  void Charge(Member* member) WEFT_REQUIRES(mutex_);
  void HandOver() WEFT_REQUIRES(mutex_);
  void NoteEarliest() WEFT_REQUIRES(mutex_);

  const Clock now_us_;
  mutable Mutex mutex_;
  const Member* holder_ WEFT_GUARDED_BY(mutex_) = nullptr;
  std::vector<Member*> waiting_ WEFT_GUARDED_BY(mutex_);  // none unless somebody holds the turn
  int64_t step_clock_us_ WEFT_GUARDED_BY(mutex_) = 0;     // when the latest step began
  std::atomic<int64_t> earliest_us_{INT64_MAX};           // clock of the first that waits
  std::atomic<int> n_busy_{0};                            // places that compute or wait
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_SHARED_GATE_H_
