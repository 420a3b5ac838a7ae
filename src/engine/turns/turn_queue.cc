#include "engine/turns/turn_queue.h"

#include <utility>

namespace weft {

void TurnQueue::Push(TurnEvent event) {
  bool was_empty;
  {
    MutexLock lock(&mutex_);
    if (std::holds_alternative<DoneEvent>(event) && --dones_left_ == 0) {
      last_done_ = std::move(event);
      return;
    }
    was_empty = events_.empty();
    events_.push_back(std::move(event));
    if (events_.size() >= capacity_) was_full_ = true;
  }
  if (was_empty) Notify();
}

bool TurnQueue::Full() const {
  MutexLock lock(&mutex_);
  return was_full_;
}

bool TurnQueue::Empty() const {
  MutexLock lock(&mutex_);
  return events_.empty();
}

void TurnQueue::Finish(const Status& status) {
  {
    MutexLock lock(&mutex_);
    if (last_done_ && !status.ok()) {
      auto& done = std::get<DoneEvent>(*last_done_);
      if (done.status.ok()) done.status = status;
      done.reason = FinishReason::kError;
      done.text.clear();
    }
    if (last_done_) events_.push_back(*std::exchange(last_done_, std::nullopt));
    finished_ = true;
  }
  Notify();
}

void TurnQueue::Notify() {
  std::function<void()> ready;
  {
    MutexLock lock(&mutex_);
    ready = ready_;
  }
  available_.NotifyAll();
  if (ready) ready();
}

std::optional<TurnEvent> TurnQueue::PopLocked(bool* drained) {
  if (events_.empty()) return std::nullopt;
  TurnEvent event = std::move(events_.front());
  events_.pop_front();
  if (was_full_ && events_.size() <= capacity_ / 2) {
    was_full_ = false;
    *drained = true;
  }
  return event;
}

std::optional<TurnEvent> TurnQueue::Next() {
  bool drained = false;
  std::optional<TurnEvent> event;
  {
    MutexLock lock(&mutex_);
    while (events_.empty() && !finished_) available_.Wait(&mutex_);
    event = PopLocked(&drained);
  }
  if (drained) on_drained_();
  return event;
}

std::optional<TurnEvent> TurnQueue::TryNext(bool* finished) {
  bool drained = false;
  std::optional<TurnEvent> event;
  {
    MutexLock lock(&mutex_);
    event = PopLocked(&drained);
    *finished = events_.empty() && finished_;
  }
  if (drained) on_drained_();
  return event;
}

void TurnQueue::SetReadyCallback(std::function<void()> ready) {
  bool call_now;
  {
    MutexLock lock(&mutex_);
    ready_ = ready;
    call_now = !events_.empty() || finished_;
  }
  if (call_now && ready) ready();
}

}  // namespace weft
