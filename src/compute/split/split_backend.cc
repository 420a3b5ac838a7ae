#include "compute/split/split_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compute/checks.h"
#include "compute/split/layer_needs.h"
#include "compute/split/split_executor.h"
#include "compute/split/split_spec.h"
#include "compute/split/split_state.h"

namespace weft {

namespace split {

namespace {

class SplitWeights final : public Weights {
 public:
  SplitWeights(ModelSpec spec, SplitSpec split)
      : spec_(std::move(spec)), split_(std::move(split)) {}

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return back->device(); }
  int64_t memory_bytes() const override { return front->memory_bytes() + back->memory_bytes(); }
  int64_t mapped_bytes() const override { return front->mapped_bytes() + back->mapped_bytes(); }
  Status CheckUnchanged() const override {
    WEFT_RETURN_IF_ERROR(front->CheckUnchanged());
    return back->CheckUnchanged();
  }
  const SplitSpec& split() const { return split_; }

  std::shared_ptr<const Weights> front, back;

 private:
  const ModelSpec spec_;
  const SplitSpec split_;
};

// The items in both lists, in the order of the first.
template <typename T>
std::vector<T> InBoth(const std::vector<T>& first, const std::vector<T>& second) {
  std::vector<T> both;
  std::ranges::copy_if(first, std::back_inserter(both),
                       [&](const T& item) { return std::ranges::count(second, item) > 0; });
  return both;
}

BackendCapabilities CapabilitiesOf(const BackendCapabilities& front,
                                   const BackendCapabilities& back) {
  return {.kv_types = InBoth(back.kv_types, front.kv_types),
          .page_tokens = InBoth(back.page_tokens, front.page_tokens),
          .slot_kinds = InBoth(back.slot_kinds, front.slot_kinds),
          .max_step_tokens = std::min(front.max_step_tokens, back.max_step_tokens),
          .max_best = back.max_best,
          .changes_rows = back.changes_rows,
          .rows = front.rows,
          .prediction_heads = false,
          .same_bits = front.same_bits && back.same_bits};
}

// Scales a part's memory to the whole: the part holds `part` of the `whole` bytes of state.
int64_t ForWhole(int64_t bytes, int64_t part, int64_t whole) {
  return static_cast<int64_t>(static_cast<double>(bytes) * static_cast<double>(whole) /
                              static_cast<double>(part));
}

class SplitBackend final : public Backend {
 public:
  SplitBackend(const Backend* front, const Backend* back, const SplitSpec& split, size_t n_layers)
      : front_(*front),
        back_(*back),
        n_layers_(n_layers),
        n_front_(split.front.spec.layers.size()),
        name_(StrCat(front->name(), ":", n_front_, "+", back->name(), ":", n_layers - n_front_)),
        capabilities_(CapabilitiesOf(front->capabilities(), back->capabilities())),
        front_state_bytes_(StateBytesOf(split.front.spec)),
        back_state_bytes_(StateBytesOf(split.back.spec)) {}

  std::string_view name() const override { return name_; }
  const BackendCapabilities& capabilities() const override { return capabilities_; }
  HeldAs FormOf(DType type, bool is_stack) const override { return back_.FormOf(type, is_stack); }
  Status Available() const override {
    WEFT_RETURN_IF_ERROR(front_.Available());
    return back_.Available();
  }
  int device_count() const override { return back_.device_count(); }
  std::string NameOfDevice(int device) const override {
    return StrCat(back_.NameOfDevice(device), " and ", front_.NameOfDevice(0));
  }
  StatusOr<MemoryInfo> MemoryOf(int device) const override;
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override;
  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override;
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override;

