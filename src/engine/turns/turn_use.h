// Checks whether the model supports the turn's kind of result (text, or its prompt's vector or
// scores), and whether its options are within their limits. Pure functions; any thread.
#ifndef WEFT_ENGINE_TURNS_TURN_USE_H_
#define WEFT_ENGINE_TURNS_TURN_USE_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft {

Status CheckUse(const Model& model, const TurnOptions& options);
// The options that decide when a turn ends, and in which chunks its prompt is computed.
Status CheckEnds(const TurnOptions& options, int64_t n_vocab);
Status CheckMarks(const Model& model, const TurnOptions& options);
Status CheckChunks(const std::vector<int64_t>& chunks);
// Whether a text of `n_tokens` fits into a step, if the model needs it whole.
Status CheckWholeText(const Model& model, int64_t n_tokens, int64_t max_step_tokens);
// Whether all rows of the prompt must be computed, so that no known prefix can be reused.
bool PoolsAllRows(const Model& model, const TurnOptions& options);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_USE_H_
