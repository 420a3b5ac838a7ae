// A lane's part of a step.
//
// It is a run of the session's next tokens; for a decoding lane, draft tokens may follow them.
// TurnWriter samples a token after the last of them, and then after each accepted draft token; the
// state of rejected ones is cut back. The results are logits, or vectors if the turn asks for its
// text's or an MTP head takes them.
#ifndef WEFT_ENGINE_TURNS_STEP_PART_H_
#define WEFT_ENGINE_TURNS_STEP_PART_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/best_tokens.h"
#include "base/tokens.h"
#include "compute/backend.h"
#include "engine/turns/active_turn.h"

namespace weft {

struct StepPart {
  ActiveTurn* turn = nullptr;
  Lane* lane = nullptr;
  int64_t rows = 0;
  int64_t first_row = 0;  // position of the first row
  int64_t n_logits = 0;
  int64_t n_vectors = 0;      // for a turn that wants its text's vector
  bool shows_hidden = false;  // vectors of all rows, as an MTP head takes them
  bool ends_prompt = false;   // includes the lane's last row
  bool is_decoding = false;   // computes what a decoding lane's next token needs
  // The number of rows for draft tokens, which come last; if any, `tokens` has those of all rows.
  int64_t guesses = 0;
  std::vector<TokenId> tokens = {};
  int64_t kept_rows = 0;  // up to the last one after which a token was sampled
  // The last n_logits rows return only the n_best best tokens each, unless n_best is 0: found after
  // `changes`, if any; with a temperature, also the row's weight at that temperature.
  int64_t n_best = 0;
  float temperature = 0;
  std::vector<RowChanges> changes = {};
  std::vector<std::vector<LogitChange>> changed_logits = {};  // which `changes` refers to
  // The results, once computed.
  std::span<float> logits;
  std::span<const TokenLogit> best;
  std::span<const double> weights;
  // Where a row can be had whole, and which of the step's the first one is.
  StepRun* run = nullptr;
  int64_t first_of_step = 0;
  std::span<float> vectors;  // for the last n_vectors rows, or all rows if shows_hidden

  Session* session() const { return lane->session; }
  // Appends the lane's first `n` draft tokens to its rows. REQUIRES: `rows` counts them already.
  void TakeGuesses(int64_t n) {
    const std::vector<TokenId>& text = session()->tokens;
    const std::span<const TokenId> guessed = lane->guesses->tokens();
    tokens.assign(text.begin() + first_row, text.end());
    tokens.insert(tokens.end(), guessed.begin(), guessed.begin() + n);
    guesses = n;
    n_logits = n + 1;
  }
  void DropGuesses() {
    rows -= guesses;
    n_logits -= guesses;
    guesses = 0;
    tokens.clear();
  }
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_PART_H_
