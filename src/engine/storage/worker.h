// One thread for the engine's file work, so that disk access never delays a step. The order is the
// queue's (work_queue.h).
#ifndef WEFT_ENGINE_STORAGE_WORKER_H_
#define WEFT_ENGINE_STORAGE_WORKER_H_

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/storage/work_queue.h"

namespace weft {

class Worker {
 public:
  using Job = WorkQueue::Job;
  using File = WorkQueue::File;

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

  void PostFirst(const std::string& tenant, Job job, const std::optional<File>& file = {})
      WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    queue_.PushFirst(tenant, std::move(job), file);
    arrived_.NotifyAll();
  }
  void Post(Job job, std::vector<File> files = {}) WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    queue_.Push(std::move(job), std::move(files));
    arrived_.NotifyAll();
  }
  // A long one calls RunOthers now and then.
  void PostLast(Job job) WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    queue_.PushLast(std::move(job));
    arrived_.NotifyAll();
  }

  // Runs all other jobs posted meanwhile. Only in a job of PostLast.
  void RunOthers() WEFT_EXCLUDES(mutex_) {
    while (const Job job = TakeOther()) job();
  }

 private:
  Job TakeOther() WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return queue_.has_only_last() ? nullptr : queue_.Pop();
  }
  // Null at the end.
  Job Take() WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (queue_.empty() && !stopping_) arrived_.Wait(&mutex_);
    return queue_.empty() ? nullptr : queue_.Pop();
  }
  void Loop() WEFT_EXCLUDES(mutex_) {
    while (const Job job = Take()) job();
  }

  Mutex mutex_;
  CondVar arrived_;
  WorkQueue queue_ WEFT_GUARDED_BY(mutex_);
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_STORAGE_WORKER_H_
