// Mixtures of experts: what the experts do with rows that a router has sent to them, whether that
// is the cpu backend's own or a device's (cpu_experts.h). Owner thread only.
#ifndef WEFT_BACKEND_CPU_EXPERTS_H_
#define WEFT_BACKEND_CPU_EXPERTS_H_

#include "backend/cpu/compute.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/scratch.h"
#include "backend/host_experts.h"

namespace weft::cpu {

// Takes what RunExperts will of the scratch memory.
void PlanExperts(const Bound<MixtureOfExperts>& op, Arena* arena);
// Each row's sum of what its experts give, times their weights. REQUIRES: the experts are there,
// and the arena is for as many rows.
void RunExperts(Compute* compute, const Bound<MixtureOfExperts>& op, const RoutedRows& rows,
                Arena* arena, const RowsView& out);

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_EXPERTS_H_
