// What the rows of steps count for their tenants, and which steps wait for that. Engine thread
// only.
#ifndef WEFT_ENGINE_TURNS_STEP_TENANTS_H_
#define WEFT_ENGINE_TURNS_STEP_TENANTS_H_

#include <cstdint>
#include <span>

#include "engine/turns/step_part.h"
#include "engine/turns/step_planner.h"

namespace weft {

// `decode_rows`: of the step.
void ChargeTenants(std::span<const StepPart> step, const StepPlanner& planner, int64_t decode_rows);

// Whether all tenants of a paused step are ahead of one that decodes in the short step.
bool IsAhead(std::span<const StepPart> paused, std::span<const StepPart> short_step);

}  // namespace weft

#endif  // WEFT_ENGINE_TURNS_STEP_TENANTS_H_
