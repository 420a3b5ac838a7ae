#include "async/task_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/system.h"

namespace weft {
namespace {

// Rendering a chat template takes up to 2 MiB, under a sanitizer up to 8. This is only address
// space: memory is used as the stack grows.
constexpr size_t kStackBytes = size_t{10} << 20;
constexpr std::chrono::seconds kMaxIdle{1};

thread_local TaskPool* current_pool = nullptr;

}  // namespace

TaskPool::TaskPool(const Options& options)
    : max_threads_(static_cast<size_t>(std::max(1, options.max_threads))),
      waiting_(options.waiting),
      posted_(static_cast<size_t>(std::max(1, options.max_posted)),
              static_cast<size_t>(std::max(0, options.max_waiting))) {}

TaskPool::~TaskPool() { Stop(); }

TaskPool* TaskPool::Current() { return current_pool; }

bool TaskPool::Post(const std::string& tenant, std::function<void()> work) {
  MutexLock lock(&mutex_);
  if (stopping_ || (threads_.empty() && !AddThread())) return false;
  if (!posted_.Push(tenant, std::move(work), FreeThreads())) return false;
  TellWaiting();
  Wake();
  return true;
}

void TaskPool::Resume(std::coroutine_handle<> task) {
  MutexLock lock(&mutex_);
  // One thread stays as long as the pool does, so this happens before the first one only.
  if (threads_.empty()) WEFT_CHECK(AddThread(), "no thread can be created");
  resumed_.emplace_back([task] { task.resume(); });
  Wake();
}

TaskPool::TimerKey TaskPool::AddTimer(Clock::time_point when, std::function<void()> expired) {
  MutexLock lock(&mutex_);
  const TimerKey key(when, ++last_timer_);
  const auto at = timers_.emplace(key, std::move(expired)).first;
  // Idle threads wait for the earliest timer.
  if (at == timers_.begin()) changed_.NotifyAll();
  return key;
}

void TaskPool::RemoveTimer(const TimerKey& key) {
  Work removed;  // destroyed without the lock
  MutexLock lock(&mutex_);
  const auto at = timers_.find(key);
  if (at == timers_.end()) return;
  removed = std::move(at->second);
  timers_.erase(at);
}

void TaskPool::Stop() {
  std::vector<pthread_t> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
    threads.insert(threads.end(), ended_.begin(), ended_.end());
    ended_.clear();
    changed_.NotifyAll();
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
}

size_t TaskPool::FreeThreads() const {
  return idle_ + (max_threads_ - std::min(max_threads_, threads_.size()));
}

void TaskPool::TellWaiting() {
  if (waiting_ == nullptr) return;
  const size_t begins = std::min(posted_.n_ready(), FreeThreads());
  *waiting_ = static_cast<int64_t>(posted_.n_waiting() - begins);
}

void TaskPool::Wake() {
  const size_t runnable = resumed_.size() + posted_.n_ready();
  if (runnable > idle_ && threads_.size() < max_threads_ && !stopping_) (void)AddThread();
  changed_.NotifyOne();
}

bool TaskPool::AddThread() {
  // They have released the lock, so they end without delay.
  for (const pthread_t thread : std::exchange(ended_, {})) pthread_join(thread, nullptr);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  const bool made = pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
                    pthread_create(&thread, &attributes, ThreadMain, this) == 0;
  pthread_attr_destroy(&attributes);
  if (!made) return false;
  threads_.push_back(thread);
  ++idle_;
  return true;
}

void TaskPool::LeaveThread() {
  const auto self = std::find_if(threads_.begin(), threads_.end(), [](pthread_t thread) {
    return pthread_equal(thread, pthread_self()) != 0;
  });
  ended_.push_back(*self);
  threads_.erase(self);
  --idle_;
}

void* TaskPool::ThreadMain(void* pool) {
  YieldToOthers();  // generating tokens comes before requests
  current_pool = static_cast<TaskPool*>(pool);
  current_pool->Run();
  return nullptr;
}

void TaskPool::Run() {
  mutex_.Lock();
  while (true) {
    std::optional<TenantQueues::Tenants::iterator> tenant;
    Work work = Take(&tenant);
    if (!work) {
      if (!WaitForWork()) break;
      continue;
    }
    mutex_.Unlock();
    work();
    work = nullptr;
    mutex_.Lock();
    ++idle_;
    if (tenant) posted_.Ended(*tenant);
    TellWaiting();
  }
  mutex_.Unlock();
}

TaskPool::Work TaskPool::Take(std::optional<TenantQueues::Tenants::iterator>* tenant) {
  TakeExpired();
  Work work;
  if (!resumed_.empty()) {
    work = std::move(resumed_.front());
    resumed_.pop_front();
  } else if (posted_.n_ready() > 0) {
    TenantQueues::Taken taken = posted_.Take();
    work = std::move(taken.work);
    *tenant = taken.tenant;
  } else {
    return nullptr;
  }
  --idle_;
  TellWaiting();
  return work;
}

void TaskPool::TakeExpired() {
  if (timers_.empty()) return;
  const Clock::time_point now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    resumed_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
    if (resumed_.size() > 1) Wake();
  }
}

bool TaskPool::WaitForWork() {
  if (stopping_ && posted_.n_waiting() == 0) {
    changed_.NotifyAll();  // other threads may wait for the last posted work to end
    return false;
  }
  const Clock::time_point leave = Clock::now() + kMaxIdle;
  // The last thread stays for timers and for tasks that continue.
  const bool may_leave = threads_.size() > 1 && !stopping_;
  if (!may_leave && timers_.empty()) {
    changed_.Wait(&mutex_);
    return true;
  }
  Clock::time_point until = may_leave ? leave : timers_.begin()->first.first;
  if (!timers_.empty()) until = std::min(until, timers_.begin()->first.first);
  if (changed_.WaitUntil(&mutex_, until)) return true;
  const bool has_work = !resumed_.empty() || posted_.n_ready() > 0 ||
                        (!timers_.empty() && timers_.begin()->first.first <= Clock::now());
  if (stopping_ || has_work || threads_.size() <= 1 || Clock::now() < leave) return true;
  LeaveThread();
  return false;
}

}  // namespace weft
