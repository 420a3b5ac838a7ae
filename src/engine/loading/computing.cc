#include "engine/loading/computing.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compute/split/expert_backend.h"
#include "compute/split/expert_spec.h"
#include "compute/split/layer_needs.h"
#include "compute/split/split_backend.h"
#include "engine/loading/load_report.h"

namespace weft {
namespace {

const Backend& Processor() {
  static const Backend* const processor = [] {
    const auto found = FindBackend("cpu");
    WEFT_CHECK(found.ok(), "every program has the cpu backend");
    return *found;
  }();
  return *processor;
}

bool IsAny(const ModelOptions& options) { return options.backend == ModelOptions::kAnyBackend; }

StatusOr<const Backend*> NamedBackend(const ModelOptions& options) {
  if (options.backend_object != nullptr) return options.backend_object;
  return FindBackend(options.backend);
}

// The cards that may be chosen; null if there are none.
const Backend* Cards(const ModelOptions& options) {
  const Backend* cards = options.backend_object;
  if (cards == nullptr) {
    const auto found = FindBackend("cuda");
    if (!found.ok()) return nullptr;
    cards = *found;
  }
  return cards->Available().ok() ? cards : nullptr;
}

std::string Bytes(int64_t bytes) {
  return HumanBytes(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

// Whether the options leave anything to the processor.
bool Divides(const ModelOptions& options) {
  return options.device_layers != ModelOptions::kAllLayers ||
         (options.expert_layers != ModelOptions::kLayersThatFit && options.expert_layers != 0);
}

StatusOr<int64_t> RoomOn(const Backend& backend, const ModelOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo memory, backend.MemoryOf(options.device));
  return memory.free_bytes - memory.reserve_bytes;
}

// The number of first layers whose experts the CPU computes.
StatusOr<int> ExpertLayersOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec,
                             const ModelOptions& options) {
  const int n_layers = static_cast<int>(spec.layers.size());
  if (options.expert_layers == 0) return 0;
  if (options.expert_layers == ModelOptions::kLayersThatFit) {
    const bool fits = options.device_layers == ModelOptions::kLayersThatFit;
    if (!fits || !backend.capabilities().host_experts) return 0;
    WEFT_ASSIGN_OR_RETURN(const int64_t room, RoomOn(backend, options));
    return ChooseExpertLayers(room, backend, file, spec);
  }
  if (split::LayersWithExperts(spec, n_layers) == 0) {
    return InvalidArgument("the model has no mixtures of experts; omit --cpu-moe");
  }
  const bool all = options.expert_layers == ModelOptions::kAllLayers;
  return split::LayersWithExperts(spec, all ? n_layers : options.expert_layers);
}

// How many of the last layers the backend computes; the experts of the first are not its.
StatusOr<int> DeviceLayersOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec,
                             int n_experts, const ModelOptions& options) {
  const int n_layers = static_cast<int>(spec.layers.size());
  if (options.device_layers == ModelOptions::kAllLayers) return n_layers;
  if (options.device_layers != ModelOptions::kLayersThatFit) {
    return std::clamp(options.device_layers, 0, n_layers);
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t room, RoomOn(backend, options));
  return ChooseLastLayers(room, backend, file, split::SplitExperts(spec, n_experts).device);
}

// Without the weights, and the device that they are for.
StatusOr<std::pair<Computing, int>> Divide(const Backend& backend, const ModelFile& file,
                                           const ModelSpec& spec, const ModelOptions& options) {
  if (Divides(options) && &backend == &Processor()) {
    return InvalidArgument(
        "the cpu backend computes all layers itself; to have some of them computed on a device "
        "choose its backend, as in --backend cuda");
  }
  WEFT_ASSIGN_OR_RETURN(const int n_experts, ExpertLayersOf(backend, file, spec, options));
  WEFT_ASSIGN_OR_RETURN(const int n_device,
                        DeviceLayersOf(backend, file, spec, n_experts, options));
  const int n_front = static_cast<int>(spec.layers.size()) - n_device;
  if (n_device == 0) return std::pair(Computing{.backend = &Processor()}, 0);
  Computing computing{.backend = &backend};
  if (n_experts > n_front) {
    WEFT_ASSIGN_OR_RETURN(computing.leaves_experts,
                          NewExpertBackend(&Processor(), &backend, n_experts - n_front));
    computing.backend = computing.leaves_experts.get();
  }
  if (n_front > 0) {
    WEFT_ASSIGN_OR_RETURN(computing.divided,
                          NewSplitBackend(&Processor(), computing.backend, spec, n_front));
    computing.backend = computing.divided.get();
  }
  return std::pair(std::move(computing), options.device);
}

// Where a model is too large for a device, what helps.
Status WithAdvice(const Status& status, const Computing& computing, const ModelOptions& options) {
  if (status.code() != StatusCode::kResourceExhausted || computing.backend == &Processor()) {
    return status;
  }
  return ResourceExhausted(Message(status),
                           options.device_layers == ModelOptions::kAllLayers
                               ? ", or leave some layers to the processor: --gpu-layers auto"
                               : ", or fewer layers on the device: --gpu-layers");
}

StatusOr<Computing> LoadOn(const Backend& backend, const std::shared_ptr<const ModelFile>& file,
                           const ModelSpec& spec, const ModelOptions& options,
                           std::vector<Adapter> adapters) {
  WEFT_ASSIGN_OR_RETURN(auto where, Divide(backend, *file, spec, options));
  auto& [computing, device] = where;
  LoadOptions load;
  load.device = device;
  load.n_threads = options.n_threads;
  load.progress = options.progress;
  load.packed_copies = {options.packed_cache, options.packed_cache_bytes,
                        options.packed_cache_is_default};
  load.adapters = std::move(adapters);
  const LoadMeter meter;
  auto weights = computing.backend->Load(file, spec, load);
  if (!weights.ok()) return WithAdvice(weights.status(), computing, options);
  computing.weights = *std::move(weights);
  LoadFigures figures = meter.Read(computing.weights->memory_bytes(), options.n_threads,
                                   computing.weights->copy_write_us());
  figures.is_mapped = computing.weights->mapped_bytes() > 0;
  computing.loading = DescribeLoad(figures);
  return std::move(computing);
}

// Whether the card has room for the whole model.
Status CheckFits(const Backend& cards, const ModelFile& file, const ModelSpec& spec, int device) {
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo memory, cards.MemoryOf(device));
  const int64_t needed = WholeBytes(cards, file, spec);
  const int64_t room = memory.free_bytes - memory.reserve_bytes;
  if (needed <= room) return OkStatus();
  return ResourceExhausted("the model needs ", Bytes(needed), " with room for a session, and ",
                           cards.NameOfDevice(device), " has ", Bytes(room),
                           " to give; --gpu-layers auto leaves some layers to the processor");
}

