// Runs one step on a device: its parts one after the other, with the experts that the host computes
// between them, then its results. Owner thread only.
#ifndef WEFT_COMPUTE_GPU_GPU_STEP_RUN_H_
#define WEFT_COMPUTE_GPU_GPU_STEP_RUN_H_

#include <memory>

#include "compute/backend.h"
#include "compute/gpu/gpu_executor.h"

namespace weft::gpu {

// For a step that the context has begun. The context is in use for the lifetime of the run.
std::unique_ptr<StepRun> NewGpuRun(StepContext* context, const Step& step);

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_GPU_STEP_RUN_H_
