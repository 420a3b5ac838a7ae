// What the rows of steps count for their tenants, and which steps wait for that. Engine thread
// only.
#ifndef WEFT_ENGINE_TURNS_STEP_TENANTS_H_
#define WEFT_ENGINE_TURNS_STEP_TENANTS_H_

#include <cstdint>
#include <span>

#include "engine/turns/step_part.h"
#include "engine/turns/step_planner.h"

namespace weft {

// Each pays for its prompts' rows, and a share of the decoding rows' time in proportion to the time
// that its own would take alone. So the time to read the weights, which does not depend on the
// number of rows, is not paid by row, and all save alike by batching.
void ChargeTenants(std::span<const StepPart> step, const StepPlanner& planner);

// Whether all tenants of a paused step are ahead of one that decodes in the short step.
bool IsAhead(std::span<const StepPart> paused, std::span<const StepPart> short_step);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_TENANTS_H_
