// A lane's part of a step.
//
// Today it is a run of the session's next tokens. What else a step may carry one day belongs here:
// guessed rows that are verified in order and cut back (StateMemory::Truncate) where they were
// wrong, and rows that are vectors in place of tokens.
#ifndef WEFT_ENGINE_TURNS_STEP_PART_H_
#define WEFT_ENGINE_TURNS_STEP_PART_H_

#include <cstdint>
#include <span>

#include "base/best_tokens.h"
#include "engine/turns/active_turn.h"

namespace weft {

struct StepPart {
  ActiveTurn* turn = nullptr;
  Lane* lane = nullptr;
  int64_t rows = 0;
  int64_t first_row = 0;  // position of the first row
  int64_t n_logits = 0;
  bool ends_prompt = false;  // includes the last row that the lane has
  // What is wanted of the last n_logits rows, and there once they are computed: their logits, or
  // of each the n_best best tokens.
  int64_t n_best = 0;
  std::span<float> logits;
  std::span<const TokenLogit> best;

  Session* session() const { return lane->session; }
};

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_PART_H_
