#include "tests/property/faulty_backend.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/wrapped_backend.h"

namespace weft::testing {
namespace {

class FaultyState : public WrappedState {
 public:
  FaultyState(Fault fault, std::unique_ptr<StateStore> real)
      : WrappedState(std::move(real)), fault_(fault) {}

  void DiscardPages(int group, std::span<const PageId> pages) override {
    for (const PageId page : pages) aliases_.erase({group, page});
    WrappedState::DiscardPages(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    if (fault_ == Fault::kCopiesNothing) return OkStatus();
    if (fault_ == Fault::kSharedUncopied) {
      aliases_[{group, to}] = from;
      return OkStatus();
    }
    return WrappedState::CopyPage(group, from, to, n_tokens);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    if (fault_ == Fault::kStalePage && ++pages_written_ % 2 == 0) return OkStatus();
    return WrappedState::WritePage(group, page, in);
  }
  Status ClearSlot(SlotId slot) override {
    slot_aliases_.erase(slot);
    return WrappedState::ClearSlot(slot);
  }
  Status CopySlot(SlotId from, SlotId to) override {
    if (fault_ == Fault::kSlotNotCopied) return OkStatus();
    if (fault_ == Fault::kSlotShared) {
      slot_aliases_[to] = from;
      return OkStatus();
    }
    if (fault_ == Fault::kLateCheckpoint || fault_ == Fault::kGuessesStay) copied_from_[to] = from;
    return WrappedState::CopySlot(from, to);
  }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    if (fault_ == Fault::kStaleSlot && ++slots_written_ % 2 == 0) return OkStatus();
    return WrappedState::WriteSlot(slot, in);
  }

  // The page or slot that is used instead.
  PageId Actual(int group, PageId page) const {
    const auto alias = aliases_.find({group, page});
    return alias != aliases_.end() ? alias->second : page;
  }
  SlotId Actual(SlotId slot) const {
    const auto alias = slot_aliases_.find(slot);
    return alias != slot_aliases_.end() ? alias->second : slot;
  }
  // The slot that this one was copied from, if it has not advanced since; returned only once.
  SlotId TakeSource(SlotId slot) {
    const auto copied = copied_from_.find(slot);
    if (copied == copied_from_.end()) return kNoSlot;
    const SlotId from = copied->second;
    copied_from_.erase(copied);
    return from;
  }

 private:
  const Fault fault_;
  std::map<std::pair<int, PageId>, PageId> aliases_;
  int64_t pages_written_ = 0;
  std::map<SlotId, SlotId> slot_aliases_;
  std::map<SlotId, SlotId> copied_from_;  // slots that have not advanced since
  int64_t slots_written_ = 0;
};

class FaultyExecutor : public WrappedExecutor {
 public:
  FaultyExecutor(Fault fault, std::unique_ptr<Executor> real, FaultyState* state, int64_t n_vocab)
      : WrappedExecutor(std::move(real)),
        fault_(fault),
        state_(*state),
        n_vocab_(static_cast<size_t>(n_vocab)) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override {
    auto copy = std::make_shared<Disturbed>();
    copy->sequences.assign(step.sequences.begin(), step.sequences.end());
    for (StepSequence& sequence : copy->sequences) {
      for (auto& table : sequence.page_tables) {
        copy->tables.emplace_back(table.begin(), table.end());
      }
    }
    Disturb(copy.get());
    if (fault_ == Fault::kForeignRow) ExchangeRows(&copy->sequences);
    DisturbSlots(&copy->sequences);
    size_t next = 0;
    for (StepSequence& sequence : copy->sequences) {
      for (auto& table : sequence.page_tables) table = copy->tables[next++];
    }
    Step disturbed = step;
    disturbed.sequences = copy->sequences;
    WEFT_ASSIGN_OR_RETURN(auto run, WrappedExecutor::Begin(disturbed));
    return std::make_unique<WrappedRun>(
        std::move(run), [this, copy, logits = step.logits](const Status& status) -> Status {
          WEFT_RETURN_IF_ERROR(status);
          if (fault_ == Fault::kSwappedLogits) SwapLogits(copy->sequences, logits);
          if (fault_ == Fault::kLateGuess) RepeatLogits(copy->sequences, logits);
          return MakeCheckpointsLate(copy->sequences);
        });
  }

 private:
  // A step in the form passed to the real executor.
  struct Disturbed {
    std::vector<StepSequence> sequences;
    std::vector<std::vector<PageId>> tables;  // sequence by sequence, by group

    std::vector<PageId>& Table(size_t sequence, size_t group) {
      return tables[sequence * sequences[0].page_tables.size() + group];
    }
  };

  // Whether the entry is present, and only read in this step.
  bool OnlyRead(const StepSequence& sequence, const std::vector<PageId>& table,
                size_t entry) const {
    const int64_t end = static_cast<int64_t>(entry + 1) * state_.layout().page_tokens;
    return entry < table.size() && end <= sequence.position && table[entry] != kNoPage;
  }

