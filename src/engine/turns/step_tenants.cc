#include "engine/turns/step_tenants.h"

#include <algorithm>

namespace weft {

void ChargeTenants(std::span<const StepPart> step, const StepPlanner& planner,
                   int64_t decode_rows) {
  for (const StepPart& part : step) {
    part.turn->tenant->Charge(part.is_decoding ? planner.DecodeCostUs(decode_rows)
                                               : planner.PromptCostUs(part.rows, part.first_row));
  }
}

bool IsAhead(std::span<const StepPart> paused, std::span<const StepPart> short_step) {
  return std::any_of(short_step.begin(), short_step.end(), [&](const StepPart& part) {
    return part.is_decoding && std::all_of(paused.begin(), paused.end(), [&](const StepPart& of) {
             return StepPlanner::IsAhead(of.turn->tenant, part.turn->tenant);
           });
  });
}

}  // namespace weft
