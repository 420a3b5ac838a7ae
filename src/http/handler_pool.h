// The threads that run handlers: created on demand, up to a limit; further work waits in a bounded
// queue.
//
// Any thread may post. Only the owner calls Stop.
#ifndef WEFT_HTTP_HANDLER_POOL_H_
#define WEFT_HTTP_HANDLER_POOL_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/mutex.h"

namespace weft::serve {

class HandlerPool {
 public:
  // `waiting`, if not null, outlives the pool and always holds the number of waiting jobs.
  HandlerPool(int max_threads, int max_waiting, std::atomic<int64_t>* waiting = nullptr);
  ~HandlerPool();  // same as Stop
  HandlerPool(const HandlerPool&) = delete;
  HandlerPool& operator=(const HandlerPool&) = delete;

  // False if no thread is free and the queue is full, or after Stop.
  bool Post(std::function<void()> work);
  // Runs the waiting jobs, then joins.
  void Stop();

 private:
  static void* ThreadMain(void* pool);
  void Run();
  bool AddThread() WEFT_REQUIRES(mutex_);
  void TellWaiting() WEFT_REQUIRES(mutex_);

  const size_t max_threads_;
  const size_t max_waiting_;
  std::atomic<int64_t>* const waiting_;
  Mutex mutex_;
  CondVar work_or_stop_;
  std::deque<std::function<void()>> queue_ WEFT_GUARDED_BY(mutex_);
  std::vector<pthread_t> threads_ WEFT_GUARDED_BY(mutex_);
  size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft::serve

#endif  // WEFT_HTTP_HANDLER_POOL_H_
