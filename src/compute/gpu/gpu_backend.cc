#include "compute/gpu/gpu_backend.h"

#include <utility>

#include "base/strings.h"
#include "compute/checks.h"
#include "compute/device/emulated_device.h"
#include "compute/device/stack_switch.h"
#include "compute/gpu/gpu_executor.h"
#include "compute/gpu/gpu_state.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/gpu/weight_forms.h"
#include "compute/kernels_gpu/best.h"

namespace weft {

namespace {

const BackendCapabilities& Capabilities() {
  static const BackendCapabilities capabilities{
      .kv_types = {DType::kF16, DType::kF32, DType::kBF16, DType::kQ8_0},
      .page_tokens = {32, 16, 64, 128},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 8192,
      .max_best = device::kMaxBest,
      .changes_rows = true,
      .rows = true,
      .prediction_heads = true,
      .same_bits = true,
      .host_experts = true,
  };
  return capabilities;
}

class EmulatedBackendImpl : public gpu::GpuBackend {
 public:
  std::string_view name() const override { return "emu"; }

  Status Available() const override {
    if (device::kHasStackSwitch) return OkStatus();
    return Unimplemented("the emulator runs on x86-64 and AArch64 processors");
  }
  int device_count() const override { return 1; }
  std::string NameOfDevice(int /*device*/) const override {
    return "the host's processor, in the emulator";
  }
  StatusOr<MemoryInfo> MemoryOf(int device) const override { return HostMemory(*this, device); }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, options.device));
    WEFT_RETURN_IF_ERROR(CheckNoRowInput(*this, spec));
    WEFT_RETURN_IF_ERROR(CheckNoAdapters(*this, options));
    auto device = gpu::GpuWeights::DeviceOf(options.beside.get());
    if (device == nullptr) device = std::make_shared<device::EmulatedDevice>();
    return gpu::LoadTo(std::move(device), options.device, std::move(file), std::move(spec),
                       options);
  }
};

}  // namespace

const Backend* EmulatedBackend() {
  static const EmulatedBackendImpl backend;
  return &backend;
}

namespace gpu {

const BackendCapabilities& GpuBackend::capabilities() const { return Capabilities(); }

HeldAs GpuBackend::FormOf(DType type, bool is_stack) const {
  const WeightForm* const form = gpu::FormOf(type);
  if (form == nullptr || !form->int8) return Backend::FormOf(type, is_stack);
  const PartBytes bytes = BytesOfRow(type, device::kSuperInputs);
  return {StrCat(NameOf(type), ", in bands of ", device::kBandOutputs, " rows"),
          8.0 * static_cast<double>(bytes.levels + bytes.meta + bytes.super) / device::kSuperInputs,
          device::kChunkInputs};
}

StatusOr<std::unique_ptr<StateStore>> GpuBackend::NewState(const Weights& weights,
                                                           const StateOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(const StateOptions chosen, CheckedOptions(*this, options));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> state,
                        GpuState::New(static_cast<const GpuWeights&>(weights), chosen));
  return state;
}

StatusOr<std::unique_ptr<Executor>> GpuBackend::NewExecutor(std::shared_ptr<const Weights> weights,
                                                            StateStore* state,
                                                            const ExecutorOptions& options) const {
  WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
  return GpuExecutor::New(std::static_pointer_cast<const GpuWeights>(std::move(weights)),
                          static_cast<GpuState*>(state), options);
}

StatusOr<std::shared_ptr<const Weights>> LoadTo(std::shared_ptr<device::Device> device, int number,
                                                std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec, const LoadOptions& options) {
  WEFT_ASSIGN_OR_RETURN(
      std::shared_ptr<const Weights> weights,
      GpuWeights::Load(std::move(device), number, std::move(file), std::move(spec), options));
  return weights;
}

}  // namespace gpu

}  // namespace weft
