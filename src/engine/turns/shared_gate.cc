#include "engine/turns/shared_gate.h"

#include <algorithm>

namespace weft {

// The thread that has the turn reads clock_us and since_us without the mutex.
class SharedGate::Member : public StepGate::Place {
 public:
  explicit Member(std::shared_ptr<SharedGate> gate) : gate_(std::move(gate)) {}
  ~Member() override { gate_->Leave(this); }

  int64_t Enter() override { return gate_->Enter(this); }
  bool IsWanted() const override {
    const int64_t earliest_us = gate_->earliest_us_.load(std::memory_order_relaxed);
    return earliest_us < INT64_MAX && earliest_us <= clock_us + gate_->now_us_() - since_us;
  }
  void PassOn() override { gate_->PassOn(this); }
  void Leave() override { gate_->Leave(this); }
  int others() const override { return gate_->n_busy_ - (is_busy ? 1 : 0); }

  int64_t clock_us = 0;
  int64_t since_us = 0;  // when the holder's clock was last set, to clock_us
  bool is_busy = false;  // between Enter and Leave
  CondVar woken;

 private:
  const std::shared_ptr<SharedGate> gate_;
};

std::unique_ptr<StepGate::Place> SharedGate::NewPlace() {
  return std::make_unique<Member>(shared_from_this());
}

int SharedGate::waiting() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(waiting_.size());
}

int64_t SharedGate::Enter(Member* member) {
  MutexLock lock(&mutex_);
  if (holder_ == member) return 0;
  if (!member->is_busy) {
    member->is_busy = true;
    ++n_busy_;
  }
  member->clock_us = std::max(member->clock_us, step_clock_us_);
  if (holder_ == nullptr) {
    Begin(member);
    return 0;
  }
  const int64_t begin_us = now_us_();
  waiting_.push_back(member);
  NoteEarliest();
  while (holder_ != member) member->woken.Wait(&mutex_);
  return now_us_() - begin_us;
}

void SharedGate::PassOn(Member* member) {
  MutexLock lock(&mutex_);
  if (holder_ != member) return;
  Charge(member);
  if (!waiting_.empty() && earliest_us_ <= member->clock_us) return HandOver();
  Begin(member);
}

void SharedGate::Leave(Member* member) {
  MutexLock lock(&mutex_);
  if (!member->is_busy) return;
  if (holder_ == member) {
    Charge(member);
    HandOver();
  }
  member->is_busy = false;
  --n_busy_;
}

void SharedGate::Begin(Member* member) {
  holder_ = member;
  member->since_us = now_us_();
  step_clock_us_ = std::max(step_clock_us_, member->clock_us);
}

void SharedGate::Charge(Member* member) {
  const int64_t now_us = now_us_();
  member->clock_us += std::max<int64_t>(now_us - member->since_us, 0);
  member->since_us = now_us;
  // Computing alone costs nothing: whoever comes next starts at this clock.
  if (n_busy_ == 1) step_clock_us_ = std::max(step_clock_us_, member->clock_us);
}

// To the waiting place that has computed for the shortest time; if two have, to the first.
void SharedGate::HandOver() {
  holder_ = nullptr;
  const auto next = std::ranges::min_element(
      waiting_, [](const Member* a, const Member* b) { return a->clock_us < b->clock_us; });
  if (next == waiting_.end()) return;
  Member* const member = *next;
  waiting_.erase(next);
  NoteEarliest();
  Begin(member);
  member->woken.NotifyOne();
}

void SharedGate::NoteEarliest() {
  int64_t earliest_us = INT64_MAX;
  for (const Member* member : waiting_) earliest_us = std::min(earliest_us, member->clock_us);
  earliest_us_ = earliest_us;
}

std::shared_ptr<StepGate> NewStepGate() { return std::make_shared<SharedGate>(); }

}  // namespace weft
