#include "answer/generation.h"

#include <utility>

namespace weft::serve {

bool Generation::IsReady() {
  if (!next_.has_value() && !ended_) next_ = TryNext(&ended_);
  return next_.has_value() || ended_;
}

Task<bool> Generation::WaitUntil(std::optional<Signal::TimePoint> deadline) {
  while (!IsReady()) {
    const bool is_in_time = co_await ready().WaitUntil(deadline);
    if (!is_in_time) co_return IsReady();
  }
  co_return true;
}

Task<std::optional<TurnEvent>> Generation::Next() {
  (void)co_await WaitUntil(std::nullopt);
  co_return std::exchange(next_, std::nullopt);
}

}  // namespace weft::serve
