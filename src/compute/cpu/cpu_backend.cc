#include "compute/cpu/cpu_backend.h"

#include <utility>

#include "compute/checks.h"
#include "compute/cpu/cpu_executor.h"
#include "compute/cpu/cpu_experts.h"
#include "compute/cpu/cpu_state.h"
#include "compute/cpu/cpu_weights.h"

namespace weft {

namespace {

const BackendCapabilities& Capabilities() {
  static const BackendCapabilities capabilities{
      .kv_types = WithLevelKvTypes({DType::kF16, DType::kF32, DType::kBF16}),
      .page_tokens = {32, 16, 64, 128},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 16384,
      .max_best = cpu::kMaxBest,
      .rows = true,
      .row_input = true,
      .mutual = true,
      .prediction_heads = true,
      .same_bits = true,
      .adapters = true,
  };
  return capabilities;
}

class CpuBackendImpl : public Backend {
 public:
  explicit CpuBackendImpl(cpu::InputSums* sums = nullptr) : sums_(sums) {}

  std::string_view name() const override { return "cpu"; }
  const BackendCapabilities& capabilities() const override { return Capabilities(); }

  Status Available() const override { return OkStatus(); }
  int device_count() const override { return 1; }
  StatusOr<MemoryInfo> MemoryOf(int device) const override { return HostMemory(*this, device); }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, options.device));
    WEFT_ASSIGN_OR_RETURN(
        std::shared_ptr<const Weights> weights,
        cpu::CpuWeights::Load(std::move(file), std::move(spec), options, PreferredIsa()));
    return weights;
  }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(const StateOptions chosen, CheckedOptions(*this, options));
    return std::make_unique<cpu::CpuState>(weights.spec(), chosen.kv_type, chosen.page_tokens);
  }

  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckComputing(options));
    return cpu::CpuExecutor::New(
        std::static_pointer_cast<const cpu::CpuWeights>(std::move(weights)),
        static_cast<cpu::CpuState*>(state), options, sums_);
  }

  StatusOr<std::shared_ptr<HostExperts>> NewHostExperts(
      std::shared_ptr<const Weights> weights, const ExecutorOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckComputing(options));
    return cpu::NewHostExperts(std::static_pointer_cast<const cpu::CpuWeights>(std::move(weights)),
                               options);
  }

 private:
  static constexpr int kMaxThreads = 1024;

  Status CheckComputing(const ExecutorOptions& options) const {
    WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
    if (options.n_threads >= 0 && options.n_threads <= kMaxThreads) return OkStatus();
    return InvalidArgument(options.n_threads, " threads: the cpu backend takes 1 to ", kMaxThreads,
                           ", or 0 for one per core");
  }

  cpu::InputSums* const sums_;  // null: nothing is measured
};

}  // namespace

const Backend* CpuBackend() {
  static const CpuBackendImpl backend;
  return &backend;
}

std::unique_ptr<const Backend> NewMeasuringCpuBackend(cpu::InputSums* sums) {
  return std::make_unique<CpuBackendImpl>(sums);
}

}  // namespace weft
