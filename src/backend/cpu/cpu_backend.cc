#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "backend/cpu/cpu_executor.h"
#include "backend/cpu/cpu_weights.h"

namespace weft {

namespace {

const BackendCapabilities& Capabilities() {
  static const BackendCapabilities capabilities{
      .kv_types = {DType::kF16, DType::kF32, DType::kBF16, DType::kQ8_0},
      .page_tokens = {32, 16, 64, 128},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 8192,
      .same_bits = true,
  };
  return capabilities;
}

class CpuBackendImpl : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  const BackendCapabilities& capabilities() const override { return Capabilities(); }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(
        std::shared_ptr<const Weights> weights,
        cpu::CpuWeights::Load(std::move(file), std::move(spec), options, PreferredIsa()));
    return weights;
  }

  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  const ExecutorOptions& options) const override {
    ExecutorOptions chosen = options;
    if (chosen.page_tokens == 0) chosen.page_tokens = Capabilities().page_tokens.front();
    if (std::ranges::count(Capabilities().kv_types, chosen.kv_type) == 0) {
      return InvalidArgument("the cpu backend stores no keys and values as ",
                             NameOf(chosen.kv_type), "; it has f32, f16, bf16 and q8_0");
    }
    if (std::ranges::count(Capabilities().page_tokens, chosen.page_tokens) == 0) {
      return InvalidArgument("the cpu backend has no pages of ", chosen.page_tokens,
                             " tokens; it has ", StrJoin(Capabilities().page_tokens, ", "));
    }
    if (chosen.max_step_tokens < 1 || chosen.max_step_tokens > Capabilities().max_step_tokens) {
      return InvalidArgument("steps of ", chosen.max_step_tokens,
                             " tokens: the cpu backend takes 1 to ",
                             Capabilities().max_step_tokens);
    }
    if (chosen.n_threads < 0 || chosen.n_threads > kMaxThreads) {
      return InvalidArgument(chosen.n_threads, " threads: the cpu backend takes 1 to ", kMaxThreads,
                             ", or 0 for one per core");
    }
    return cpu::CpuExecutor::New(
        std::static_pointer_cast<const cpu::CpuWeights>(std::move(weights)), chosen);
  }

 private:
  static constexpr int kMaxThreads = 1024;
};

}  // namespace

const Backend* CpuBackend() {
  static const CpuBackendImpl backend;
  return &backend;
}

}  // namespace weft
