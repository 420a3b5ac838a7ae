// How other threads talk to the engine: they post work, and the engine thread runs it between two
// steps. The only lock that both sides take, held for a push or a swap.
#ifndef WEFT_ENGINE_MAILBOX_H_
#define WEFT_ENGINE_MAILBOX_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace weft {

// A Mailbox may outlive its engine: turns and timers hold it, and posting to a closed one is
// refused.
class Mailbox {
 public:
  using Message = std::function<void()>;

  // False if the mailbox is closed; the message is then dropped.
  bool Post(Message message) WEFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
      has_mail_.store(true, std::memory_order_relaxed);
    }
    arrived_.NotifyOne();
    return true;
  }

  // --- engine thread ---------------------------------------------------------
  std::vector<Message> Take() WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    has_mail_.store(false, std::memory_order_relaxed);
    return std::exchange(messages_, {});
  }
  // Whether there is a message, without locking; may see a Post slightly late.
  bool HasMail() const { return has_mail_.load(std::memory_order_relaxed); }

  // Sleeps until a message arrives or the deadline passes.
  void WaitUntil(std::chrono::steady_clock::time_point deadline) WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (messages_.empty() && arrived_.WaitUntil(&mutex_, deadline)) {
    }
  }

  // Refuses further posts; earlier messages can still be taken.
  void Close() WEFT_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::vector<Message> messages_ WEFT_GUARDED_BY(mutex_);
  bool closed_ WEFT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_mail_ = false;
};

}  // namespace weft

#endif  // WEFT_ENGINE_MAILBOX_H_
