#include "async/signal.h"

#include "base/check.h"

namespace weft {

bool Signal::State::Begin(std::coroutine_handle<> waiting, std::optional<TimePoint> deadline) {
  TaskPool* const here = TaskPool::Current();
  WEFT_CHECK(here != nullptr, "only tasks in a pool wait");
  MutexLock lock(&mutex);
  WEFT_CHECK(task == nullptr, "one task at a time waits for a signal");
  expired = false;
  if (std::exchange(notified, false)) return false;
  task = waiting;
  pool = here;
  ++n_waits;
  if (deadline.has_value()) {
    timer = here->AddTimer(*deadline,
                           [self = shared_from_this(), wait = n_waits] { self->Expire(wait); });
  }
  return true;
}

void Signal::State::Notify() {
  std::coroutine_handle<> ready;
  TaskPool* its = nullptr;
  std::optional<TaskPool::TimerKey> its_timer;
  {
    MutexLock lock(&mutex);
    if (task == nullptr) {
      notified = true;
      return;
    }
    ready = std::exchange(task, nullptr);
    its = pool;
    its_timer = std::exchange(timer, std::nullopt);
  }
  if (its_timer.has_value()) its->RemoveTimer(*its_timer);
  its->Resume(ready);
}

void Signal::State::Expire(uint64_t wait) {
  std::coroutine_handle<> late;
  {
    MutexLock lock(&mutex);
    if (task == nullptr || wait != n_waits) return;
    late = std::exchange(task, nullptr);
    timer.reset();
    expired = true;
  }
  late.resume();
}

}  // namespace weft
