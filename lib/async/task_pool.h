// A few threads that run work as soon as it is ready: work that tenants post, who take turns
// (TenantQueues), and tasks that can continue after a wait. A waiting task holds no thread.
//
// Threads are created on demand, up to a limit, and end when they have been idle for a while. They
// run at a lower priority than the engine's.
//
// Any thread may call any method, except Stop, which is the owner's.
#ifndef WEFT_ASYNC_TASK_POOL_H_
#define WEFT_ASYNC_TASK_POOL_H_

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "async/tenant_queues.h"
#include "base/mutex.h"

namespace weft {

class TaskPool {
 public:
  using Clock = std::chrono::steady_clock;
  // A timer's time, and a unique number.
  using TimerKey = std::pair<Clock::time_point, uint64_t>;

  struct Options {
    int max_threads = 1;
    // How many threads may run posted work at a time; for one tenant, one fewer. The others are for
    // tasks that continue, so that long work does not delay these.
    int max_posted = 1;
    int max_waiting = 256;  // posted work without a thread, for a tenant alone
    // If not null: outlives the pool, and always holds the number of posted works without a thread.
    std::atomic<int64_t>* waiting = nullptr;
  };

  explicit TaskPool(const Options& options);
  ~TaskPool();  // same as Stop
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // `tenant`: an API key or, without one, an address (HttpRequest::Account). False if too much of
  // the tenant's work is waiting, or after Stop.
  bool Post(const std::string& tenant, std::function<void()> work);
  // Continues a task, before any posted work.
  void Resume(std::coroutine_handle<> task);
  // Calls `expired` on one of the threads, unless the timer is removed before.
  TimerKey AddTimer(Clock::time_point when, std::function<void()> expired);
  void RemoveTimer(const TimerKey& key);
  // Runs everything that was posted, then joins. REQUIRES: no task still waits here.
  void Stop();

  // The pool that this thread belongs to, or null.
  static TaskPool* Current();

  // `co_await pool.Enter()`: continues the task in this pool.
  struct Entry {
    TaskPool* pool;
    bool await_ready() const noexcept { return pool == Current(); }
    void await_suspend(std::coroutine_handle<> task) const { pool->Resume(task); }
    void await_resume() const noexcept {}
  };
  Entry Enter() { return {this}; }

  // `co_await pool.EnterInTurn(tenant)`: continues the task in this pool as work that the tenant
  // posts. False if that was refused: the task then continues where it was.
  struct EntryInTurn {
    TaskPool* pool;
    std::string tenant;
    bool entered = true;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> task) {
      // Once posted, the task may end, and free this object, before Post returns.
      if (pool->Post(tenant, [task] { task.resume(); })) return true;
      entered = false;
      return false;
    }
    bool await_resume() const noexcept { return entered; }
  };
  EntryInTurn EnterInTurn(std::string tenant) { return {this, std::move(tenant)}; }

 private:
  using Work = std::function<void()>;

  static void* ThreadMain(void* pool);
  void Run();
  // The next work; empty if there is none. For posted work, also its tenant.
  Work Take(std::optional<TenantQueues::Tenants::iterator>* tenant) WEFT_REQUIRES(mutex_);
  void TakeExpired() WEFT_REQUIRES(mutex_);
  // False if the thread should end.
  bool WaitForWork() WEFT_REQUIRES(mutex_);
  // Wakes or creates a thread for the task just added.
  void Wake() WEFT_REQUIRES(mutex_);
  bool AddThread() WEFT_REQUIRES(mutex_);
  void LeaveThread() WEFT_REQUIRES(mutex_);
  // Threads that are idle or could be created.
  size_t FreeThreads() const WEFT_REQUIRES(mutex_);
  void TellWaiting() WEFT_REQUIRES(mutex_);

  const size_t max_threads_;
  std::atomic<int64_t>* const waiting_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Work> resumed_ WEFT_GUARDED_BY(mutex_);
  TenantQueues posted_ WEFT_GUARDED_BY(mutex_);
  std::map<TimerKey, Work> timers_ WEFT_GUARDED_BY(mutex_);
  uint64_t last_timer_ WEFT_GUARDED_BY(mutex_) = 0;
  std::vector<pthread_t> threads_ WEFT_GUARDED_BY(mutex_);
  std::vector<pthread_t> ended_ WEFT_GUARDED_BY(mutex_);  // not joined yet
  size_t idle_ WEFT_GUARDED_BY(mutex_) = 0;               // threads without work
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
};

}  // namespace weft

#endif  // WEFT_ASYNC_TASK_POOL_H_
