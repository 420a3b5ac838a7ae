#include "backend/backend.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_backend.h"
#include "base/check.h"

namespace weft {

namespace {

// Every backend that is compiled in; the first is nobody's default.
std::span<const Backend* const> AllBackends() {
  static const std::array backends = {
      CpuBackend(),
      ReferenceBackend(),
  };
  return backends;
}

}  // namespace

StatusOr<const Backend*> FindBackend(std::string_view name) {
  for (const Backend* backend : AllBackends()) {
    if (backend->name() == name) return backend;
  }
  return NotFound("no backend \"", Printable(name), "\"; this program has ",
                  StrJoin(BackendNames(), ", "));
}

std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const Backend* backend : AllBackends()) names.push_back(backend->name());
  return names;
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

std::unique_ptr<StepRun> RunInOneGo(std::function<Status()> compute) {
  return std::make_unique<WholeRun>(std::move(compute));
}

Status Executor::Forward(const Step& step, std::span<float> logits) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StepRun> run, Begin(step, logits));
  WEFT_ASSIGN_OR_RETURN(const bool done, run->Advance([] { return false; }));
  WEFT_CHECK(done, "a run paused although nobody asked for it");
  return OkStatus();
}

namespace {

class StepValidator {
 public:
  StepValidator(const ModelSpec& spec, const StateLayout& layout, std::span<const int64_t> n_pages,
                int64_t n_slots, const Step& step)
      : spec_(spec), layout_(layout), n_pages_(n_pages), n_slots_(n_slots), step_(step) {}

  Status CheckSequences(int64_t max_step_tokens, size_t n_logit_values) const {
    if (step_.sequences.empty()) return InvalidArgument("a step needs at least one sequence");
    int64_t n_tokens = 0;
    int64_t n_logits = 0;
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      WEFT_RETURN_IF_ERROR(CheckSequence(s));
      n_tokens += static_cast<int64_t>(step_.sequences[s].tokens.size());
      n_logits += step_.sequences[s].n_logits;
    }
    if (n_tokens > max_step_tokens) {
      return InvalidArgument("a step of ", n_tokens, " tokens is larger than the executor's ",
                             max_step_tokens);
    }
    if (n_logit_values != static_cast<size_t>(n_logits * spec_.n_vocab)) {
      return InvalidArgument("the step asks for ", n_logits, " rows of ", spec_.n_vocab,
                             " logits, the buffer holds ", n_logit_values, " values");
    }
    return OkStatus();
  }

  // The pages of one group: all there, inside the pool, and those that are written
  // named once in the whole step.
  Status CheckGroup(size_t group) const {
    std::vector<bool> written(n_pages_[group], false);
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      const Range range = VisibleEntries(group, s);
      const auto& table = step_.sequences[s].page_tables[group];
      if (static_cast<int64_t>(table.size()) < range.end) {
        return PageError(group, s, "its page table has ", table.size(), " entries, needs ",
                         range.end);
      }
      for (int64_t i = range.begin; i < range.end; ++i) {
        if (table[i] < 0 || table[i] >= n_pages_[group]) {
          return PageError(group, s, "entry ", i, " is page ", table[i], " of a pool of ",
                           n_pages_[group]);
        }
        if (i < range.first_written) continue;
        if (written[table[i]]) {
          return PageError(group, s, "page ", table[i], " is written twice in one step");
        }
        written[table[i]] = true;
      }
    }
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      const Range range = VisibleEntries(group, s);
      const auto& table = step_.sequences[s].page_tables[group];
      for (int64_t i = range.begin; i < range.first_written; ++i) {
        if (written[table[i]]) {
          return PageError(group, s, "page ", table[i], " is read while it is written");
        }
      }
    }
    return OkStatus();
  }

  Status CheckSlots() const {
    if (spec_.slots.empty()) return OkStatus();
    std::vector<SlotId> slots;
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      const SlotId slot = step_.sequences[s].slot;
      if (slot < 0 || slot >= n_slots_) {
        return InvalidArgument("sequence ", s, " of the step: slot ", slot, " of a pool of ",
                               n_slots_);
      }
      slots.push_back(slot);
    }
    std::sort(slots.begin(), slots.end());
    const auto twice = std::adjacent_find(slots.begin(), slots.end());
    if (twice != slots.end()) {
      return InvalidArgument("two sequences of the step share slot ", *twice);
    }
    return OkStatus();
  }

 private:
  // Page table entries [begin, end) that the sequence can see; those from
  // `first_written` on are written.
  struct Range {
    int64_t begin, first_written, end;
  };

  Range VisibleEntries(size_t group, size_t s) const {
    const StepSequence& sequence = step_.sequences[s];
    const int64_t window = spec_.kv_groups[group].window;
    const int64_t first_seen =
        window > 0 ? std::max<int64_t>(0, sequence.position - (window - 1)) : 0;
    const int64_t last = sequence.position + static_cast<int64_t>(sequence.tokens.size()) - 1;
    return {first_seen / layout_.page_tokens, sequence.position / layout_.page_tokens,
            last / layout_.page_tokens + 1};
  }

  Status CheckSequence(size_t s) const {
    const StepSequence& sequence = step_.sequences[s];
    const int64_t n_tokens = static_cast<int64_t>(sequence.tokens.size());
    if (n_tokens == 0) return InvalidArgument("sequence ", s, " of the step has no tokens");
    if (sequence.position < 0 ||
        sequence.position > std::numeric_limits<int64_t>::max() - n_tokens) {
      return InvalidArgument("sequence ", s, " of the step: position ", sequence.position,
                             " is out of range");
    }
    if (sequence.n_logits < 0 || sequence.n_logits > n_tokens) {
      return InvalidArgument("sequence ", s, " of the step wants ", sequence.n_logits,
                             " logits of ", n_tokens, " tokens");
    }
    for (const TokenId token : sequence.tokens) {
      if (token < 0 || token >= spec_.n_vocab) {
        return InvalidArgument("sequence ", s, " of the step: token ", token,
                               " is not in the vocabulary of ", spec_.n_vocab);
      }
    }
    if (sequence.page_tables.size() != spec_.kv_groups.size()) {
      return InvalidArgument("sequence ", s, " of the step has ", sequence.page_tables.size(),
                             " page tables, the model has ", spec_.kv_groups.size());
    }
    return OkStatus();
  }

  template <typename... Pieces>
  Status PageError(size_t group, size_t s, const Pieces&... pieces) const {
    return InvalidArgument("sequence ", s, " of the step, page group ", group, ": ", pieces...);
  }

  const ModelSpec& spec_;
  const StateLayout& layout_;
  const std::span<const int64_t> n_pages_;
  const int64_t n_slots_;
  const Step& step_;
};

}  // namespace

Status ValidateStep(const ModelSpec& spec, const StateLayout& layout,
                    std::span<const int64_t> n_pages, int64_t n_slots, int64_t max_step_tokens,
                    const Step& step, size_t n_logit_values) {
  const StepValidator validator(spec, layout, n_pages, n_slots, step);
  WEFT_RETURN_IF_ERROR(validator.CheckSequences(max_step_tokens, n_logit_values));
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    WEFT_RETURN_IF_ERROR(validator.CheckGroup(group));
  }
  return validator.CheckSlots();
}

}  // namespace weft
