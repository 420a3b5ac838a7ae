// One thread for the engine's file work, so that disk access never delays a step. Session files go
// before blocks of state, which can be recomputed: each kind runs in the order of posting.
#ifndef WEFT_ENGINE_STORAGE_WORKER_H_
#define WEFT_ENGINE_STORAGE_WORKER_H_

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.h"

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
  // Runs the job before all queued ones, because someone is waiting for it.
  void PostFirst(std::function<void()> job) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      jobs_.push_front(std::move(job));
    }
    arrived_.NotifyAll();
  }

  // Runs what was posted otherwise meanwhile. Only in a job of PostLast.
  void RunOthers() WEFT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

 private:
  void Loop() WEFT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        while (jobs_.empty() && last_jobs_.empty() && !stopping_) arrived_.Wait(&mutex_);
        auto& next = jobs_.empty() ? last_jobs_ : jobs_;
        if (next.empty()) return;
        job = std::move(next.front());
        next.pop_front();
      }
      job();
    }
  }

  Mutex mutex_;
  CondVar arrived_;
  std::deque<std::function<void()>> jobs_ WEFT_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> last_jobs_ WEFT_GUARDED_BY(mutex_);
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_WORKER_H_
