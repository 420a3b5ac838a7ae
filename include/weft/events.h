// What a turn reports to its consumer, in this order: Progress if requested, one Started, then for
// each choice Tokens and one Done. A turn that fails before it starts has only its Dones.
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

// Progress of the prompt: reported before its first row is computed and after each step that
// computes some of it, so the last one covers all of it. While it waits for other prompts it is
// reported too, at most once a second, and only to a consumer that has read everything before.
struct ProgressEvent {
  int64_t prompt_tokens = 0;        // context length
  int64_t cached_tokens = 0;        // prompt tokens not computed for this turn; an estimate before
                                    // the first row
  int64_t done_tokens = 0;          // including cached ones; increases unless it waits
  int64_t elapsed_us = 0;           // since the first row
  int64_t waits_behind_tokens = 0;  // TurnInfo::waits_behind_tokens
};

// Why a turn starts before the end of the prefix that the engine knows.
enum class PrefixLoss {
  kNone,          // it does not: the rest was never computed, or was evicted
  kNoCheckpoint,  // recurrent state: there is no checkpoint after cached_tokens
  kNoWindow,      // sliding windows: pages that the next token sees were evicted
  kRecomputed,    // it asks for results of every prompt position
  kCacheOff,      // there is no prefix cache
};

// The prompt is computed; the first token is about to be sampled.
struct StartedEvent {
  int64_t prompt_tokens = 0;  // context length at this point
  int64_t cached_tokens = 0;  // prompt tokens not computed for this turn
  int64_t disk_tokens = 0;    // cached tokens read from disk
  int64_t known_tokens = 0;   // cached tokens, and those that PrefixLoss is about
  PrefixLoss loss = PrefixLoss::kNone;
  uint64_t seed = 0;  // the seed in use
  // For each requested prompt position: the token, its log-probability (0 for the first, which has
  // no predecessor), and its alternatives.
  struct PromptToken {
    TokenLogprob token;
    std::vector<TokenLogprob> alternatives;
    bool is_greedy = false;  // the model's own first choice here
  };
  std::vector<PromptToken> prompt_logprobs;
  // If TurnOptions::vector is set: the text's vector; or its scores; or, without pooling, one
  // vector per token.
  std::vector<std::vector<float>> vectors;
};

struct TokenEvent {
  int choice = 0;
  int32_t token = -1;
  // The text this token completes: whole characters, held back while they might be the start of a
  // stop string. May be empty.
  std::string text;
  float logprob = 0;                       // if requested
  std::vector<TokenLogprob> alternatives;  // if requested
};

enum class FinishReason {
  kStop,        // an end-of-generation or stop token
  kStopString,  // a stop string, which is not part of the text
  kLength,      // max_tokens
  kContext,     // the context is full
  kLoop,        // the text repeats itself: TurnOptions::end_loops
  kCancelled,
  kError,
};

// Whether the text would have continued: clients see this as the finish reason "length".
inline bool IsCut(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kContext ||
         reason == FinishReason::kLoop;
}

struct TurnUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // prompt tokens not computed for this turn
  int64_t disk_tokens = 0;        // cached tokens read from disk
  int64_t computed_tokens = 0;    // the other prompt tokens; fewer if the turn ended early
  int64_t completion_tokens = 0;  // sampled tokens, including an end token
  int64_t queued_us = 0;          // submission -> first computed row
  int64_t prompt_us = 0;          // first computed row -> first token
  int64_t decode_us = 0;          // first token -> last
  // Guessed tokens that steps computed, and those that were right.
  int64_t guessed_tokens = 0, accepted_guesses = 0;
  // How many tokens of TurnOptions::prediction the answer contains, and how many it does not.
  int64_t kept_prediction = 0, lost_prediction = 0;
};

struct DoneEvent {
  int choice = 0;
  FinishReason reason = FinishReason::kStop;
  absl::Status status;      // not OK if and only if reason is kError
  std::string text;         // text still held back
  int32_t stop_token = -1;  // which one, for kStop
  std::string stop_string;  // which one, for kStopString
  TurnUsage usage;
};

using TurnEvent = std::variant<ProgressEvent, StartedEvent, TokenEvent, DoneEvent>;

}  // namespace weft

#endif  // WEFT_EVENTS_H_
