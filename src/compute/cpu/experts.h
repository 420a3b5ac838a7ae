// Computes the experts of a mixture for rows that were routed to them, by the cpu backend itself or
// by a device (cpu_experts.h). Owner thread only.
#ifndef WEFT_COMPUTE_CPU_EXPERTS_H_
#define WEFT_COMPUTE_CPU_EXPERTS_H_

#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/scratch.h"
#include "compute/host_experts.h"

namespace weft::cpu {

// Reserves the scratch memory that RunExperts needs.
void PlanExperts(const Bound<MixtureOfExperts>& op, Arena* arena);
// Writes each row's weighted sum of its experts' outputs. REQUIRES: the operation has experts, and
// the arena has the same number of rows.
void RunExperts(Compute* compute, const Bound<MixtureOfExperts>& op, const RoutedRows& rows,
                Arena* arena, const RowsView& out);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_EXPERTS_H_