 private:
  const Backend &front_, &back_;
  const size_t n_layers_, n_front_;
  const std::string name_;
  const BackendCapabilities capabilities_;
  const int64_t front_state_bytes_, back_state_bytes_;  // per session
};

// The memory for whole sessions is limited by the part that fills up first.
StatusOr<MemoryInfo> SplitBackend::MemoryOf(int device) const {
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo back, back_.MemoryOf(device));
  WEFT_ASSIGN_OR_RETURN(const MemoryInfo front, front_.MemoryOf(0));
  if (back_state_bytes_ == 0) return front;
  if (front_state_bytes_ == 0) return back;
  const int64_t whole = front_state_bytes_ + back_state_bytes_;
  const auto least = [&](int64_t of_front, int64_t of_back) {
    return std::min(ForWhole(of_front, front_state_bytes_, whole),
                    ForWhole(of_back, back_state_bytes_, whole));
  };
  const int64_t free_bytes = least(front.free_bytes, back.free_bytes);
  return MemoryInfo{.total_bytes = least(front.total_bytes, back.total_bytes),
                    .free_bytes = free_bytes,
                    .reserve_bytes = free_bytes - least(front.usable_bytes(), back.usable_bytes())};
}

// The device first, because its memory is the more likely to be too small.
StatusOr<std::shared_ptr<const Weights>> SplitBackend::Load(std::shared_ptr<const ModelFile> file,
                                                            ModelSpec spec,
                                                            const LoadOptions& options) const {
  WEFT_RETURN_IF_ERROR(CheckNoHiddenInput(*this, spec));
  WEFT_RETURN_IF_ERROR(CheckNoRowInput(*this, spec));
  WEFT_RETURN_IF_ERROR(CheckNoAdapters(*this, options));
  if (spec.layers.size() != n_layers_) {
    return InvalidArgument("the backend ", name_, " is for another model");
  }
  WEFT_ASSIGN_OR_RETURN(SplitSpec split, Split(spec, static_cast<int>(n_front_)));
  auto weights = std::make_shared<SplitWeights>(std::move(spec), std::move(split));
  // No packed copies, because a copy holds a whole file.
  LoadOptions part = {.device = options.device, .n_threads = options.n_threads};
  const double back_share =
      static_cast<double>(n_layers_ - n_front_) / static_cast<double>(n_layers_);
  if (options.progress) part.progress = [&](double done) { options.progress(done * back_share); };
  auto back = back_.Load(file, weights->split().back.spec, part);
  WEFT_RETURN_IF_ERROR(
      Annotate(back.status(), n_layers_ - n_front_, " layers on ", back_.name(), ": "));
  weights->back = *std::move(back);
  part.device = 0;
  if (options.progress) {
    part.progress = [&](double done) { options.progress(back_share + done * (1 - back_share)); };
  }
  WEFT_ASSIGN_OR_RETURN(weights->front,
                        front_.Load(std::move(file), weights->split().front.spec, part));
  return std::shared_ptr<const Weights>(std::move(weights));
}

StatusOr<std::unique_ptr<StateStore>> SplitBackend::NewState(const Weights& weights,
                                                             const StateOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(const StateOptions chosen, CheckedOptions(*this, options));
  const auto& both = static_cast<const SplitWeights&>(weights);
  WEFT_ASSIGN_OR_RETURN(auto front, front_.NewState(*both.front, chosen));
  WEFT_ASSIGN_OR_RETURN(auto back, back_.NewState(*both.back, chosen));
  return std::make_unique<SplitState>(both.split(), std::move(front), std::move(back));
}

StatusOr<std::unique_ptr<Executor>> SplitBackend::NewExecutor(
    std::shared_ptr<const Weights> weights, StateStore* state,
    const ExecutorOptions& options) const {
  WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
  const auto& both = static_cast<const SplitWeights&>(*weights);
  auto* const states = static_cast<SplitState*>(state);
  ExecutorOptions part = options;
  if (const auto* other = dynamic_cast<const SplitExecutor*>(options.shares_threads_with)) {
    part.shares_threads_with = other->front();
  }
  WEFT_ASSIGN_OR_RETURN(auto front, front_.NewExecutor(both.front, states->front(), part));
  part.shares_threads_with = front.get();
  WEFT_ASSIGN_OR_RETURN(auto back, back_.NewExecutor(both.back, states->back(), part));
  const StepLimits limits{options.max_step_tokens, capabilities_.max_best, capabilities_.rows,
                          /*prediction_heads=*/false, capabilities_.changes_rows};
  return std::make_unique<SplitExecutor>(std::move(weights), both.split(), states, std::move(front),
                                         std::move(back), limits);
}

}  // namespace

}  // namespace split

StatusOr<std::unique_ptr<const Backend>> NewSplitBackend(const Backend* front, const Backend* back,
                                                         const ModelSpec& spec, int n_front) {
  WEFT_ASSIGN_OR_RETURN(const split::SplitSpec parts, split::Split(spec, n_front));
  if (!back->capabilities().rows) {
    return Unimplemented("the ", back->name(), " backend cannot go on from another's layers");
  }
  auto both = std::make_unique<split::SplitBackend>(front, back, parts, spec.layers.size());
  const BackendCapabilities& has = both->capabilities();
  if (has.kv_types.empty() || has.page_tokens.empty()) {
    return Unimplemented("the backends ", front->name(), " and ", back->name(),
                         " have no form of keys and values that both know");
  }
  return std::unique_ptr<const Backend>(std::move(both));
}

}  // namespace weft
