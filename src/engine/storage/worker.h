// One thread that runs jobs in order: the engine's file work (session files and blocks of state),
// so that disk access never delays a step.
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
  // Runs the job before all queued ones, because someone is waiting for it.
  void PostFirst(std::function<void()> job) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      jobs_.push_front(std::move(job));
    }
    arrived_.NotifyAll();
  }

 private:
  void Loop() WEFT_EXCLUDES(mutex_) {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        while (jobs_.empty() && !stopping_) arrived_.Wait(&mutex_);
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  Mutex mutex_;
  CondVar arrived_;
  std::deque<std::function<void()>> jobs_ WEFT_GUARDED_BY(mutex_);
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_WORKER_H_
