// A turn inside the engine: its lanes (one per choice), and what it still owes its
// consumer. Engine thread only, but for the queue and the cancel flag.
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

// One sequence of a turn: a session that is being advanced, and how to choose its
// next token. Lane 0 runs on the turn's own session; further choices run on forks
// of it that live as long as the turn.
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
  std::vector<uint32_t> allowed;  // scratch of the mask
  bool decoding = false;          // the prompt is in
  bool done = false;
  // A sibling is computing the prefix this lane needs too: the turn it waits for.
  bool waits_for_sibling = false;
  // More of its prompt is on disk and being read.
  bool waits_for_disk = false;
  // Its pages were taken to let others go on; it starts over when there is room.
  bool preempted = false;
  int64_t last_row_us = 0;  // when it last advanced, or was admitted

  // Rows to compute before it can choose its next token.
  int64_t pending() const {
    return static_cast<int64_t>(session->tokens.size()) - session->computed;
  }
};

struct ActiveTurn {
  uint64_t serial = 0;  // order of submission
  TurnOptions options;  // its stop tokens are sorted
  uint64_t seed = 0;
  Session* session = nullptr;   // null once closed under the turn
  bool closes_session = false;  // an anonymous session, gone with its turn
  std::shared_ptr<TurnQueue> queue;
  // Set by any thread; looked at between steps.
  std::shared_ptr<std::atomic<bool>> cancelled;

  std::vector<std::unique_ptr<Lane>> lanes;  // lane 0 from admission on
  bool prompt_done = false;
  bool looked_on_disk = false;
  size_t next_chunk = 0;          // into options.prompt_chunks
  int64_t prompt_rows_taken = 0;  // prompt positions whose logits were delivered
  int64_t reported_tokens = -1;   // of the prompt, by the last ProgressEvent
  // How many tokens its prompt begins with like that of another turn, by that one's serial:
  // both are looked at in every step while they are computed.
  std::map<uint64_t, int64_t> common_with;
  // What the session was before the turn, to go back to when the prompt does not get
  // in: its first `tokens_before` tokens, and those that a whole context replaced.
  int64_t tokens_before = 0;
  std::vector<TokenId> replaced;
  StartedEvent started;
  TurnUsage usage;
  int64_t submitted_us = 0;
  int64_t first_row_us = 0;
  int64_t first_token_us = 0;
  bool failed = false;           // some lane ended with an error
  bool cut = false;              // some lane was cancelled
  int64_t stalled_since_us = 0;  // its consumer does not read; 0: it does

  bool wants_prompt_rows() const {
    return options.prompt_logprobs || static_cast<bool>(options.on_prompt_logits);
  }
  // Whether a long step has one of its lanes.
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
