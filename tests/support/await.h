// Runs a task to its end, for tests that are not coroutines themselves.
#ifndef WEFT_TESTS_SUPPORT_AWAIT_H_
#define WEFT_TESTS_SUPPORT_AWAIT_H_

#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "async/task.h"
#include "async/task_pool.h"

namespace weft::testing {

// Destroys the task before it delivers the result.
template <typename T>
Task<void> Deliver(Task<T> task, std::shared_ptr<std::promise<T>> to) {
  std::exception_ptr error;
  if constexpr (std::is_void_v<T>) {
    {
      Task<T> own = std::move(task);
      try {
        co_await own;
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (error == nullptr) to->set_value();
  } else {
    std::optional<T> value;
    {
      Task<T> own = std::move(task);
      try {
        T result = co_await own;
        value.emplace(std::move(result));
      } catch (...) {
        error = std::current_exception();
      }
    }
    if (error == nullptr) to->set_value(*std::move(value));
  }
  if (error != nullptr) to->set_exception(error);
}

// Runs the task on a thread of its own, and waits for that thread's end.
template <typename T>
T Await(Task<T> task) {
  const auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  TaskPool pool({.max_threads = 1});
  pool.Post("test", [&] { StartTask(Deliver(std::move(task), promise)); });
  result.wait();
  pool.Stop();
  return result.get();
}

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_AWAIT_H_
