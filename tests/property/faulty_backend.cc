#include "tests/property/faulty_backend.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/wrapped_run.h"

namespace weft::testing {
namespace {

class FaultyExecutor : public Executor {
 public:
  FaultyExecutor(Fault fault, std::unique_ptr<Executor> real, int64_t n_vocab)
      : fault_(fault), real_(std::move(real)), n_vocab_(static_cast<size_t>(n_vocab)) {}

  const StateLayout& layout() const override { return real_->layout(); }

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step, std::span<float> logits) override {
    auto copy = std::make_shared<Disturbed>();
    copy->sequences.assign(step.sequences.begin(), step.sequences.end());
    for (StepSequence& sequence : copy->sequences) {
      for (auto& table : sequence.page_tables) {
        copy->tables.emplace_back(table.begin(), table.end());
      }
    }
    Disturb(copy.get());
    DisturbSlots(&copy->sequences);
    size_t next = 0;
    for (StepSequence& sequence : copy->sequences) {
      for (auto& table : sequence.page_tables) table = copy->tables[next++];
    }
    WEFT_ASSIGN_OR_RETURN(auto run, real_->Begin(Step{.sequences = copy->sequences}, logits));
    return std::make_unique<WrappedRun>(std::move(run),
                                        [this, copy, logits](const Status& status) -> Status {
                                          WEFT_RETURN_IF_ERROR(status);
                                          if (fault_ == Fault::kSwappedLogits)
                                            SwapLogits(copy->sequences, logits);
                                          return MakeCheckpointsLate(copy->sequences);
                                        });
  }
  int64_t max_beside_tokens() const override { return real_->max_beside_tokens(); }
  int pause_points() const override { return real_->pause_points(); }
  Status GrowPages(int group, int64_t n_pages) override { return real_->GrowPages(group, n_pages); }
  void DiscardPages(int group, std::span<const PageId> pages) override {
    for (const PageId page : pages) aliases_.erase({group, page});
    real_->DiscardPages(group, pages);
  }
  Status CopyPage(int group, PageId from, PageId to, int n_tokens) override {
    if (fault_ == Fault::kCopiesNothing) return OkStatus();
    if (fault_ == Fault::kSharedUncopied) {
      aliases_[{group, to}] = from;
      return OkStatus();
    }
    return real_->CopyPage(group, from, to, n_tokens);
  }
  Status ReadPage(int group, PageId page, int n_tokens, std::span<std::byte> out) override {
    return real_->ReadPage(group, page, n_tokens, out);
  }
  Status WritePage(int group, PageId page, std::span<const std::byte> in) override {
    if (fault_ == Fault::kStalePage && ++pages_written_ % 2 == 0) return OkStatus();
    return real_->WritePage(group, page, in);
  }
  Status GrowSlots(int64_t n_slots) override { return real_->GrowSlots(n_slots); }
  Status ClearSlot(SlotId slot) override {
    slot_aliases_.erase(slot);
    return real_->ClearSlot(slot);
  }
  Status CopySlot(SlotId from, SlotId to) override {
    if (fault_ == Fault::kSlotNotCopied) return OkStatus();
    if (fault_ == Fault::kSlotShared) {
      slot_aliases_[to] = from;
      return OkStatus();
    }
    if (fault_ == Fault::kLateCheckpoint) copied_from_[to] = from;
    return real_->CopySlot(from, to);
  }
  Status ReadSlot(SlotId slot, std::span<std::byte> out) override {
    return real_->ReadSlot(slot, out);
  }
  Status WriteSlot(SlotId slot, std::span<const std::byte> in) override {
    if (fault_ == Fault::kStaleSlot && ++slots_written_ % 2 == 0) return OkStatus();
    return real_->WriteSlot(slot, in);
  }
  int64_t state_bytes() const override { return real_->state_bytes(); }
  int64_t scratch_bytes() const override { return real_->scratch_bytes(); }

