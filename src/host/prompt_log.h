// The log lines of long prompts: one when a prompt begins that takes a while, and one every
// ten seconds until it is in, so that an operator sees that the server works, and at what.
//
//   PromptLog log(LogLine);
//   log.Look(engine.Turns(), NowMicros());  // about once a second
//
// One thread.
#ifndef WEFT_HOST_PROMPT_LOG_H_
#define WEFT_HOST_PROMPT_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "weft/engine.h"

namespace weft::serve {

// A prompt with more tokens to compute than this is long.
inline constexpr int64_t kLongPromptTokens = 2000;

class PromptLog {
 public:
  explicit PromptLog(std::function<void(std::string_view)> write) : write_(std::move(write)) {}

  // `turns` are all there are; `now_us` of any clock that only goes forward.
  void Look(std::span<const TurnInfo> turns, int64_t now_us);

 private:
  const std::function<void(std::string_view)> write_;
  std::map<uint64_t, int64_t> next_us_;  // by turn: when its next line is due
};

}  // namespace weft::serve

#endif  // WEFT_HOST_PROMPT_LOG_H_
