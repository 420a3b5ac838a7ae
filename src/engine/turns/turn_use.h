// What a turn asks of its model: text, or its prompt's vector or scores; and whether the model can
// do it. Pure functions; any thread.
#ifndef WEFT_ENGINE_TURNS_TURN_USE_H_
#define WEFT_ENGINE_TURNS_TURN_USE_H_

#include <cstdint>

#include "base/status.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft {

Status CheckUse(const Model& model, const TurnOptions& options);
// Whether a text of `n_tokens` can be computed, where that takes one step of all of it.
Status CheckWholeText(const Model& model, int64_t n_tokens, int64_t max_step_tokens);
// Whether all rows of the prompt are needed, and so none can be taken over from elsewhere.
bool PoolsAllRows(const Model& model, const TurnOptions& options);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_TURN_USE_H_
