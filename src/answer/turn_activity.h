// Whether any request has a turn, over all models of a server. Any thread.
#ifndef WEFT_ANSWER_TURN_ACTIVITY_H_
#define WEFT_ANSWER_TURN_ACTIVITY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace weft::serve {

class TurnActivity {
 public:
  // A request's turn, as long as it lives.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<TurnActivity> activity) : activity_(std::move(activity)) {
      if (activity_ != nullptr) ++activity_->n_turns_;
    }
    ~Turn() {
      if (activity_ == nullptr) return;
      activity_->ended_us_ = NowMicros();
      --activity_->n_turns_;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const std::shared_ptr<TurnActivity> activity_;
  };

  bool is_busy() const { return n_turns_ > 0; }
  // Whether nobody has had a turn for so long.
  bool HasBeenIdleFor(std::chrono::microseconds time) const {
    return !is_busy() && NowMicros() - ended_us_ >= time.count();
  }

 private:
  std::atomic<int64_t> n_turns_{0};
  std::atomic<int64_t> ended_us_{NowMicros()};
};

}  // namespace weft::serve

#endif  // WEFT_ANSWER_TURN_ACTIVITY_H_
