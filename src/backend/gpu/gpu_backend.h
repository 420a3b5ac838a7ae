// The backends over devices: kernels of kernels_gpu, run by the emulator.
#ifndef WEFT_BACKEND_GPU_GPU_BACKEND_H_
#define WEFT_BACKEND_GPU_GPU_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "device/runtime.h"

namespace weft {

// Named "emu": the kernels run on the host, slowly, and are watched. For tests. Lives forever.
const Backend* EmulatedBackend();

namespace gpu {

// Loads weights to a device that the caller made: what the backends do with their own.
StatusOr<std::shared_ptr<const Weights>> LoadTo(std::shared_ptr<device::Device> device, int number,
                                                std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec, const LoadOptions& options);

}  // namespace gpu

}  // namespace weft

#endif  // WEFT_BACKEND_GPU_GPU_BACKEND_H_
