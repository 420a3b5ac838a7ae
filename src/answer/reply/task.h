// Coroutines for parsers whose input arrives in pieces: a parser is written as if the whole text
// were available, and is suspended where the text so far ends.
//
//   ReplyTask<bool> Digits(ReplyIo& io) {
//     while (IsDigit(co_await io.Peek())) io.Take();
//     co_return true;
//   }
//
// A task runs when it is awaited and is owned by its awaiter. ReplyIo resumes the innermost task,
// so depth costs memory but no stack. One thread at a time.
//
// Pass arguments that outlive the call: GCC 12 destroys some temporaries twice. It also asks for
// awaits in statements of their own, which tools/check_layers.py checks.
#ifndef WEFT_ANSWER_REPLY_TASK_H_
#define WEFT_ANSWER_REPLY_TASK_H_

#include <coroutine>
#include <exception>
#include <utility>
#include <vector>

namespace weft {

// Tasks, each awaiting the next; the last one runs.
using ReplyTaskStack = std::vector<std::coroutine_handle<>>;

class ReplyPromiseBase {
 public:
  static std::suspend_always initial_suspend() { return {}; }
  static std::suspend_always final_suspend() noexcept { return {}; }
  [[noreturn]] static void unhandled_exception() { std::terminate(); }

  ReplyTaskStack* stack = nullptr;
};

template <typename T>
class [[nodiscard]] ReplyTask {
 public:
  struct promise_type : ReplyPromiseBase {
    ReplyTask get_return_object() {
      return ReplyTask(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    void return_value(T returned) { value = std::move(returned); }
    T value{};
  };

  ReplyTask(ReplyTask&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ReplyTask& operator=(ReplyTask&&) = delete;
  ~ReplyTask() {
    if (handle_) handle_.destroy();
  }

  // Puts the outermost task on a stack, to be resumed there.
  void StartOn(ReplyTaskStack* stack) {
    handle_.promise().stack = stack;
    stack->push_back(handle_);
  }

  bool await_ready() const { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> parent) {
    StartOn(parent.promise().stack);
  }
  T await_resume() { return std::move(handle_.promise().value); }

 private:
  explicit ReplyTask(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_TASK_H_
