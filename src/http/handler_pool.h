// The threads that handlers run on: made when they are needed, up to a number; what finds
// none free waits in a bounded queue.
//
// Any thread may post. Stop belongs to the owner.
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
  // `waiting`, when not null, outlives the pool and always tells how much waits for a thread.
  HandlerPool(int max_threads, int max_waiting, std::atomic<int64_t>* waiting = nullptr);
  ~HandlerPool();  // as Stop
  HandlerPool(const HandlerPool&) = delete;
  HandlerPool& operator=(const HandlerPool&) = delete;

  // False when no thread is free and the queue is full, or after Stop.
  bool Post(std::function<void()> work);
  // Runs what waits, then joins.
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
