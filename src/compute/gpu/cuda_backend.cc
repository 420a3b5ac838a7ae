// NVIDIA devices as a backend.
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compute/checks.h"
#include "compute/device/cuda_device.h"
#include "compute/gpu/gpu_backend.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/gpu/image_files.h"
#ifdef WEFT_HAS_CUDA
#include "compute/kernels_gpu/cuda_images.h"
#endif

namespace weft {

namespace gpu {

namespace {

// WEFT_CUDA_GRAPHS=off launches each kernel separately, for tools/gpu_quarter.sh.
bool GraphsAreWanted() {
  const char* const value = std::getenv("WEFT_CUDA_GRAPHS");
  return value == nullptr || std::string_view(value) != "off";
}

class CudaBackendImpl : public GpuBackend {
 public:
  CudaBackendImpl(DriverFinder driver, StatusOr<device::KernelImages> images)
      : driver_(driver), images_(std::move(images)) {}

  std::string_view name() const override { return "cuda"; }

  Status Available() const override {
    const device::cuda::LoadedDriver& driver = driver_();
    if (!driver.problem.empty()) {
      return Unavailable("no CUDA device: ", driver.problem,
                         ", or compute without one: --backend cpu");
    }
    if (device_count() > 0) return OkStatus();
    return Unavailable("no CUDA device: NVIDIA's driver is here but finds none; nvidia-smi shows ",
                       "what it sees, and --backend cpu computes without one");
  }

  int device_count() const override { return device::CountCudaCards(functions()); }

  std::string NameOfDevice(int device) const override {
    const auto card = device::CudaCardOf(functions(), device);
    if (!card.ok()) return "unknown";
    return StrCat(card->name, ", compute capability ", card->compute_major, ".",
                  card->compute_minor);
  }

  std::optional<DeviceLimits> LimitsOf(int device) const override {
    const auto card = device::CudaCardOf(functions(), device);
    if (!card.ok()) return std::nullopt;
    return DeviceLimits{card->bytes_per_s, card->int8_macs_per_s};
  }

  StatusOr<MemoryInfo> MemoryOf(int device) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, device));
    WEFT_ASSIGN_OR_RETURN(const auto memory, device::CudaMemoryOf(functions(), device));
    return MemoryInfo{.total_bytes = memory.total_bytes,
                      .free_bytes = memory.free_bytes,
                      .reserve_bytes = memory.reserve_bytes};
  }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, options.device));
    WEFT_RETURN_IF_ERROR(CheckNoRowInput(*this, spec));
    WEFT_RETURN_IF_ERROR(CheckNoAdapters(*this, options));
    std::shared_ptr<device::Device> device = GpuWeights::DeviceOf(options.beside.get());
    if (device == nullptr) {
      WEFT_ASSIGN_OR_RETURN(const device::KernelImages images, images_);
      WEFT_ASSIGN_OR_RETURN(device, device::CudaDevice::Open(functions(), options.device, images,
                                                             {.graphs = GraphsAreWanted()}));
    }
    return LoadTo(std::move(device), options.device, std::move(file), std::move(spec), options);
  }

 private:
  const device::cuda::Driver& functions() const { return driver_().functions; }

  const DriverFinder driver_;
  const StatusOr<device::KernelImages> images_;
};

}  // namespace

std::unique_ptr<const Backend> NewCudaBackend(DriverFinder driver,
                                              StatusOr<device::KernelImages> images) {
  return std::make_unique<CudaBackendImpl>(driver, std::move(images));
}

}  // namespace gpu

#ifdef WEFT_HAS_CUDA
namespace {

StatusOr<device::KernelImages> FindImages() {
  const char* const folder = std::getenv("WEFT_CUDA_IMAGES");
  if (folder == nullptr) return device::CudaImages();
  static const auto files = gpu::ImageFiles::Open(folder, device::CudaImageNames());
  if (!files.ok()) return files.status();
  return files->images();
}

}  // namespace

const Backend* CudaBackend() {
  constexpr auto kFindDriver = []() -> const device::cuda::LoadedDriver& {
    static const device::cuda::LoadedDriver driver = device::cuda::LoadDriver();
    return driver;
  };
  static const auto backend = gpu::NewCudaBackend(kFindDriver, FindImages());
  return backend.get();
}
#endif

}  // namespace weft
