// A fixed set of threads that work together on one job at a time.
//
// The pool belongs to one caller thread (in Weft: the engine thread), which takes part as worker 0.
// Between jobs the helpers spin for a short while, then sleep, so back-to-back calls cost a
// microsecond and an idle pool costs nothing.
//
// Another program may have taken a helper's core: no ParallelFor waits for a helper that has not
// begun with it.
//
// Which worker does which part never influences a result: work is cut into parts whose arithmetic
// is independent (the same-bits rule).
#ifndef WEFT_BASE_THREAD_POOL_H_
#define WEFT_BASE_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace weft {

// Tells the processor that this thread spins.
void RelaxCpu();

class ThreadPool {
 public:
  // `n_threads` counts the caller: 1 starts no thread, 0 means one per core. If the system refuses
  // to start that many, the pool has fewer: see n_threads().
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls body(worker) once on every worker (0 is the caller) and returns when all have returned.
  // Not reentrant. Owner thread only.
  void RunOnAll(FunctionRef<void(int)> body);

  // Calls body(begin, end, worker) over disjoint ranges that cover [0, n), each at most `grain`
  // long, and shorter toward the end, so that workers of unequal speed end together; free workers
  // take the next range, in ascending order. Owner thread only.
  void ParallelFor(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body);

 private:
  void HelperLoop(int worker);
  // A new job, which helpers may join until it is closed; Close waits for those that have.
  void Begin(const FunctionRef<void(int)>& body);
  void Close();
  // Joins the job that `job_` showed, unless it has been closed.
  bool Join(uint64_t job);

  int n_threads_;  // constant after construction
  std::vector<std::thread> helpers_;

  // Written by the owner before it begins a job, read by helpers that have joined.
  const FunctionRef<void(int)>* body_ = nullptr;
  // The number of the present job, whether it is open, and how many helpers are at it.
  std::atomic<uint64_t> job_{0};
  std::atomic<bool> stopping_{false};

  std::mutex sleep_mutex_;  // guards nothing but the sleep itself
  std::condition_variable wake_;
  std::atomic<int> sleeping_{0};
};

}  // namespace weft

#endif  // WEFT_BASE_THREAD_POOL_H_
