// Logs the progress of long prompts, and of those that wait for long ones: one line when such a
// prompt begins, and one every ten seconds until it is done, so that an operator sees that the
// server works, and on what.
//
//   PromptLog log(LogLine);
//   log.Look(engine.Turns(), NowMicros());  // about once a second
//
// One thread.
#ifndef WEFT_DOORS_HOST_PROMPT_LOG_H_
#define WEFT_DOORS_HOST_PROMPT_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "weft/engine.h"

namespace weft::serve {

// A prompt with more tokens to compute, or to wait for, than this counts as long.
inline constexpr int64_t kLongPromptTokens = 2000;

class PromptLog {
 public:
  explicit PromptLog(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

  // `turns` are all current turns; `now_us` comes from any monotonic clock.
  void Look(std::span<const TurnInfo> turns, int64_t now_us);

 private:
  const std::function<void(std::string_view)> write_;
  std::map<uint64_t, int64_t> next_us_;  // by turn: when its next line is due
};

}  // namespace weft::serve

#endif  // WEFT_DOORS_HOST_PROMPT_LOG_H_