  void Disturb(Disturbed* step) {
    std::vector<StepSequence>& sequences = step->sequences;
    const size_t n_groups = sequences[0].page_tables.size();
    for (size_t s = 0; s < sequences.size(); ++s) {
      StepSequence& sequence = sequences[s];
      for (size_t g = 0; g < n_groups; ++g) {
        std::vector<PageId>& table = step->Table(s, g);
        if (fault_ == Fault::kSharedUncopied) {
          for (PageId& page : table) page = state_.Actual(static_cast<int>(g), page);
        }
        const bool readable = OnlyRead(sequence, table, 0);
        if (fault_ == Fault::kShiftedTable && readable && OnlyRead(sequence, table, 1)) {
          table[0] = table[1];
        }
        const std::vector<PageId>& first = step->Table(0, g);
        if (fault_ == Fault::kForeignPage && s == 2 && readable &&
            OnlyRead(sequences[0], first, 0)) {
          table[0] = first[0];
        }
      }
      const bool inside_page = sequence.position % state_.layout().page_tokens != 0;
      if (fault_ == Fault::kPositionOffByOne && sequences.size() > 1 &&
          sequence.tokens.size() == 1 && inside_page) {
        --sequence.position;
      }
    }
  }

  static void ExchangeRows(std::vector<StepSequence>* sequences) {
    std::span<const float>* last = nullptr;
    for (StepSequence& sequence : *sequences) {
      if (sequence.rows.empty()) continue;
      if (last != nullptr) std::swap(*last, sequence.rows.front());
      last = &sequence.rows.back();
    }
  }

  void DisturbSlots(std::vector<StepSequence>* sequences) const {
    for (StepSequence& sequence : *sequences) {
      const SlotId actual = state_.Actual(sequence.slot);
      // The same slot twice in a step would be refused.
      const bool taken =
          std::any_of(sequences->begin(), sequences->end(),
                      [&](const StepSequence& other) { return other.slot == actual; });
      if (!taken) sequence.slot = actual;
    }
    if (fault_ == Fault::kSwappedSlots && sequences->size() > 1) {
      std::swap((*sequences)[0].slot, (*sequences)[1].slot);
    }
  }

  Status MakeCheckpointsLate(const std::vector<StepSequence>& sequences) {
    for (const StepSequence& sequence : sequences) {
      const SlotId from = state_.TakeSource(sequence.slot);
      if (from == kNoSlot) continue;
      const bool guesses = sequence.n_logits > 1;
      if (fault_ == Fault::kGuessesStay ? !guesses : sequence.tokens.size() != 1) continue;
      WEFT_RETURN_IF_ERROR(state_.inner()->CopySlot(sequence.slot, from));
    }
    return OkStatus();
  }

  void RepeatLogits(const std::vector<StepSequence>& sequences, std::span<float> logits) {
    for (const StepSequence& sequence : sequences) {
      const auto rows = logits.first(static_cast<size_t>(sequence.n_logits) * n_vocab_);
      logits = logits.subspan(rows.size());
      if (sequence.n_logits < 2) continue;
      std::copy_backward(rows.begin(), rows.end() - static_cast<ptrdiff_t>(n_vocab_), rows.end());
    }
  }

  void SwapLogits(const std::vector<StepSequence>& sequences, std::span<float> logits) {
    size_t row = 0;
    std::vector<size_t> last_rows;
    for (const StepSequence& sequence : sequences) {
      row += static_cast<size_t>(sequence.n_logits);
      if (sequence.n_logits > 0) last_rows.push_back(row - 1);
    }
    if (last_rows.size() < 2) return;
    std::swap_ranges(logits.begin() + static_cast<ptrdiff_t>(last_rows[0] * n_vocab_),
                     logits.begin() + static_cast<ptrdiff_t>((last_rows[0] + 1) * n_vocab_),
                     logits.begin() + static_cast<ptrdiff_t>(last_rows[1] * n_vocab_));
  }

  const Fault fault_;
  FaultyState& state_;
  const size_t n_vocab_;
};

class FaultyBackend : public WrappedBackend {
 public:
  FaultyBackend(Fault fault, const Backend* real) : WrappedBackend(real), fault_(fault) {}

  const BackendCapabilities& capabilities() const override {
    return fault_ == Fault::kSwappedLogits ? without_best_ : WrappedBackend::capabilities();
  }

  StatusOr<std::unique_ptr<StateStore>> NewState(const Weights& weights,
                                                 const StateOptions& options) const override {
    WEFT_ASSIGN_OR_RETURN(auto state, WrappedBackend::NewState(weights, options));
    return std::make_unique<FaultyState>(fault_, std::move(state));
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  StateStore* state,
                                                  const ExecutorOptions& options) const override {
    const int64_t n_vocab = weights->spec().n_vocab;
    auto* const faulty = static_cast<FaultyState*>(state);
    WEFT_ASSIGN_OR_RETURN(
        auto executor, WrappedBackend::NewExecutor(std::move(weights), faulty->inner(), options));
    return std::make_unique<FaultyExecutor>(fault_, std::move(executor), faulty, n_vocab);
  }

 private:
  const Fault fault_;
  const BackendCapabilities without_best_ = WithoutBest(WrappedBackend::capabilities());
};

}  // namespace

std::unique_ptr<Backend> NewFaultyBackend(Fault fault, const Backend* real) {
  return std::make_unique<FaultyBackend>(fault, real);
}

}  // namespace weft::testing
