#include "compute/split/expert_backend.h"

#include <string>
#include <utility>

#include "compute/checks.h"
#include "compute/spec_tensors.h"
#include "compute/split/expert_spec.h"

namespace weft {

namespace split {

namespace {

class ExpertWeights final : public Weights {
 public:
  ExpertWeights(ModelSpec spec, std::shared_ptr<const Weights> on_device,
                std::shared_ptr<const Weights> on_host)
      : spec_(std::move(spec)), device_(std::move(on_device)), host_(std::move(on_host)) {}

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return device_->device(); }
  int64_t memory_bytes() const override { return device_->memory_bytes() + host_->memory_bytes(); }
  int64_t mapped_bytes() const override { return device_->mapped_bytes() + host_->mapped_bytes(); }
  Status CheckUnchanged() const override {
    WEFT_RETURN_IF_ERROR(device_->CheckUnchanged());
    return host_->CheckUnchanged();
  }
  const std::shared_ptr<const Weights>& on_device() const { return device_; }
  const std::shared_ptr<const Weights>& on_host() const { return host_; }

 private:
  const ModelSpec spec_;
  const std::shared_ptr<const Weights> device_, host_;
};

class ExpertBackend final : public Backend {
 public:
  ExpertBackend(const Backend* host, const Backend* device, int n_layers)
      : host_(*host),
        device_(*device),
        n_layers_(n_layers),
        name_(StrCat(device->name(), "+", host->name(), "-experts:", n_layers)),
        capabilities_(device->capabilities()) {
    capabilities_.prediction_heads = false;
    capabilities_.host_experts = false;
  }

  std::string_view name() const override { return name_; }
  const BackendCapabilities& capabilities() const override { return capabilities_; }
  HeldAs FormOf(DType type, bool is_stack) const override { return device_.FormOf(type, is_stack); }
  Status Available() const override { return device_.Available(); }
  int device_count() const override { return device_.device_count(); }
  std::string NameOfDevice(int device) const override {
    return StrCat(device_.NameOfDevice(device), " and ", host_.NameOfDevice(0));
  }
  StatusOr<MemoryInfo> MemoryOf(int device) const override { return device_.MemoryOf(device); }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override;
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    return device_.NewState(*static_cast<const ExpertWeights&>(weights).on_device(), options);
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    const auto& both = static_cast<const ExpertWeights&>(*weights);
    WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
    ExecutorOptions part = options;
    WEFT_ASSIGN_OR_RETURN(part.experts, host_.NewHostExperts(both.on_host(), options));
    return device_.NewExecutor(both.on_device(), state, part);
  }

 private:
  const Backend &host_, &device_;
  const int n_layers_;
  const std::string name_;
  BackendCapabilities capabilities_;
};

int64_t FileBytesOf(const ModelFile& file, const ModelSpec& spec) {
  int64_t bytes = 0;
  for (const TensorRef ref : TensorsOf(spec)) {
    bytes += std::ssize(file.tensors()[static_cast<size_t>(ref.index)].data);
  }
  return bytes;
}

// The device first, because its memory is the more likely to be too small.
StatusOr<std::shared_ptr<const Weights>> ExpertBackend::Load(std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options) const {
  WEFT_RETURN_IF_ERROR(CheckNoHiddenInput(*this, spec));
  WEFT_RETURN_IF_ERROR(CheckNoRowInput(*this, spec));
  WEFT_RETURN_IF_ERROR(CheckNoAdapters(*this, options));
  ExpertSplit parts = SplitExperts(spec, n_layers_);
  if (parts.host.layers.empty()) {
    return InvalidArgument("the backend ", name_, " is for models with mixtures of experts");
  }
  const auto device_bytes = static_cast<double>(FileBytesOf(*file, parts.device));
  const double share =
      device_bytes / (device_bytes + static_cast<double>(FileBytesOf(*file, parts.host)));
  // No packed copies, because a copy holds a whole file.
  LoadOptions part = {.device = options.device, .n_threads = options.n_threads};
  if (options.progress) part.progress = [&](double done) { options.progress(done * share); };
  WEFT_ASSIGN_OR_RETURN(auto on_device, device_.Load(file, std::move(parts.device), part));
  part.device = 0;
  if (options.progress) {
    part.progress = [&](double done) { options.progress(share + done * (1 - share)); };
  }
  WEFT_ASSIGN_OR_RETURN(auto on_host, host_.Load(std::move(file), std::move(parts.host), part));
  return std::make_shared<ExpertWeights>(std::move(spec), std::move(on_device), std::move(on_host));
}

}  // namespace

}  // namespace split

StatusOr<std::unique_ptr<const Backend>> NewExpertBackend(const Backend* host,
                                                          const Backend* device, int n_layers) {
  if (!device->capabilities().host_experts) {
    return Unimplemented("the ", device->name(),
                         " backend cannot leave experts to the processor; omit --cpu-moe");
  }
  return std::make_unique<split::ExpertBackend>(host, device, n_layers);
}

}  // namespace weft
