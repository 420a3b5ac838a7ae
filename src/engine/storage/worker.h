// One thread for the engine's file work, so that disk access never delays a step. Session files go
// before blocks of state, which can be recomputed: each kind runs in the order of posting.
#ifndef WEFT_ENGINE_STORAGE_WORKER_H_
#define WEFT_ENGINE_STORAGE_WORKER_H_

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "engine/storage/tenant_turns.h"

namespace weft {

class Worker {
 public:
  Worker() : thread_([this] { Loop(); }) {}
  // Runs all posted jobs, then ends.
  ~Worker() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    arrived_.NotifyAll();
    thread_.join();
  }

  void Post(std::function<void()> job) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      jobs_.push_back(std::move(job));
    }
    arrived_.NotifyAll();
  }
  // Runs the job once no other is queued. A long one calls RunOthers now and then.
  void PostLast(std::function<void()> job) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      last_jobs_.push_back(std::move(job));
    }
    arrived_.NotifyAll();
  }
  // Runs the job before all of the other kinds, because the tenant is waiting for it. Tenants take
  // turns.
  void PostFirst(const std::string& tenant, std::function<void()> job) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      first_jobs_.Push(tenant, std::move(job));
    }
    arrived_.NotifyAll();
  }

  // Runs all other jobs posted meanwhile. Only in a job of PostLast.
  void RunOthers() WEFT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        if (first_jobs_.empty() && jobs_.empty()) return;
        job = Take();
      }
      job();
    }
  }

 private:
  bool HasJobs() const WEFT_REQUIRES(mutex_) {
    return !first_jobs_.empty() || !jobs_.empty() || !last_jobs_.empty();
  }
  std::function<void()> Take() WEFT_REQUIRES(mutex_) {
    if (!first_jobs_.empty()) return first_jobs_.Pop();
    auto& next = jobs_.empty() ? last_jobs_ : jobs_;
    std::function<void()> job = std::move(next.front());
    next.pop_front();
    return job;
  }
  void Loop() WEFT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        while (!HasJobs() && !stopping_) arrived_.Wait(&mutex_);
        if (!HasJobs()) return;
        job = Take();
      }
      job();
    }
  }

  Mutex mutex_;
  CondVar arrived_;
  TenantTurns first_jobs_ WEFT_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> jobs_ WEFT_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> last_jobs_ WEFT_GUARDED_BY(mutex_);
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_WORKER_H_
