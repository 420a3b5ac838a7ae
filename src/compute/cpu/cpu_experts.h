// Computes the experts of a device's mixtures on the CPU: see host_experts.h.
#ifndef WEFT_COMPUTE_CPU_CPU_EXPERTS_H_
#define WEFT_COMPUTE_CPU_CPU_EXPERTS_H_

#include <memory>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/host_experts.h"

namespace weft::cpu {

// REQUIRES: every path of the weights' spec is a mixture. Shares threads as the options say.
StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(std::shared_ptr<const CpuWeights> weights,
                                                      const ExecutorOptions& options);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_CPU_EXPERTS_H_
