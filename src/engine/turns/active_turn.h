// A turn inside the engine: its lanes (one per choice) and the results owed to its consumer. Engine
// thread only, except the queue and the cancel flag.
#ifndef WEFT_ENGINE_TURNS_ACTIVE_TURN_H_
#define WEFT_ENGINE_TURNS_ACTIVE_TURN_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "compute/text_head.h"
#include "engine/drafting/drafter.h"
#include "engine/sampling/loop_watch.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/text_stream.h"
#include "engine/sessions/adapter_mix.h"
#include "engine/sessions/session.h"
#include "engine/speculation/guesses.h"
#include "engine/turns/tenant_shares.h"
#include "engine/turns/turn_queue.h"
#include "engine/turns/turn_stages.h"
#include "weft/engine.h"
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
  // Draft tokens for its answer; null before the first one, and without speculation.
  std::unique_ptr<Guesses> guesses;
  // The draft model's state for it; null until it is asked for a draft.
  std::unique_ptr<Drafter::Text> draft_text;
  // The position to which rejected draft tokens took its recurrent state back; -1: they did not.
  // The next step recomputes the tokens chosen after it.
  int64_t goes_back_to = -1;
  Staged<LaneStage> stage{LaneStage::kReady};
  int64_t last_row_us = 0;  // when it last advanced, or was admitted

  bool done() const { return stage == LaneStage::kDone; }
  bool holds_place() const { return !done() && stage != LaneStage::kWaitsForPlace; }
  bool in_step() const { return session->stage == SessionStage::kInStep; }
  // Whether the next step may compute rows of it.
  bool is_ready() const { return stage == LaneStage::kReady && !in_step(); }
  // The prompt is computed; pending rows are tokens that it has chosen.
  bool is_decoding() const { return !generated.empty(); }
  // All pending rows but the last were computed before, so a step of them ends with a new token.
  bool needs_only_next() const {
    return is_decoding() && (pending() == 1 || session->computed() == goes_back_to);
  }
  // Rows to compute before it can choose its next token.
  int64_t pending() const {
    return static_cast<int64_t>(session->tokens.size()) - session->computed();
  }
};

struct ActiveTurn {
  uint64_t serial = 0;  // submission order
  TurnOptions options;  // stop_tokens are sorted; parts are in the prompt alone
  History prompt;       // appended to its session
  AdapterMixRef adapters;
  uint64_t seed = 0;
  Staged<TurnStage> stage{TurnStage::kQueued};
  TurnFate fate = TurnFate::kFinished;  // so far
  Session* session = nullptr;
  Tenant* tenant = nullptr;     // until it is retired
  bool closes_session = false;  // an anonymous session, destroyed with its turn
  bool expects_more = false;    // see Turn::ExpectMore
  std::shared_ptr<TurnQueue> queue;
  // Set by any thread; checked between steps.
  std::shared_ptr<std::atomic<bool>> cancelled;

  std::vector<std::unique_ptr<Lane>> lanes;  // lane 0 exists from admission on
  bool looked_on_disk = false;
  int64_t kept_tokens = 0;        // how far its state is kept while it runs
  size_t next_chunk = 0;          // into options.prompt_chunks
  int64_t prompt_rows_taken = 0;  // prompt positions whose logits were delivered
  int64_t reported_tokens = -1;   // prompt tokens, as of the last ProgressEvent after a step
  int64_t reported_us = 0;        // when the last ProgressEvent was
  // See PromptWaits.
  int64_t waits_behind_tokens = 0, told_wait_tokens = 0;
  int64_t expected_rows = -1;  // to compute for its prompt; -1: not estimated
  // While lane 0 waits for a sibling: that one, and how many tokens of its session are needed.
  struct {
    uint64_t serial = 0;
    int64_t n_tokens = 0;
  } sibling;
  // The session before the turn, to restore if the prompt is not completed: its first
  // `tokens_before` tokens, and those that a whole context replaced.
  int64_t tokens_before = 0;
  History replaced;
  TextPooler pooler;  // as options.vector asks
  // All rows of the prompt are pooled, not only the last.
  bool pools_all_rows = false;
  StartedEvent started;
  TurnUsage usage;
  int64_t submitted_us = 0;
  int64_t first_row_us = 0;
  int64_t first_token_us = 0;
  int64_t stalled_since_us = 0;  // when its consumer stopped reading; 0: it reads

  // The position at which its own tokens begin.
  int64_t first_token() const { return options.tokens_are_whole_context ? 0 : tokens_before; }
  bool wants_prompt_logits() const {
    return options.prompt_logprobs || static_cast<bool>(options.on_prompt_logits);
  }
  bool wants_prompt_rows() const { return wants_prompt_logits() || pools_all_rows; }
  bool is_stalled() const { return stalled_since_us > 0; }
  // Whether its consumer has no room for the results of another step.
  bool is_held_up() const { return is_stalled() || queue->Full(); }
  bool is_prompt_computed() const { return first_token_us > 0; }
  bool has_ended() const { return stage == TurnStage::kEnded; }
  // While lane 0 waits for a sibling: how many of the rows it misses the sibling computes.
  int64_t RowsOfSibling() const { return sibling.n_tokens - lanes[0]->session->computed(); }
  TurnInfo Info() const;  // for readers
  // Whether one of its lanes is in a long step.
  bool in_step() const;

  // Draft tokens that come before n-gram lookup: the caller's own, or the only text that the mask
  // allows. (Without log-probabilities that text is not even sampled: TurnWriter::TakeForced.)
  Guesses::Given GivenGuess(int64_t n_vocab, Lane* lane) const;

  // Ends one lane, and with its last lane the turn; the consumer is told of both. Does nothing if
  // it has already ended.
  void EndLane(Lane* lane, FinishReason reason, const Status& status,
               const std::string& stop_string = "");
  // Ends all choices, including those without a lane yet.
  void End(FinishReason reason, const Status& status);

 private:
  void Finish(FinishReason reason);
};

// In order of submission while they wait; once they run, in the order in which memory is given.
using TurnList = std::list<std::unique_ptr<ActiveTurn>>;

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_ACTIVE_TURN_H_
