// The backends over devices: kernels of kernels_gpu, run by NVIDIA's devices or the emulator.
#ifndef WEFT_BACKEND_GPU_GPU_BACKEND_H_
#define WEFT_BACKEND_GPU_GPU_BACKEND_H_

#include <memory>

#include "backend/backend.h"
#include "device/cuda_device.h"
#include "device/cuda_driver.h"
#include "device/runtime.h"

namespace weft {

// Named "emu": the kernels run on the host, slowly, and are watched. For tests. Lives forever.
const Backend* EmulatedBackend();

#ifdef WEFT_HAS_CUDA
// Named "cuda": NVIDIA's devices, over the driver of the machine that the program runs on. Lives
// forever.
const Backend* CudaBackend();
#endif

namespace gpu {

// What a backend over devices does that does not depend on which they are.
class GpuBackend : public Backend {
 public:
  const BackendCapabilities& capabilities() const override;
  HeldAs FormOf(DType type, bool is_stack) const override;
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override;
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override;
};

// The cuda backend over a driver, which is loaded by whoever first asks about devices, and
// kernels compiled for it, or why there are none. Both outlive the backend and what it makes.
using DriverFinder = const device::cuda::LoadedDriver& (*)();
std::unique_ptr<const Backend> NewCudaBackend(DriverFinder driver,
                                              StatusOr<device::KernelImages> images);

// Loads weights to a device that the caller made: what the backends do with their own, or with that
// of the weights that these are loaded beside.
StatusOr<std::shared_ptr<const Weights>> LoadTo(std::shared_ptr<device::Device> device, int number,
                                                std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec, const LoadOptions& options);

}  // namespace gpu

}  // namespace weft

#endif  // WEFT_BACKEND_GPU_GPU_BACKEND_H_
