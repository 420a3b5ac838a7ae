#include "engine/turns/step_tenants.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace weft {

void ChargeTenants(std::span<const StepPart> step, const StepPlanner& planner) {
  std::map<Tenant*, int64_t> decoding;  // rows
  for (const StepPart& part : step) {
    Tenant* const tenant = part.turn->tenant;
    if (part.is_decoding) {
      ++decoding[tenant];
    } else {
      tenant->Charge(planner.PromptCostUs(part.rows, part.first_row));
    }
  }
  double all_work = 0;
  for (const auto& [tenant, rows] : decoding) all_work += planner.DecodeWork(rows);
  for (const auto& [tenant, rows] : decoding) {
    tenant->Charge(planner.DecodeStepUs() * planner.DecodeWork(rows) / all_work);
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
