#include "compute/backend.h"

#include <array>
#include <string>
#include <utility>

#include "compute/cpu/cpu_backend.h"
#include "compute/gpu/gpu_backend.h"
#ifdef WEFT_HAS_MLX
#include "compute/mlx/mlx_backend.h"
#endif
#include "base/check.h"
#include "compute/reference/reference_backend.h"

namespace weft {

namespace {

// Every backend that is compiled in. The first one is not a default.
std::span<const Backend* const> AllBackends() {
  static const std::array backends = {
      CpuBackend(),  EmulatedBackend(),  ReferenceBackend(),
#ifdef WEFT_HAS_CUDA
      CudaBackend(),
#endif
#ifdef WEFT_HAS_MLX
      MlxBackend(),  StrictMlxBackend(),
#endif
  };
  return backends;
}

// Backends that are compiled in only if their dependency is found.
constexpr std::pair<std::string_view, std::string_view> kOptional[] = {
    {"cuda", "NVIDIA's compiler"}, {"mlx", "MLX"}};

}  // namespace

StatusOr<const Backend*> FindBackend(std::string_view name) {
  for (const Backend* backend : AllBackends()) {
    if (backend->name() == name) return backend;
  }
  for (const auto& [optional, needed] : kOptional) {
    if (name != optional) continue;
    return NotFound("this program was built without ", needed, ", which \"tools/setup.sh ",
                    optional, "\" installs; it has the backends ", StrJoin(BackendNames(), ", "));
  }
  return NotFound("no backend \"", Printable(name), "\"; this program has ",
                  StrJoin(BackendNames(), ", "));
}

std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const Backend* backend : AllBackends()) names.push_back(backend->name());
  return names;
}

std::vector<std::string_view> BackendNamesNotCompiledIn() {
  std::vector<std::string_view> names;
  for (const auto& [optional, needed] : kOptional) {
    if (!FindBackend(optional).ok()) names.push_back(optional);
  }
  return names;
}

std::string Backend::NameOfDevice(int /*device*/) const { return "the host's processor"; }

std::optional<DeviceLimits> Backend::LimitsOf(int /*device*/) const { return std::nullopt; }

HeldAs Backend::FormOf(DType type, bool /*is_stack*/) const {
  const DTypeInfo& info = InfoOf(type);
  return {std::string(info.name),
          8.0 * static_cast<double>(info.block_bytes) / static_cast<double>(info.block_values)};
}

namespace {

class WholeRun : public StepRun {
 public:
  explicit WholeRun(std::function<Status()> compute) : compute_(std::move(compute)) {}
  StatusOr<bool> Advance(FunctionRef<bool()> /*pause*/) override {
    WEFT_RETURN_IF_ERROR(compute_());
    return true;
  }

 private:
  const std::function<Status()> compute_;
};

}  // namespace

Status StepRun::ReadRow(int64_t /*row*/, std::span<float> /*logits*/) {
  return Unimplemented("this backend changes no rows");
}

StatusOr<std::shared_ptr<HostExperts>> Backend::NewHostExperts(
    std::shared_ptr<const Weights> /*weights*/, const ExecutorOptions& /*options*/) const {
  return Unimplemented("the ", name(), " backend computes no other backend's experts");
}

std::unique_ptr<StepRun> RunInOneGo(std::function<Status()> compute) {
  return std::make_unique<WholeRun>(std::move(compute));
}

Status Executor::Forward(const Step& step) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StepRun> run, Begin(step));
  WEFT_ASSIGN_OR_RETURN(const bool done, run->Advance([] { return false; }));
  WEFT_CHECK(done, "a run paused although nobody asked for it");
  return OkStatus();
}

}  // namespace weft
