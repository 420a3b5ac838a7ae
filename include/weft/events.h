// What a turn tells its consumer, in order: Progress where it is asked for, one Started,
// then for each choice Tokens and one Done. A turn that fails before it starts has no
// Started, only its Dones.
#ifndef WEFT_EVENTS_H_
#define WEFT_EVENTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace weft {

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

// How much of the prompt is in: told before its first row is computed and after each step
// that computes some of it, so that the last one has all of it.
struct ProgressEvent {
  int64_t prompt_tokens = 0;  // length of the context
  int64_t cached_tokens = 0;  // of those, not computed for this turn
  int64_t done_tokens = 0;    // cached ones included; more each time
  int64_t elapsed_us = 0;     // since the first row
};

// The prompt is in, the first token is about to be sampled.
struct StartedEvent {
  int64_t prompt_tokens = 0;  // length of the context at this point
  int64_t cached_tokens = 0;  // of those, not computed for this turn
  int64_t disk_tokens = 0;    // of these, read from the disk
  uint64_t seed = 0;          // the one in use
  // Per prompt position that was asked for: the token, its log-probability (0 for
  // the first, which nothing precedes), and its alternatives.
  struct PromptToken {
    TokenLogprob token;
    std::vector<TokenLogprob> alternatives;
    bool is_greedy = false;  // the model's own first choice here
  };
  std::vector<PromptToken> prompt_logprobs;
};

struct TokenEvent {
  int choice = 0;
  int32_t token = -1;
  // The text that this token completes: whole characters, held back while it
  // might be the start of a stop string. May be empty.
  std::string text;
  float logprob = 0;                       // when asked for
  std::vector<TokenLogprob> alternatives;  // when asked for
};

enum class FinishReason {
  kStop,        // an end-of-generation or stop token
  kStopString,  // a stop string; not part of the text
  kLength,      // max_tokens, or the context is full
  kLoop,        // the text repeats itself: TurnOptions::end_loops
  kCancelled,
  kError,
};

// Whether the text would have gone on: clients know that as a length.
inline bool IsCut(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kLoop;
}

struct TurnUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of those, not computed for this turn
  int64_t disk_tokens = 0;        // of these, read from the disk
  int64_t computed_tokens = 0;    // the others; fewer where the turn ended before all were
  int64_t completion_tokens = 0;  // sampled tokens, an end token included
  int64_t queued_us = 0;          // submitted -> first computed row
  int64_t prompt_us = 0;          // first computed row -> first token
  int64_t decode_us = 0;          // first token -> last
};

struct DoneEvent {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  absl::Status status;      // not OK exactly when reason is kError
  std::string text;         // what was still held back
  int32_t stop_token = -1;  // which one, for kStop
  std::string stop_string;  // which one, for kStopString
  TurnUsage usage;
};

using TurnEvent = std::variant<ProgressEvent, StartedEvent, TokenEvent, DoneEvent>;

}  // namespace weft

#endif  // WEFT_EVENTS_H_
