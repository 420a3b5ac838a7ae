#include "tests/support/recurrent_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/sampling/random.h"

namespace weft::testing {
namespace {

class RecurrentWeights : public Weights {
 public:
  explicit RecurrentWeights(std::shared_ptr<const Weights> inner)
      : inner_(std::move(inner)), spec_(inner_->spec()) {
    spec_.slots.push_back({SlotKind::kConvolution, RecurrentBackend::kSlotBytes / 4});
  }
  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return inner_->device(); }
  int64_t memory_bytes() const override { return inner_->memory_bytes(); }
  const std::shared_ptr<const Weights>& inner() const { return inner_; }

 private:
  const std::shared_ptr<const Weights> inner_;
  ModelSpec spec_;
};

struct Slot {
  int64_t n_tokens = -1;  // -1: undefined
  uint64_t history = 0;
};

class RecurrentState : public WrappedState {
 public:
  explicit RecurrentState(std::unique_ptr<StateStore> inner) : WrappedState(std::move(inner)) {
    layout_.slot_bytes = RecurrentBackend::kSlotBytes;
  }
  bool Exists(SlotId slot) const { return slot >= 0 && static_cast<size_t>(slot) < slots_.size(); }
  // REQUIRES: the slot exists.
  Slot& At(SlotId slot) { return slots_[static_cast<size_t>(slot)]; }

  int64_t n_slots() const override { return static_cast<int64_t>(slots_.size()); }
  Status GrowSlots(int64_t n_slots) override {
    slots_.resize(std::max(slots_.size(), static_cast<size_t>(n_slots)));
    return OkStatus();
  }
  Status ClearSlot(SlotId slot) override {
    if (!Exists(slot)) return Internal("slot ", slot, " is cleared");
    At(slot) = {.n_tokens = 0};
    return OkStatus();
  }
  Status CopySlot(SlotId from, SlotId to) override {
    if (!Exists(from) || !Exists(to)) return Internal("slot ", from, " is copied to ", to);
    At(to) = At(from);
    return OkStatus();
  }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) const override {
    if (!Exists(slot)) return Internal("slot ", slot, " is read");
    std::memset(out.data(), 0, out.size());
    std::memcpy(out.data(), &slots_[static_cast<size_t>(slot)], sizeof(Slot));
    return OkStatus();
  }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    if (!Exists(slot)) return Internal("slot ", slot, " is written");
    std::memcpy(&At(slot), in.data(), sizeof(Slot));
    return OkStatus();
  }
  int64_t held_bytes() const override {
    return WrappedState::held_bytes() + n_slots() * layout_.slot_bytes;
  }

 private:
  std::vector<Slot> slots_;
};

class RecurrentExecutor : public WrappedExecutor {
 public:
  RecurrentExecutor(std::unique_ptr<Executor> inner, RecurrentState* state, int64_t n_vocab)
      : WrappedExecutor(std::move(inner)), state_(*state), n_vocab_(static_cast<size_t>(n_vocab)) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    std::vector<SlotId> seen;
    for (const StepSequence& sequence : step.sequences) {
      if (!state_.Exists(sequence.slot)) return Internal("a step on slot ", sequence.slot);
      const Slot& slot = state_.At(sequence.slot);
      if (slot.n_tokens != sequence.position) {
        return Internal("slot ", sequence.slot, " is after ", slot.n_tokens, " tokens, not ",
                        sequence.position);
      }
      if (std::find(seen.begin(), seen.end(), sequence.slot) != seen.end()) {
        return Internal("two sequences of a step on slot ", sequence.slot);
      }
      seen.push_back(sequence.slot);
    }
    WEFT_ASSIGN_OR_RETURN(auto run, WrappedExecutor::Begin(step));
    // Until the step has ended, neither the old nor the new state is valid.
    std::vector<Slot> before;
    for (const SlotId id : seen) {
      before.push_back(std::exchange(state_.At(id), Slot{.n_tokens = -1}));
    }
    return std::make_unique<WrappedRun>(
        std::move(run), [this, step, before = std::move(before)](const Status& status) {
          Finish(step, before, status);
          return status;
        });
  }

 private:
  // Sets the slots after a step has ended, from their state before it.
  void Finish(const Step& step, const std::vector<Slot>& before, const Status& status) {
    if (!status.ok()) return;
    std::span<float> logits = step.logits;
    for (size_t s = 0; s < before.size(); ++s) {
      const StepSequence& sequence = step.sequences[s];
      const int64_t n_rows = static_cast<int64_t>(sequence.tokens.size());
      Slot slot = before[s];
      auto row = sequence.rows.begin();
      for (int64_t i = 0; i < n_rows; ++i) {
        const TokenId token = sequence.tokens[static_cast<size_t>(i)];
        const uint64_t mark = IsRow(token) ? MarkOf(*row++) : static_cast<uint64_t>(token);
        slot.history = MixBits(slot.history + mark + 1);
        if (i < n_rows - sequence.n_logits) continue;
        Disturb(slot.history, logits.first(n_vocab_));
        logits = logits.subspan(n_vocab_);
      }
      slot.n_tokens += n_rows;
      state_.At(sequence.slot) = slot;
    }
  }

  // The mark of an input embedding.
  static uint64_t MarkOf(std::span<const float> row) {
    uint64_t mark = 0;
    for (const float value : row) mark = MixBits(mark + std::bit_cast<uint32_t>(value));
    return mark;
  }

  // Changes some of the logits, depending on the history.
  static void Disturb(uint64_t history, std::span<float> logits) {
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t bits = RandomBits(history, i);
      logits[bits % logits.size()] += static_cast<float>(bits >> 60) * 0.25f;
    }
  }

  RecurrentState& state_;
  const size_t n_vocab_;
};

}  // namespace

StatusOr<std::shared_ptr<const Weights>> RecurrentBackend::Load(
    std::shared_ptr<const ModelFile> file, ModelSpec spec, const LoadOptions& options) const {
  WEFT_ASSIGN_OR_RETURN(auto inner,
                        WrappedBackend::Load(std::move(file), std::move(spec), options));
  return std::make_shared<const RecurrentWeights>(std::move(inner));
}

StatusOr<std::unique_ptr<StateStore>> RecurrentBackend::NewState(
    const Weights& weights, const StateOptions& options) const {
  const auto& inner = static_cast<const RecurrentWeights&>(weights).inner();
  WEFT_ASSIGN_OR_RETURN(auto state, WrappedBackend::NewState(*inner, options));
  return std::make_unique<RecurrentState>(std::move(state));
}

StatusOr<std::unique_ptr<Executor>> RecurrentBackend::NewExecutor(
    std::shared_ptr<const Weights> weights, StateStore* state,
    const ExecutorOptions& options) const {
  const auto& inner = static_cast<const RecurrentWeights&>(*weights).inner();
  auto* const slots = static_cast<RecurrentState*>(state);
  WEFT_ASSIGN_OR_RETURN(auto executor, WrappedBackend::NewExecutor(inner, slots->inner(), options));
  return std::make_unique<RecurrentExecutor>(std::move(executor), slots, weights->spec().n_vocab);
}

}  // namespace weft::testing
