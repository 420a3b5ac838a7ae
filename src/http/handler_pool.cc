#include "http/handler_pool.h"

#include <algorithm>
#include <utility>

#include "base/thread_priority.h"

namespace weft::serve {
namespace {

// Rendering a chat template takes up to 2 MiB, under a sanitizer up to 8. This is only address
// space: memory is used as the stack grows.
constexpr size_t kStackBytes = size_t{10} << 20;

}  // namespace

HandlerPool::HandlerPool(int max_threads, int max_waiting, std::atomic<int64_t>* waiting)
    : max_threads_(static_cast<size_t>(std::max(1, max_threads))),
      max_waiting_(static_cast<size_t>(std::max(0, max_waiting))),
      waiting_(waiting) {}

HandlerPool::~HandlerPool() { Stop(); }

bool HandlerPool::Post(std::function<void()> work) {
  MutexLock lock(&mutex_);
  if (stopping_) return false;
  // Idle threads are reserved for jobs that are already queued.
  if (queue_.size() >= idle_ && (threads_.size() >= max_threads_ || !AddThread())) {
    if (threads_.empty() || queue_.size() >= idle_ + max_waiting_) return false;
  }
  queue_.push_back(std::move(work));
  TellWaiting();
  work_or_stop_.NotifyOne();
  return true;
}

bool HandlerPool::AddThread() {
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

void* HandlerPool::ThreadMain(void* pool) {
  YieldToOthers();  // whatever requests ask for, tokens come first
  static_cast<HandlerPool*>(pool)->Run();
  return nullptr;
}

// A thread counts as idle from its creation.
void HandlerPool::Run() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) work_or_stop_.Wait(&mutex_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
      --idle_;
      TellWaiting();
    }
    work();
    work = nullptr;
    MutexLock lock(&mutex_);
    ++idle_;
    TellWaiting();
  }
}

void HandlerPool::Stop() {
  std::vector<pthread_t> threads;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
    work_or_stop_.NotifyAll();
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
}

void HandlerPool::TellWaiting() {
  if (waiting_ == nullptr) return;
  *waiting_ = static_cast<int64_t>(queue_.size() - std::min(queue_.size(), idle_));
}

}  // namespace weft::serve
