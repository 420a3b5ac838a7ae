// Computes the experts of a mixture for rows that were routed to them, by the cpu backend itself or
// by a device (cpu_experts.h). Owner thread only.
#ifndef WEFT_BACKEND_CPU_EXPERTS_H_
#define WEFT_BACKEND_CPU_EXPERTS_H_

#include "backend/cpu/compute.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/scratch.h"
#include "backend/host_experts.h"

namespace weft::cpu {

// Reserves the scratch memory that RunExperts needs.
void PlanExperts(const Bound<MixtureOfExperts>& op, Arena* arena);
// Writes each row's weighted sum of its experts' outputs. REQUIRES: the operation has experts, and
// the arena has the same number of rows.
void RunExperts(Compute* compute, const Bound<MixtureOfExperts>& op, const RoutedRows& rows,
                Arena* arena, const RowsView& out);

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_EXPERTS_H_