std::string ChoiceOf(const Backend& cards, int device, const Computing& computing) {
  const auto memory = cards.MemoryOf(device);
  const std::string rest =
      memory.ok() ? StrCat(", ", Bytes(memory->usable_bytes()), " for sessions") : "";
  return StrCat("computes on ", cards.NameOfDevice(device), ": ",
                Bytes(computing.weights->memory_bytes()), " of weights", rest);
}

// The card if there is one that takes the model, otherwise the processor, with the reason.
StatusOr<Computing> LoadAnywhere(const std::shared_ptr<const ModelFile>& file,
                                 const ModelSpec& spec, const ModelOptions& options,
                                 const std::vector<Adapter>& adapters) {
  const Backend* const cards = Cards(options);
  if (cards == nullptr) return LoadOn(Processor(), file, spec, options, adapters);
  // Who divides a model has chosen.
  if (Divides(options)) return LoadOn(*cards, file, spec, options, adapters);
  Status why = CheckFits(*cards, *file, spec, options.device);
  if (why.ok() && !adapters.empty() && !cards->capabilities().adapters) {
    why = Unimplemented("the ", cards->name(), " backend computes no LoRA adapters");
  }
  // There is no such device.
  if (why.code() == StatusCode::kInvalidArgument) return why;
  if (why.ok()) {
    auto loaded = LoadOn(*cards, file, spec, options, adapters);
    if (loaded.ok()) {
      loaded->choice = ChoiceOf(*cards, options.device, *loaded);
      return loaded;
    }
    why = loaded.status();
  }
  ModelOptions on_processor = options;
  on_processor.device = 0;
  auto loaded = LoadOn(Processor(), file, spec, on_processor, adapters);
  if (loaded.ok()) loaded->choice = StrCat("computes on the processor: ", Message(why));
  return loaded;
}

}  // namespace

Status CheckBackend(const ModelOptions& options) {
  if (IsAny(options)) return OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Backend* const backend, NamedBackend(options));
  return Annotate(backend->Available(), "the ", backend->name(), " backend cannot be used here: ");
}

StatusOr<Computing> LoadForComputing(const std::shared_ptr<const ModelFile>& file,
                                     const ModelSpec& spec, const ModelOptions& options,
                                     std::vector<Adapter> adapters) {
  if (IsAny(options)) return LoadAnywhere(file, spec, options, adapters);
  WEFT_ASSIGN_OR_RETURN(const Backend* const backend, NamedBackend(options));
  return LoadOn(*backend, file, spec, options, std::move(adapters));
}

}  // namespace weft
