// Work of others on the engine thread: done in pieces between steps, in the order it came.
//
// Engine thread only.
#ifndef WEFT_ENGINE_SIDE_WORK_H_
#define WEFT_ENGINE_SIDE_WORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "compute/backend.h"
#include "weft/engine.h"

namespace weft {

class SideWorkQueue {
 public:
  explicit SideWorkQueue(int step_ms) : piece_us_(step_ms * int64_t{1000}) {}

  void Add(std::shared_ptr<SideWork> work) { queue_.push_back(std::move(work)); }
  bool empty() const { return queue_.empty(); }
  // Steps have computed for as long as a piece may take, so that it is the work's turn.
  bool IsDue() const { return !queue_.empty() && NowMicros() - last_us_ >= piece_us_; }
  // Computes the next piece, which ends once `interrupted` returns true or its time is over. False
  // if there was none.
  bool Advance(const Executor& executor, const std::function<bool()>& interrupted) {
    if (queue_.empty()) return false;
    const int64_t end_us = NowMicros() + piece_us_;
    const bool done =
        queue_.front()->Advance(executor, [&] { return interrupted() || NowMicros() >= end_us; });
    if (done) queue_.pop_front();
    last_us_ = NowMicros();
    return true;
  }
  // Ends all work undone.
  void Clear() { queue_.clear(); }

 private:
  const int64_t piece_us_;
  int64_t last_us_ = 0;  // when the last piece ended
  std::deque<std::shared_ptr<SideWork>> queue_;
};

}  // namespace weft

#endif  // WEFT_ENGINE_SIDE_WORK_H_
