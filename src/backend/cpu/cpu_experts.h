// Computes the experts of a device's mixtures on the CPU: see host_experts.h.
#ifndef WEFT_BACKEND_CPU_CPU_EXPERTS_H_
#define WEFT_BACKEND_CPU_CPU_EXPERTS_H_

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/host_experts.h"
#include "base/status.h"

namespace weft::cpu {

// REQUIRES: every path of the weights' spec is a mixture. Shares threads as the options say.
StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(std::shared_ptr<const CpuWeights> weights,
                                                      const ExecutorOptions& options);

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_CPU_EXPERTS_H_
