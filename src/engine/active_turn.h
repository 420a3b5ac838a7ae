// A turn inside the engine: its lanes (one per choice) and the results owed to its consumer. Engine
// thread only, except the queue and the cancel flag.
#ifndef WEFT_ENGINE_ACTIVE_TURN_H_
#define WEFT_ENGINE_ACTIVE_TURN_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/tokens.h"
#include "engine/loop_watch.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/text_stream.h"
#include "engine/turn_queue.h"
#include "weft/events.h"
#include "weft/options.h"

namespace weft {

// One sequence of a turn: the session being advanced, and how to choose its next token. Lane 0 runs
// on the turn's own session; further choices run on forks of it that live as long as the turn.
struct Lane {
  Lane(int choice_index, Session* lane_session, const SamplingOptions& sampling, uint64_t seed,
       std::shared_ptr<const Tokenizer> tokenizer, const TurnOptions& options)
      : choice(choice_index),
        session(lane_session),
        sampler(sampling, seed),
        text(std::move(tokenizer), options.stop_strings, options.shown_control_tokens) {}

  const int choice;
  Session* const session;
  Sampler sampler;
  TextStream text;
  LoopWatch loop_watch;
  std::vector<TokenId> generated;
  std::unique_ptr<TokenMask> mask;
  std::vector<uint32_t> allowed;  // scratch for the mask
  bool decoding = false;          // the prompt is computed
  bool done = false;
  // Waits for a sibling turn that is computing the prefix this lane needs too.
  bool waits_for_sibling = false;
  // More of its prompt is on disk and being read.
  bool waits_for_disk = false;
  // Its pages were taken so that others could continue; it starts over when there is room.
  bool preempted = false;
  int64_t last_row_us = 0;  // when it last advanced, or was admitted

  // Rows to compute before it can choose its next token.
  int64_t pending() const {
    return static_cast<int64_t>(session->tokens.size()) - session->computed;
  }
};

struct ActiveTurn {
  uint64_t serial = 0;  // submission order
  TurnOptions options;  // stop_tokens are sorted
  uint64_t seed = 0;
  Session* session = nullptr;   // null once closed during the turn
  bool closes_session = false;  // an anonymous session, destroyed with its turn
  std::shared_ptr<TurnQueue> queue;
  // Set by any thread; checked between steps.
  std::shared_ptr<std::atomic<bool>> cancelled;

  std::vector<std::unique_ptr<Lane>> lanes;  // lane 0 exists from admission on
  bool prompt_done = false;
  bool looked_on_disk = false;
  size_t next_chunk = 0;          // into options.prompt_chunks
  int64_t prompt_rows_taken = 0;  // prompt positions whose logits were delivered
  int64_t reported_tokens = -1;   // prompt tokens, as of the last ProgressEvent
  // Length of the prompt prefix in common with another turn, by that turn's serial: every step
  // compares prompts while both are being computed.
  std::map<uint64_t, int64_t> common_with;
  // The session before the turn, to restore if the prompt is not completed: its first
  // `tokens_before` tokens, and those that a whole context replaced.
  int64_t tokens_before = 0;
  std::vector<TokenId> replaced;
  StartedEvent started;
  TurnUsage usage;
  int64_t submitted_us = 0;
  int64_t first_row_us = 0;
  int64_t first_token_us = 0;
  bool failed = false;           // some lane ended with an error
  bool cut = false;              // some lane was cancelled
  int64_t stalled_since_us = 0;  // since when its consumer has not been reading; 0: it reads

  bool wants_prompt_rows() const {
    return options.prompt_logprobs || static_cast<bool>(options.on_prompt_logits);
  }
  // Whether one of its lanes is in a long step.
  bool in_step() const {
    for (const auto& lane : lanes) {
      if (lane->session->in_step) return true;
    }
    return false;
  }
  bool finished() const {
    for (const auto& lane : lanes) {
      if (!lane->done) return false;
    }
    return !lanes.empty();
  }
};

}  // namespace weft

#endif  // WEFT_ENGINE_ACTIVE_TURN_H_
