#include "compute/reference/reference_backend.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "compute/checks.h"
#include "compute/reference/blocks.h"
#include "compute/reference/reference_state.h"
#include "compute/reference/tensors.h"
#include "compute/spec_tensors.h"

namespace weft {

namespace {

class ReferenceWeights : public Weights {
 public:
  ReferenceWeights(std::shared_ptr<const ModelFile> file, ModelSpec spec,
                   std::vector<Adapter> adapters)
      : file_(std::move(file)), spec_(std::move(spec)), adapters_(std::move(adapters)) {}

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return 0; }
  int64_t memory_bytes() const override { return 0; }
  const ModelFile& file() const { return *file_; }
  std::span<const Adapter> adapters() const { return adapters_; }

 private:
  const std::shared_ptr<const ModelFile> file_;
  const ModelSpec spec_;
  const std::vector<Adapter> adapters_;
};

// A page size outside the list is refused, not rounded.
const BackendCapabilities& ReferenceCapabilities() {
  static const BackendCapabilities capabilities{
      .kv_types = WithLevelKvTypes({DType::kF32, DType::kF16, DType::kBF16}),
      .page_tokens = {16, 1, 2, 4, 8, 32, 64, 128, 256},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 16384,
      .max_best = 512,
      .rows = true,
      .row_input = true,
      .mutual = true,
      .prediction_heads = true,
      .same_bits = true,
      .adapters = true,
  };
  return capabilities;
}

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(std::shared_ptr<const ReferenceWeights> weights, ReferenceState* state,
                    const StepLimits& limits)
      : weights_(std::move(weights)), state_(state), limits_(limits) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), *state_, limits_, step));
    return RunInOneGo([this, step]() -> Status {
      try {
        Compute(step);
      } catch (const std::bad_alloc&) {
        return ResourceExhausted("out of memory during a step; use smaller steps");
      }
      return OkStatus();
    });
  }

  int64_t max_beside_tokens() const override { return limits_.tokens; }
  int64_t scratch_bytes() const override { return 0; }  // none is held between steps

 private:
  void Compute(const Step& step) {
    const ModelSpec& spec = weights_->spec();
    reference::RowAdapters adapters{.adapters = weights_->adapters()};
    for (const StepSequence& sequence : step.sequences) {
      adapters.rows.insert(adapters.rows.end(), sequence.tokens.size(), sequence.adapters);
    }
    const reference::Tensors tensors(weights_->file(), std::move(adapters));
    reference::StepContext context{.spec = spec, .tensors = tensors, .step = step, .state = state_};
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      int64_t position = step.sequences[s].position;
      int64_t type = 0;
      auto vector = step.sequences[s].rows.begin();
      std::span<const float> hidden = step.sequences[s].hidden;
      const AxisPositions* axes = step.sequences[s].axes.data();
      for (const TokenId token : step.sequences[s].tokens) {
        context.rows.push_back({static_cast<int>(s), position, token, type});
        context.rows.back().last_seen =
            LastSeen(step.sequences[s], position++ - step.sequences[s].position);
        if (axes != nullptr) context.rows.back().axes = axes++;
        if (spec.hidden_input) {
          const auto width = static_cast<size_t>(HiddenWidth(spec));
          context.rows.back().hidden = hidden.first(width);
          hidden = hidden.subspan(width);
        }
        if (IsRow(token)) context.rows.back().vector = *vector++;
        type = spec.token_types.TypeAfter(token, type);
      }
    }
    if (spec.n_side_streams > 0) {
      context.sides = std::make_shared<reference::Rows>(std::ssize(context.rows),
                                                        spec.n_side_streams * spec.d_model);
    }
    reference::Rows stream = Embed(context);
    if (spec.per_layer_input) context.per_layer_inputs = ComputePerLayerInputs(context, stream);
    for (const Layer& layer : spec.layers) {
      for (const Block& block : layer.blocks) RunBlock(&context, block, &stream);
    }
    reference::Rows logits = ComputeOutputs(context, stream);
    PutLogits(step, static_cast<size_t>(spec.n_vocab), logits.values());
  }

  const std::shared_ptr<const ReferenceWeights> weights_;
  ReferenceState* const state_;
  const StepLimits limits_;
};

class ReferenceBackendImpl : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  const BackendCapabilities& capabilities() const override { return ReferenceCapabilities(); }

  Status Available() const override { return OkStatus(); }
  int device_count() const override { return 1; }
  StatusOr<MemoryInfo> MemoryOf(int device) const override { return HostMemory(*this, device); }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckDevice(*this, options.device));
    WEFT_RETURN_IF_ERROR(CheckWeightTypes(*file, spec));
    if (options.progress) options.progress(1);
    for (const Adapter& adapter : options.adapters) {
      WEFT_RETURN_IF_ERROR(CheckAdapterTypes(adapter));
    }
    return std::make_shared<const ReferenceWeights>(std::move(file), std::move(spec),
                                                    options.adapters);
  }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(const StateOptions chosen, CheckedOptions(*this, options));
    WEFT_RETURN_IF_ERROR(ReferenceState::Check(weights.spec(), chosen.kv_type));
    return std::make_unique<ReferenceState>(weights.spec(), chosen.kv_type, chosen.page_tokens);
  }

  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckOptions(*this, options));
    auto own = std::static_pointer_cast<const ReferenceWeights>(std::move(weights));
    const StepLimits limits{options.max_step_tokens,
                            ReferenceCapabilities().max_best,
                            ReferenceCapabilities().rows,
                            ReferenceCapabilities().prediction_heads,
                            ReferenceCapabilities().changes_rows,
                            ReferenceCapabilities().row_input,
                            ReferenceCapabilities().mutual,
                            std::ssize(own->adapters())};
    return std::make_unique<ReferenceExecutor>(std::move(own), static_cast<ReferenceState*>(state),
                                               limits);
  }
};

}  // namespace

const Backend* ReferenceBackend() {
  static const ReferenceBackendImpl backend;
  return &backend;
}

}  // namespace weft