 private:
  // A step as the real executor is given it.
  struct Disturbed {
    std::vector<StepSequence> sequences;
    std::vector<std::vector<PageId>> tables;  // sequence by sequence, by group

    std::vector<PageId>& Table(size_t sequence, size_t group) {
      return tables[sequence * sequences[0].page_tables.size() + group];
    }
  };

  // Whether the entry is only read in this step, and there to be read.
  bool OnlyRead(const StepSequence& sequence, const std::vector<PageId>& table,
                size_t entry) const {
    const int64_t end = static_cast<int64_t>(entry + 1) * layout().page_tokens;
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
          for (PageId& page : table) {
            const auto alias = aliases_.find({static_cast<int>(g), page});
            if (alias != aliases_.end()) page = alias->second;
          }
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
      const bool inside_page = sequence.position % layout().page_tokens != 0;
      if (fault_ == Fault::kPositionOffByOne && sequences.size() > 1 &&
          sequence.tokens.size() == 1 && inside_page) {
        --sequence.position;
      }
    }
  }

  void DisturbSlots(std::vector<StepSequence>* sequences) const {
    for (StepSequence& sequence : *sequences) {
      const auto alias = slot_aliases_.find(sequence.slot);
      // Twice in a step would be refused.
      const bool taken =
          std::any_of(sequences->begin(), sequences->end(), [&](const StepSequence& other) {
            return alias != slot_aliases_.end() && other.slot == alias->second;
          });
      if (alias != slot_aliases_.end() && !taken) sequence.slot = alias->second;
    }
    if (fault_ == Fault::kSwappedSlots && sequences->size() > 1) {
      std::swap((*sequences)[0].slot, (*sequences)[1].slot);
    }
  }

  Status MakeCheckpointsLate(const std::vector<StepSequence>& sequences) {
    for (const StepSequence& sequence : sequences) {
      const auto copied = copied_from_.find(sequence.slot);
      if (copied == copied_from_.end()) continue;
      const SlotId from = copied->second;
      copied_from_.erase(copied);
      if (sequence.tokens.size() != 1) continue;
      WEFT_RETURN_IF_ERROR(real_->CopySlot(sequence.slot, from));
    }
    return OkStatus();
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
  const std::unique_ptr<Executor> real_;
  const size_t n_vocab_;
  std::map<std::pair<int, PageId>, PageId> aliases_;
  int64_t pages_written_ = 0;
  std::map<SlotId, SlotId> slot_aliases_;
  std::map<SlotId, SlotId> copied_from_;  // since then not advanced
  int64_t slots_written_ = 0;
};

class FaultyBackend : public Backend {
 public:
  FaultyBackend(Fault fault, const Backend* real) : fault_(fault), real_(real) {}

  std::string_view name() const override { return real_->name(); }
  const BackendCapabilities& capabilities() const override { return real_->capabilities(); }
  StatusOr<std::shared_ptr<const Weights>> Load(std::shared_ptr<const ModelFile> file,
                                                ModelSpec spec,
                                                const LoadOptions& options) const override {
    return real_->Load(std::move(file), std::move(spec), options);
  }
  StatusOr<std::unique_ptr<Executor>> NewExecutor(std::shared_ptr<const Weights> weights,
                                                  const ExecutorOptions& options) const override {
    const int64_t n_vocab = weights->spec().n_vocab;
    WEFT_ASSIGN_OR_RETURN(auto executor, real_->NewExecutor(std::move(weights), options));
    return std::unique_ptr<Executor>(
        std::make_unique<FaultyExecutor>(fault_, std::move(executor), n_vocab));
  }

 private:
  const Fault fault_;
  const Backend* const real_;
};

}  // namespace

std::unique_ptr<Backend> NewFaultyBackend(Fault fault, const Backend* real) {
  return std::make_unique<FaultyBackend>(fault, real != nullptr ? real : *FindBackend("cpu"));
}

}  // namespace weft::testing
