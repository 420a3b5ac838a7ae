#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <new>
#include <utility>

#include "backend/reference/blocks.h"
#include "backend/reference/kv_store.h"
#include "backend/reference/tensors.h"
#include "backend/slot_memory.h"
#include "backend/spec_tensors.h"

namespace weft {

namespace {

class ReferenceWeights : public Weights {
 public:
  ReferenceWeights(std::shared_ptr<const ModelFile> file, ModelSpec spec)
      : file_(std::move(file)), spec_(std::move(spec)) {}

  const ModelSpec& spec() const override { return spec_; }
  int64_t memory_bytes() const override { return 0; }
  const ModelFile& file() const { return *file_; }

 private:
  const std::shared_ptr<const ModelFile> file_;
  const ModelSpec spec_;
};

// A page size outside the list is refused, not rounded.
const BackendCapabilities& Capabilities() {
  static const BackendCapabilities capabilities{
      .kv_types = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0},
      .page_tokens = {16, 1, 2, 4, 8, 32, 64, 128, 256},
      .slot_kinds = {SlotKind::kConvolution, SlotKind::kDeltaNet, SlotKind::kStateSpace},
      .max_step_tokens = 8192,
      .same_bits = true,
  };
  return capabilities;
}

class ReferenceExecutor : public Executor {
 public:
  ReferenceExecutor(std::shared_ptr<const ReferenceWeights> weights, const ExecutorOptions& options)
      : weights_(std::move(weights)),
        max_step_tokens_(options.max_step_tokens),
        kv_(weights_->spec(), options.kv_type, options.page_tokens),
        slots_(FloatsOfSlots(weights_->spec())) {
    layout_.page_tokens = options.page_tokens;
    layout_.page_bytes = kv_.page_bytes();
    layout_.slot_bytes = slots_.slot_bytes();
  }

  const StateLayout& layout() const override { return layout_; }

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step, std::span<float> logits) override {
    WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), layout_, kv_.n_pages(), slots_.n_slots(),
                                      max_step_tokens_, step, logits.size()));
    return RunInOneGo([this, step, logits]() -> Status {
      try {
        Compute(step, logits);
      } catch (const std::bad_alloc&) {
        return ResourceExhausted("out of memory during a step; use smaller steps");
      }
      return OkStatus();
    });
  }

  int64_t max_beside_tokens() const override { return max_step_tokens_; }

  Status GrowPages(int group, int64_t n_pages) override { return kv_.Grow(group, n_pages); }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    kv_.Discard(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    return kv_.Copy(group, from, to, n_tokens);
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) override {
    return kv_.Read(group, page, n_tokens, out);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    return kv_.Write(group, page, in);
  }

  Status GrowSlots(int64_t n_slots) override { return slots_.Grow(n_slots); }
  Status ClearSlot(SlotId slot) override { return slots_.Clear(slot); }
  Status CopySlot(SlotId from, SlotId to) override { return slots_.Copy(from, to); }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) override { return slots_.Read(slot, out); }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    return slots_.Write(slot, in);
  }

  int64_t state_bytes() const override { return kv_.held_bytes() + slots_.held_bytes(); }
  int64_t scratch_bytes() const override { return 0; }  // none is held between steps

 private:
  static std::vector<int64_t> FloatsOfSlots(const ModelSpec& spec) {
    std::vector<int64_t> n_floats;
    for (const SlotState& slot : spec.slots) n_floats.push_back(slot.n_floats);
    return n_floats;
  }

  void Compute(const Step& step, std::span<float> logits) {
    const ModelSpec& spec = weights_->spec();
    const reference::Tensors tensors(weights_->file());
    reference::StepContext context{
        .spec = spec, .tensors = tensors, .step = step, .kv = &kv_, .slots = &slots_};
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      int64_t position = step.sequences[s].position;
      for (const TokenId token : step.sequences[s].tokens) {
        context.rows.push_back({static_cast<int>(s), position++, token});
      }
    }
    reference::Rows stream = Embed(context);
    if (spec.per_layer_input) context.per_layer_inputs = ComputePerLayerInputs(context, stream);
    for (const Layer& layer : spec.layers) {
      for (const Block& block : layer.blocks) RunBlock(context, block, &stream);
    }
    reference::Rows result = ComputeLogits(context, stream);
    std::ranges::copy(result.values(), logits.begin());
  }

  const std::shared_ptr<const ReferenceWeights> weights_;
  const int64_t max_step_tokens_;
  StateLayout layout_;
  KvStore kv_;
  SlotMemory slots_;
};

class ReferenceBackendImpl : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  const BackendCapabilities& capabilities() const override { return Capabilities(); }

  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    WEFT_RETURN_IF_ERROR(CheckWeightTypes(*file, spec));
    if (options.progress) options.progress(1);
    return std::make_shared<const ReferenceWeights>(std::move(file), std::move(spec));
  }

  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  const ExecutorOptions& options) const override {
    ExecutorOptions chosen = options;
    if (chosen.page_tokens == 0) chosen.page_tokens = Capabilities().page_tokens.front();
    if (std::ranges::count(Capabilities().kv_types, chosen.kv_type) == 0) {
      return InvalidArgument("the reference backend stores no keys and values as ",
                             NameOf(chosen.kv_type));
    }
    if (std::ranges::count(Capabilities().page_tokens, chosen.page_tokens) == 0) {
      return InvalidArgument("the reference backend has no pages of ", chosen.page_tokens,
                             " tokens; it has ", StrJoin(Capabilities().page_tokens, ", "));
    }
    if (chosen.max_step_tokens < 1 || chosen.max_step_tokens > Capabilities().max_step_tokens) {
      return InvalidArgument("steps of ", chosen.max_step_tokens,
                             " tokens: the reference backend takes 1 to ",
                             Capabilities().max_step_tokens);
    }
    WEFT_RETURN_IF_ERROR(KvStore::Check(weights->spec(), chosen.kv_type));
    return std::make_unique<ReferenceExecutor>(
        std::static_pointer_cast<const ReferenceWeights>(std::move(weights)), chosen);
  }
};

}  // namespace

const Backend* ReferenceBackend() {
  static const ReferenceBackendImpl backend;
  return &backend;
}

}  // namespace weft
