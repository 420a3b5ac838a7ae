// std::mutex with clang's thread-safety annotations. (std::mutex because the thread sanitizer
// understands it without help.)
#ifndef WEFT_BASE_MUTEX_H_
#define WEFT_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define WEFT_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define WEFT_THREAD_ANNOTATION_(x)
#endif

#define WEFT_CAPABILITY(x) WEFT_THREAD_ANNOTATION_(capability(x))
#define WEFT_SCOPED_CAPABILITY WEFT_THREAD_ANNOTATION_(scoped_lockable)
#define WEFT_GUARDED_BY(x) WEFT_THREAD_ANNOTATION_(guarded_by(x))
#define WEFT_REQUIRES(...) WEFT_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define WEFT_EXCLUDES(...) WEFT_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define WEFT_ACQUIRE(...) WEFT_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define WEFT_RELEASE(...) WEFT_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define WEFT_NO_THREAD_SAFETY_ANALYSIS WEFT_THREAD_ANNOTATION_(no_thread_safety_analysis)

namespace weft {

class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void Lock() WEFT_ACQUIRE() { mutex_.lock(); }
  void Unlock() WEFT_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class WEFT_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) WEFT_ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() WEFT_RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits may wake spuriously: call them in a loop that checks the condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) WEFT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False if the deadline passed first.
  bool WaitUntil(Mutex* mutex, std::chrono::steady_clock::time_point deadline)
      WEFT_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool woken = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace weft

#endif  // WEFT_BASE_MUTEX_H_
