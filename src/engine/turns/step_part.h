// A lane's part of a step.
//
// It is a run of the session's next tokens, and for a lane that writes perhaps guesses of what
// follows them. TurnWriter draws after the last token and then after each guess that was drawn;
// what was computed for the others is cut back. What comes out of it are logits, or vectors where
// the turn wants its text's or a prediction head takes them.
#ifndef WEFT_ENGINE_TURNS_STEP_PART_H_
#define WEFT_ENGINE_TURNS_STEP_PART_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/best_tokens.h"
#include "base/tokens.h"
#include "engine/turns/active_turn.h"

namespace weft {

struct StepPart {
  ActiveTurn* turn = nullptr;
  Lane* lane = nullptr;
  int64_t rows = 0;
  int64_t first_row = 0;  // position of the first row
  int64_t n_logits = 0;
  int64_t n_vectors = 0;      // of a turn that wants its text's vector
  bool shows_hidden = false;  // to a prediction head: of all rows, as it takes them
  bool ends_prompt = false;   // includes the last row that the lane has
  bool is_decoding = false;   // computes what a decoding lane's next token needs
  // How many of the rows are guesses, which come last; with any, `tokens` are those of all rows.
  int64_t guesses = 0;
  std::vector<TokenId> tokens = {};
  int64_t kept_rows = 0;  // up to the last one after which a token was drawn
  // What is wanted of the last n_logits rows, and there once they are computed: their logits, or
  // of each the n_best best tokens.
  int64_t n_best = 0;
  std::span<float> logits;
  std::span<const TokenLogit> best;
  std::span<float> vectors;  // of the last n_vectors rows, or of all that are shown, likewise

  Session* session() const { return lane->session; }
  // Appends the lane's first `n` guesses to its rows. REQUIRES: `rows` counts them already.
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
