// The backends over devices: the kernels of kernels_gpu on NVIDIA devices or in the emulator.
#ifndef WEFT_COMPUTE_GPU_GPU_BACKEND_H_
#define WEFT_COMPUTE_GPU_GPU_BACKEND_H_

#include <memory>

#include "compute/backend.h"
#include "compute/device/cuda_device.h"
#include "compute/device/cuda_driver.h"
#include "compute/device/runtime.h"

namespace weft {

// Named "emu": runs the kernels on the host, slowly, and checks their memory accesses. For tests.
// Lives forever.
const Backend* EmulatedBackend();

#ifdef WEFT_HAS_CUDA
// Named "cuda": NVIDIA devices, through the driver of the machine that runs the program. Lives
// forever.
const Backend* CudaBackend();
#endif

namespace gpu {

// The part of a device backend that is the same for all devices.
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

// The cuda backend over a driver and compiled kernels (or the reason why there are none). The
// driver is loaded when somebody first asks about devices. Both outlive the backend and everything
// made from it.
using DriverFinder = const device::cuda::LoadedDriver& (*)();
std::unique_ptr<const Backend> NewCudaBackend(DriverFinder driver,
                                              StatusOr<device::KernelImages> images);

// Loads weights to the caller's device. The backends call it with a device of their own, or with
// that of the weights in options.beside.
StatusOr<std::shared_ptr<const Weights>> LoadTo(std::shared_ptr<device::Device> device, int number,
                                                std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec, const LoadOptions& options);

}  // namespace gpu

}  // namespace weft

#endif  // WEFT_COMPUTE_GPU_GPU_BACKEND_H_
