// The events of one turn on their way from the engine to its consumer.
//
// Finish delivers the last Done, so that a consumer that has read the end of a turn finds its
// session free, in the published view too.
//
// The engine pushes and never waits; the consumer pops. The queue knows how full it is, so that the
// engine can pause a turn whose consumer does not read, and tells the engine (through `on_drained`)
// when a full queue is half empty again.
#ifndef WEFT_ENGINE_TURNS_TURN_QUEUE_H_
#define WEFT_ENGINE_TURNS_TURN_QUEUE_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "weft/events.h"

namespace weft {

class TurnQueue {
 public:
  // `n_choices` Dones end the turn. `on_drained` is called on the consumer's thread, with no lock
  // held.
  TurnQueue(size_t capacity, int n_choices, std::function<void()> on_drained)
      : capacity_(capacity), on_drained_(std::move(on_drained)), dones_left_(n_choices) {}

  // --- engine thread -------------------------------------------------------
  // Always takes the event; Full() asks the engine to stop sending for now.
  void Push(TurnEvent event) WEFT_EXCLUDES(mutex_);
  bool Full() const WEFT_EXCLUDES(mutex_);
  // The consumer has taken everything.
  bool Empty() const WEFT_EXCLUDES(mutex_);
  // No event follows except a last Done, which an error replaces. Wakes all waiters.
  void Finish(const Status& status) WEFT_EXCLUDES(mutex_);

  // --- consumer --------------------------------------------------------------
  std::optional<TurnEvent> Next() WEFT_EXCLUDES(mutex_);
  std::optional<TurnEvent> TryNext(bool* finished) WEFT_EXCLUDES(mutex_);
  void SetReadyCallback(std::function<void()> ready) WEFT_EXCLUDES(mutex_);

 private:
  std::optional<TurnEvent> PopLocked(bool* drained) WEFT_REQUIRES(mutex_);
  void Notify() WEFT_EXCLUDES(mutex_);

  const size_t capacity_;
  const std::function<void()> on_drained_;

  mutable Mutex mutex_;
  CondVar available_;
  std::deque<TurnEvent> events_ WEFT_GUARDED_BY(mutex_);
  int dones_left_ WEFT_GUARDED_BY(mutex_);
  std::optional<TurnEvent> last_done_ WEFT_GUARDED_BY(mutex_);
  bool finished_ WEFT_GUARDED_BY(mutex_) = false;
  bool was_full_ WEFT_GUARDED_BY(mutex_) = false;
  std::function<void()> ready_ WEFT_GUARDED_BY(mutex_);
};

// Finishes a queue once: when asked to, or when nobody is left who would ask, because the engine
// ended first.
class LastEvent {
 public:
  explicit LastEvent(std::shared_ptr<TurnQueue> queue) : queue_(std::move(queue)) {}
  ~LastEvent() { Send(); }
  LastEvent(const LastEvent&) = delete;
  LastEvent& operator=(const LastEvent&) = delete;

  void Send(const Status& status = OkStatus()) {
    if (const auto queue = std::exchange(queue_, nullptr)) queue->Finish(status);
  }

 private:
  std::shared_ptr<TurnQueue> queue_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_QUEUE_H_
