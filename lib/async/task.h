// A function that may wait without holding a thread: a coroutine that begins when it is awaited.
//
//   Task<int> Sum(Numbers& numbers) {
//     const int a = co_await numbers.Next();
//     const int b = co_await numbers.Next();
//     co_return a + b;
//   }
//
// After a wait it continues on the thread that ended the wait; an exception passes to the awaiting
// coroutine. A task that has begun must run to its end before it is destroyed, and arguments by
// reference must live until then. For the sake of GCC 12, name the arguments, and await in
// statements of their own: tools/check_layers.py refuses other forms.
#ifndef WEFT_ASYNC_TASK_H_
#define WEFT_ASYNC_TASK_H_

#include <atomic>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace weft {

template <typename T>
class Task;

namespace task_internal {

// The awaiter starts the task on its own thread. The second of the two to reach `met_` continues
// the awaiter: the awaiter itself if the task ended at once, so that a loop over such tasks needs
// no stack; otherwise the task, at its end.
class PromiseBase {
 public:
  struct End {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      PromiseBase& promise = ended.promise();
      const std::coroutine_handle<> awaiting = promise.awaiting_;
      if (promise.met_.exchange(true, std::memory_order_acq_rel)) return awaiting;
      return std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  End final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error_ = std::current_exception(); }

  void set_awaiting(std::coroutine_handle<> awaiting) { awaiting_ = awaiting; }
  // Whether the awaiter has to wait.
  bool MustWait() { return !met_.exchange(true, std::memory_order_acq_rel); }
  void Rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::coroutine_handle<> awaiting_;
  std::atomic<bool> met_{false};
  std::exception_ptr error_;
};

template <typename T>
class Promise : public PromiseBase {
 public:
  Task<T> get_return_object();
  template <typename Value>
  void return_value(Value&& value) {
    value_.emplace(std::forward<Value>(value));
  }
  T Take() {
    Rethrow();
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class Promise<void> : public PromiseBase {
 public:
  Task<void> get_return_object();
  void return_void() const {}
  void Take() const { Rethrow(); }
};

}  // namespace task_internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_internal::Promise<T>;

  explicit Task(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  // --- for co_await, once --------------------------------------------------------
  bool await_ready() const noexcept { return false; }
  // Not inlined: its locals must not become part of a coroutine that may be gone by then.
  [[gnu::noinline]] bool await_suspend(std::coroutine_handle<> awaiting) {
    promise_type& promise = coroutine_.promise();
    promise.set_awaiting(awaiting);
    coroutine_.resume();
    return promise.MustWait();
  }
  T await_resume() { return coroutine_.promise().Take(); }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

namespace task_internal {

template <typename T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// Begins at once, and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() const { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

inline Detached Run(Task<void> task) { co_await task; }

}  // namespace task_internal

// Runs the task on this thread until it first waits; it ends by itself. It must not throw.
inline void StartTask(Task<void> task) { task_internal::Run(std::move(task)); }

}  // namespace weft

#endif  // WEFT_ASYNC_TASK_H_
