#include "compute/mlx/mlx_backend.h"

#include <utility>

#include "compute/checks.h"
#include "compute/mlx/device_memory.h"
#include "compute/mlx/mlx_executor.h"
#include "compute/mlx/mlx_state.h"
#include "compute/mlx/mlx_weights.h"
#include "compute/mlx/packing.h"
#include "mlx/device.h"

namespace weft {

namespace {

namespace mx = ::mlx::core;

// MLX chooses kernels, and with them the order of sums, by the number of rows. Only the strict
// backend, which computes each row by itself, promises the same bits.
BackendCapabilities CapabilitiesOf(bool is_strict) {
  return {
      .kv_types = {DType::kF16, DType::kF32, DType::kBF16},
      .page_tokens = {32, 16, 64, 128},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 8192,
      .max_best = mlx::kMaxBest,
      .rows = true,
      .same_bits = is_strict,
  };
}

class MlxBackendImpl : public Backend {
 public:
  explicit MlxBackendImpl(bool is_strict)
      : is_strict_(is_strict), capabilities_(CapabilitiesOf(is_strict)) {}
  std::string_view name() const override { return is_strict_ ? "mlx-strict" : "mlx"; }
  const BackendCapabilities& capabilities() const override { return capabilities_; }

  Status Available() const override {
    return mlx::WithoutExceptions("the device", []() -> Status {
      const mx::Device& device = mx::default_device();
      if (mx::is_available(device)) return OkStatus();
      return Unavailable("MLX finds no device that computes");
    });
  }
  int device_count() const override { return 1; }
  StatusOr<MemoryInfo> MemoryOf(int device) const override {
    WEFT_ASSIGN_OR_RETURN(const MemoryInfo machine, HostMemory(*this, device));
    return mlx::WithoutExceptions(
        "the device", [&]() -> StatusOr<MemoryInfo> { return mlx::DeviceMemory(machine); });
  }
  std::string NameOfDevice(int /*device*/) const override { return "MLX's default device"; }

  HeldAs FormOf(DType type, bool is_stack) const override {
    const mlx::Packing packing = mlx::PackingOf(type);
    switch (packing.form) {
      case mlx::Form::kAffine:
        return {StrCat("affine, ", packing.bits, " bits",
                       packing.spread ? ", 16 weights to a group" : ""),
                packing.BitsPerWeight()};
      case mlx::Form::kMxfp4:
        return {"mxfp4", packing.BitsPerWeight()};
      case mlx::Form::kFloat:
        break;
    }
    return Backend::FormOf(is_stack ? DType::kF32 : type, is_stack);
  }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, options.device));
    WEFT_RETURN_IF_ERROR(CheckNoHiddenInput(*this, spec));
    WEFT_RETURN_IF_ERROR(CheckNoRowInput(*this, spec));
    WEFT_RETURN_IF_ERROR(CheckNoAdapters(*this, options));
    return mlx::WithoutExceptions("weights", [&]() -> StatusOr<std::shared_ptr<const Weights>> {
      mlx::LimitCache();
      WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const Weights> weights,
                            mlx::MlxWeights::Load(std::move(file), std::move(spec), options));
      return weights;
    });
  }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(const StateOptions chosen, CheckedOptions(*this, options));
    return std::make_unique<mlx::MlxState>(weights.spec(), chosen.kv_type.keys, chosen.page_tokens);
  }

  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
    return std::make_unique<mlx::MlxExecutor>(
        std::static_pointer_cast<const mlx::MlxWeights>(std::move(weights)),
        static_cast<mlx::MlxState*>(state), options, is_strict_);
  }

 private:
  const bool is_strict_;
  const BackendCapabilities capabilities_;
};

}  // namespace

const Backend* MlxBackend() {
  static const MlxBackendImpl backend(/*is_strict=*/false);
  return &backend;
}

const Backend* StrictMlxBackend() {
  static const MlxBackendImpl backend(/*is_strict=*/true);
  return &backend;
}

}  // namespace weft
