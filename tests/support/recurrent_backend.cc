#include "tests/support/recurrent_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/sampling/random.h"
#include "tests/support/wrapped_run.h"

namespace weft::testing {
namespace {

class RecurrentWeights : public Weights {
 public:
  explicit RecurrentWeights(std::shared_ptr<const Weights> inner)
      : inner_(std::move(inner)), spec_(inner_->spec()) {
    spec_.slots.push_back({SlotKind::kConvolution, RecurrentBackend::kSlotBytes / 4});
  }
  const ModelSpec& spec() const override { return spec_; }
  int64_t memory_bytes() const override { return inner_->memory_bytes(); }
  const std::shared_ptr<const Weights>& inner() const { return inner_; }

 private:
  const std::shared_ptr<const Weights> inner_;
  ModelSpec spec_;
};

class RecurrentExecutor : public Executor {
 public:
  RecurrentExecutor(std::unique_ptr<Executor> inner, int64_t n_vocab)
      : inner_(std::move(inner)),
        layout_(inner_->layout()),
        n_vocab_(static_cast<size_t>(n_vocab)) {
    layout_.slot_bytes = RecurrentBackend::kSlotBytes;
  }

  const StateLayout& layout() const override { return layout_; }

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step, std::span<float> logits) override {
    std::vector<SlotId> seen;
    for (const StepSequence& sequence : step.sequences) {
      if (!Exists(sequence.slot)) return Internal("a step on slot ", sequence.slot);
      const Slot& slot = slots_[static_cast<size_t>(sequence.slot)];
      if (slot.n_tokens != sequence.position) {
        return Internal("slot ", sequence.slot, " is after ", slot.n_tokens, " tokens, not ",
                        sequence.position);
      }
      if (std::find(seen.begin(), seen.end(), sequence.slot) != seen.end()) {
        return Internal("two sequences of a step on slot ", sequence.slot);
      }
      seen.push_back(sequence.slot);
    }
    WEFT_ASSIGN_OR_RETURN(auto run, inner_->Begin(step, logits));
    // Neither state holds from here on, until the step has ended.
    std::vector<Slot> before;
    for (const SlotId id : seen) {
      Slot& slot = slots_[static_cast<size_t>(id)];
      before.push_back(std::exchange(slot, Slot{.n_tokens = -1}));
    }
    return std::make_unique<WrappedRun>(
        std::move(run), [this, step, logits, before = std::move(before)](const Status& status) {
          Finish(step, before, status, logits);
          return status;
        });
  }
  int64_t max_beside_tokens() const override { return inner_->max_beside_tokens(); }
  int pause_points() const override { return inner_->pause_points(); }
  Status GrowPages(int group, int64_t n_pages) override {
    return inner_->GrowPages(group, n_pages);
  }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    inner_->DiscardPages(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    return inner_->CopyPage(group, from, to, n_tokens);
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) override {
    return inner_->ReadPage(group, page, n_tokens, out);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    return inner_->WritePage(group, page, in);
  }

  Status GrowSlots(int64_t n_slots) override {
    slots_.resize(std::max(slots_.size(), static_cast<size_t>(n_slots)));
    return OkStatus();
  }
  Status ClearSlot(SlotId slot) override {
    if (!Exists(slot)) return Internal("slot ", slot, " is cleared");
    slots_[static_cast<size_t>(slot)] = {.n_tokens = 0};
    return OkStatus();
  }
  Status CopySlot(SlotId from, SlotId to) override {
    if (!Exists(from) || !Exists(to)) return Internal("slot ", from, " is copied to ", to);
    slots_[static_cast<size_t>(to)] = slots_[static_cast<size_t>(from)];
    return OkStatus();
  }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) override {
    if (!Exists(slot)) return Internal("slot ", slot, " is read");
    std::memset(out.data(), 0, out.size());
    std::memcpy(out.data(), &slots_[static_cast<size_t>(slot)], sizeof(Slot));
    return OkStatus();
  }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    if (!Exists(slot)) return Internal("slot ", slot, " is written");
    std::memcpy(&slots_[static_cast<size_t>(slot)], in.data(), sizeof(Slot));
    return OkStatus();
  }

  int64_t state_bytes() const override {
    return inner_->state_bytes() + static_cast<int64_t>(slots_.size()) * layout_.slot_bytes;
  }
  int64_t scratch_bytes() const override { return inner_->scratch_bytes(); }

 private:
  struct Slot {
    int64_t n_tokens = -1;  // -1: undefined
    uint64_t history = 0;
  };

  bool Exists(SlotId slot) const { return slot >= 0 && static_cast<size_t>(slot) < slots_.size(); }

  // The slots of a step that has ended, from what they were before.
  void Finish(const Step& step, const std::vector<Slot>& before, const Status& status,
              std::span<float> logits) {
    if (!status.ok()) return;
    for (size_t s = 0; s < before.size(); ++s) {
      const StepSequence& sequence = step.sequences[s];
      const int64_t n_rows = static_cast<int64_t>(sequence.tokens.size());
      Slot slot = before[s];
      for (int64_t i = 0; i < n_rows; ++i) {
        const TokenId token = sequence.tokens[static_cast<size_t>(i)];
        slot.history = MixBits(slot.history + static_cast<uint64_t>(token) + 1);
        if (i < n_rows - sequence.n_logits) continue;
        Disturb(slot.history, logits.first(n_vocab_));
        logits = logits.subspan(n_vocab_);
      }
      slot.n_tokens += n_rows;
      slots_[static_cast<size_t>(sequence.slot)] = slot;
    }
  }

  // Moves some of the logits, each history others and by other amounts.
  static void Disturb(uint64_t history, std::span<float> logits) {
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t bits = RandomBits(history, i);
      logits[bits % logits.size()] += static_cast<float>(bits >> 60) * 0.25f;
    }
  }

  const std::unique_ptr<Executor> inner_;
  StateLayout layout_;
  const size_t n_vocab_;
  std::vector<Slot> slots_;
};

}  // namespace

StatusOr<std::shared_ptr<const Weights>> RecurrentBackend::Load(
    std::shared_ptr<const ModelFile> file, ModelSpec spec, const LoadOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(auto inner, inner_->Load(std::move(file), std::move(spec), options));
  return std::make_shared<const RecurrentWeights>(std::move(inner));
}

StatusOr<std::unique_ptr<Executor>> RecurrentBackend::NewExecutor(
    std::shared_ptr<const Weights> weights, const ExecutorOptions& options) const {
  const auto& inner = static_cast<const RecurrentWeights&>(*weights).inner();
  WEFT_ASSIGN_OR_RETURN(auto executor, inner_->NewExecutor(inner, options));
  const int64_t n_vocab = weights->spec().n_vocab;
  return std::unique_ptr<Executor>(
      std::make_unique<RecurrentExecutor>(std::move(executor), n_vocab));
}

}  // namespace weft::testing
