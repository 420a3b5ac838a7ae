// Runs a task for a thread that would otherwise idle, such as a command's main thread.
#ifndef WEFT_ASYNC_WAIT_FOR_TASK_H_
#define WEFT_ASYNC_WAIT_FOR_TASK_H_

#include <optional>
#include <utility>

#include "async/task.h"
#include "async/task_pool.h"
#include "base/mutex.h"

namespace weft {

namespace task_internal {

template <typename T>
struct Awaited {
  Mutex mutex;
  CondVar ended;
  std::optional<T> value WEFT_GUARDED_BY(mutex);
};

template <typename T>
Task<void> RunFor(TaskPool& pool, Task<T> task, Awaited<T>& awaited) {
  co_await pool.Enter();
  std::optional<T> value;
  {
    Task<T> own = std::move(task);  // gone before the waiter continues
    T result = co_await own;
    value.emplace(std::move(result));
  }
  MutexLock lock(&awaited.mutex);
  awaited.value = std::move(value);
  awaited.ended.NotifyAll();  // under the lock: the waiter frees it
}

}  // namespace task_internal

// Runs the task in the pool and waits for its end; REQUIRES: not on one of the pool's threads.
template <typename T>
T WaitForTask(TaskPool& pool, Task<T> task) {
  task_internal::Awaited<T> awaited;
  StartTask(task_internal::RunFor(pool, std::move(task), awaited));
  MutexLock lock(&awaited.mutex);
  while (!awaited.value.has_value()) awaited.ended.Wait(&awaited.mutex);
  return *std::move(awaited.value);
}

}  // namespace weft

#endif  // WEFT_ASYNC_WAIT_FOR_TASK_H_
