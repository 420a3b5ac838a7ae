// The prompt that a turn adds to its session: tokens and input embeddings ("rows"). Any thread.
#ifndef WEFT_ENGINE_TURNS_TURN_PROMPT_H_
#define WEFT_ENGINE_TURNS_TURN_PROMPT_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "engine/sessions/session.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft {

Status ValidateTokens(const std::vector<TokenId>& tokens, int64_t n_vocab, const char* kind);

// If there are rows: whether the backend and the model take any, and whether these are complete.
Status CheckRowsFit(const Model& model, const TurnOptions& options);
// Whether all tokens are in the vocabulary and all rows finite.
Status CheckPrompt(const Model& model, const TurnOptions& options);
// Whether a session may hold this many rows during the turn.
Status CheckSessionRows(const Model& model, const EngineOptions& limits, const TurnOptions& options,
                        int64_t n_rows);

// Whether steps are large enough for the rows that see each other, of a session that another
// program may have written.
Status CheckRuns(const History& tokens, int64_t max_step_tokens);

// Moves the tokens and rows out of `options`.
History MovePrompt(const Model& model, TurnOptions* options, RowTable* rows);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_PROMPT_H_
