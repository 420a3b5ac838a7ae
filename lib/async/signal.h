// Lets a task wait until something has happened since its last wait. Notifications while it does
// not wait are kept, and several count as one.
//
//   while (!queue.TryPop(&item)) co_await signal.Wait();
//
// One task waits; any thread notifies, and never blocks. After a wait the task continues in the
// same TaskPool, so it must run in one.
#ifndef WEFT_ASYNC_SIGNAL_H_
#define WEFT_ASYNC_SIGNAL_H_

#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "async/task.h"
#include "async/task_pool.h"
#include "base/mutex.h"

namespace weft {

class Signal {
 public:
  using TimePoint = TaskPool::Clock::time_point;

  Signal() : state_(std::make_shared<State>()) {}

  void Notify() { state_->Notify(); }
  // The same, and may outlive the signal.
  std::function<void()> Notifier() const {
    return [state = state_] { state->Notify(); };
  }

 private:
  struct State : std::enable_shared_from_this<State> {
    // False if there is no need to wait.
    bool Begin(std::coroutine_handle<> task, std::optional<TimePoint> deadline);
    void Notify();
    void Expire(uint64_t wait);

    Mutex mutex;
    bool notified WEFT_GUARDED_BY(mutex) = false;
    std::coroutine_handle<> task WEFT_GUARDED_BY(mutex);  // the waiting task
    TaskPool* pool WEFT_GUARDED_BY(mutex) = nullptr;      // the pool of that task
    std::optional<TaskPool::TimerKey> timer WEFT_GUARDED_BY(mutex);
    uint64_t n_waits WEFT_GUARDED_BY(mutex) = 0;
    bool expired = false;  // set before the task continues, which then reads it
  };

  class Awaiter {
   public:
    Awaiter(std::shared_ptr<State> state, std::optional<TimePoint> deadline)
        : state_(std::move(state)), deadline_(deadline) {}
    bool await_ready() const noexcept { return false; }
    // Not inlined: once the task waits, another thread may continue it and free it.
    [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> task) {
      const std::shared_ptr<State> state = state_;
      return state->Begin(task, deadline_);
    }
    // False if the deadline passed first.
    bool await_resume() const { return !state_->expired; }

   private:
    const std::shared_ptr<State> state_;
    const std::optional<TimePoint> deadline_;
  };

 public:
  Awaiter Wait() { return {state_, std::nullopt}; }
  Awaiter WaitUntil(std::optional<TimePoint> deadline) { return {state_, deadline}; }

 private:
  const std::shared_ptr<State> state_;
};

// Calls a function that answers later through a callback, on any thread. `ask` is called at once
// with that callback.
//
//   const auto ask = [&](std::function<void(Status)> done) { engine.Park(session, done); };
//   const Status parked = co_await AnswerOf<Status>(ask);
template <typename T, typename Ask>
Task<T> AnswerOf(const Ask& ask) {
  struct Shared {
    Signal signal;
    std::optional<T> answer;
  };
  const auto shared = std::make_shared<Shared>();
  std::function<void(T)> done = [shared](T answer) {
    shared->answer.emplace(std::move(answer));
    shared->signal.Notify();
  };
  ask(std::move(done));
  co_await shared->signal.Wait();
  co_return *std::move(shared->answer);
}

}  // namespace weft

#endif  // WEFT_ASYNC_SIGNAL_H_
