#include "compute/checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/state_ids.h"
#include "base/strings.h"
#include "base/system.h"
#include "base/tokens.h"
#include "compute/kernels/kv_types.h"
#include "model/formats/model_file.h"

namespace weft {

Status CheckDevice(const Backend& backend, int device) {
  const int n = backend.device_count();
  if (device >= 0 && device < n) return OkStatus();
  if (n == 1)
    return InvalidArgument("the ", backend.name(), " backend has one device, 0, and no ", device);
  return InvalidArgument("the ", backend.name(), " backend has devices 0 to ", n - 1, ", no ",
                         device);
}

namespace {

// "F16, F32, any two of Q8_0, Q5_0 and Q4_0".
std::string DescribeKvTypes(std::span<const KvTypes> types) {
  const std::vector<KvTypes> levels = LevelKvTypes();
  const bool any_levels = std::ranges::all_of(
      levels, [&](KvTypes type) { return std::ranges::count(types, type) > 0; });
  std::vector<std::string> names;
  for (const KvTypes& type : types) {
    if (!any_levels || !HoldsLevels(type)) names.push_back(NameOf(type));
  }
  if (any_levels) names.emplace_back("any two of Q8_0, Q5_0 and Q4_0");
  return StrJoin(names, ", ");
}

}  // namespace

StatusOr<StateOptions> CheckedOptions(const Backend& backend, StateOptions options) {
  const BackendCapabilities& has = backend.capabilities();
  if (options.page_tokens == 0) options.page_tokens = has.page_tokens.front();
  if (std::ranges::count(has.kv_types, options.kv_type) == 0) {
    return InvalidArgument("the ", backend.name(), " backend stores no keys and values as ",
                           NameOf(options.kv_type), "; it has ", DescribeKvTypes(has.kv_types),
                           "; use one of them, or --backend cpu");
  }
  if (std::ranges::count(has.page_tokens, options.page_tokens) == 0) {
    return InvalidArgument("the ", backend.name(), " backend has no pages of ", options.page_tokens,
                           " tokens; it has ", StrJoin(has.page_tokens, ", "));
  }
  return options;
}

Status CheckOptions(const Backend& backend, const ExecutorOptions& options) {
  const int64_t most = backend.capabilities().max_step_tokens;
  if (options.max_step_tokens >= 1 && options.max_step_tokens <= most) return OkStatus();
  return InvalidArgument("steps of ", options.max_step_tokens, " tokens: the ", backend.name(),
                         " backend takes 1 to ", most);
}

StatusOr<MemoryInfo> HostMemory(const Backend& backend, int device) {
  WEFT_RETURN_IF_ERROR(CheckDevice(backend, device));
  return MemoryInfo{.total_bytes = HostMemoryBytes(), .free_bytes = FreeHostMemoryBytes()};
}

namespace {

// The most exact of the common quantizations with which so many weights would fit.
std::string FittingQuantization(int64_t n_weights, int64_t bytes) {
  struct Quantization {
    const char* name;
    double bits;  // per weight
  };
  constexpr Quantization kCommon[] = {{"Q8_0", 8.5},   {"Q6_K", 6.6},   {"Q5_K_M", 5.7},
                                      {"Q4_K_M", 4.9}, {"Q3_K_M", 3.9}, {"Q2_K", 3.0},
                                      {"IQ2_M", 2.7},  {"IQ2_XXS", 2.2}};
  constexpr double kShareOfWeights = 0.9;  // the rest is for conversations
  const double bits = kShareOfWeights * 8 * static_cast<double>(bytes) /
                      static_cast<double>(std::max<int64_t>(1, n_weights));
  for (const Quantization& each : kCommon) {
    if (each.bits <= bits) return each.name;
  }
  return "";
}

}  // namespace

Status CheckHostHolds(int64_t weight_bytes, const ModelFile& file) {
  const int64_t free_bytes = LoadableMemoryBytes();
  if (weight_bytes <= free_bytes) return OkStatus();
  int64_t n_weights = 0;
  for (const TensorInfo& tensor : file.tensors()) n_weights += tensor.values();
  const std::string fits = FittingQuantization(n_weights, free_bytes);
  const std::string or_which = fits.empty() ? "" : StrCat(", such as ", fits);
  return ResourceExhausted("the weights need ", HumanBytes(weight_bytes), " of memory, and only ",
                           HumanBytes(free_bytes),
                           " are free; end other programs, or use a smaller quantization", or_which,
                           ", or a smaller model");
}

Status CheckNoHiddenInput(const Backend& backend, const ModelSpec& spec) {
  if (!spec.hidden_input) return OkStatus();
  return Unimplemented("the ", backend.name(), " backend computes no prediction heads");
}

Status CheckNoAdapters(const Backend& backend, const LoadOptions& options) {
  if (options.adapters.empty()) return OkStatus();
  return Unimplemented("the ", backend.name(),
                       " backend computes no LoRA adapters; use --backend cpu, or no --lora");
}

Status CheckNoRowInput(const Backend& backend, const ModelSpec& spec) {
  if (!spec.row_input) return OkStatus();
  return Unimplemented("the ", backend.name(), " backend computes no models without tokens");
}

bool GatesByHead(const Attention& op) {
  return !op.gated_query || (op.k_dim == op.v_dim && (!op.q_norm || op.q_norm.width == op.k_dim));
}

namespace {

class StepValidator {
 public:
  StepValidator(const ModelSpec& spec, const StateStore& state, const Step& step)
      : spec_(spec), state_(state), page_tokens_(state.layout().page_tokens), step_(step) {}

  Status CheckSequences(const StepLimits& limits) const {
    if (step_.sequences.empty()) return InvalidArgument("a step needs at least one sequence");
    int64_t n_tokens = 0;
    int64_t n_logits = 0, n_best = 0, n_weights = 0, n_vectors = 0;
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      WEFT_RETURN_IF_ERROR(CheckSequence(s, limits));
      const StepSequence& sequence = step_.sequences[s];
      n_tokens += static_cast<int64_t>(sequence.tokens.size());
      if (sequence.n_best == 0) n_logits += sequence.n_logits;
      n_best += sequence.n_logits * sequence.n_best;
      if (sequence.temperature != 0) n_weights += sequence.n_logits;
      n_vectors += sequence.n_vectors;
    }
    if (n_tokens > limits.tokens) {
      return InvalidArgument("a step of ", n_tokens, " tokens is larger than the executor's ",
                             limits.tokens);
    }
    if (step_.best.size() != static_cast<size_t>(n_best)) {
      return InvalidArgument("the step asks for ", n_best, " best tokens, the buffer holds ",
                             step_.best.size());
    }
    if (step_.weights.size() != static_cast<size_t>(n_weights)) {
      return InvalidArgument("the step asks for ", n_weights, " weights, the buffer holds ",
                             step_.weights.size());
    }
    if (step_.logits.size() != static_cast<size_t>(n_logits * spec_.n_vocab)) {
      return InvalidArgument("the step asks for ", n_logits, " rows of ", spec_.n_vocab,
                             " logits, the buffer holds ", step_.logits.size(), " values");
    }
    if (step_.vectors.size() != static_cast<size_t>(n_vectors * spec_.d_model)) {
      return InvalidArgument("the step asks for ", n_vectors, " vectors of ", spec_.d_model,
                             " values, the buffer holds ", step_.vectors.size());
    }
    return OkStatus();
  }

  // Checks the pages of one group: all present and inside the pool, and each written page named
  // only once in the whole step.
  Status CheckGroup(size_t group) const {
    const int64_t n_pages = state_.n_pages(static_cast<int>(group));
    std::vector<bool> written(static_cast<size_t>(n_pages), false);
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      const Range range = VisibleEntries(group, s);
      const auto& table = step_.sequences[s].page_tables[group];
      if (static_cast<int64_t>(table.size()) < range.end) {
        return PageError(group, s, "its page table has ", table.size(), " entries, needs ",
                         range.end);
      }
      for (int64_t i = range.begin; i < range.end; ++i) {
        if (table[i] < 0 || table[i] >= n_pages) {
          return PageError(group, s, "entry ", i, " is page ", table[i], " of a pool of ", n_pages);
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
    const int64_t n_slots = state_.n_slots();
    std::vector<SlotId> slots;
    for (size_t s = 0; s < step_.sequences.size(); ++s) {
      const SlotId slot = step_.sequences[s].slot;
      if (slot < 0 || slot >= n_slots) {
        return InvalidArgument("sequence ", s, " of the step: slot ", slot, " of a pool of ",
                               n_slots);
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
  // Page table entries [begin, end) that the sequence sees; entries from `first_written` on are
  // written.
  struct Range {
    int64_t begin, first_written, end;
  };

  Range VisibleEntries(size_t group, size_t s) const {
    const StepSequence& sequence = step_.sequences[s];
    const int64_t window = spec_.kv_groups[group].window;
    const int64_t first_seen =
        window > 0 ? std::max<int64_t>(0, sequence.position - (window - 1)) : 0;
    const int64_t last = sequence.position + static_cast<int64_t>(sequence.tokens.size()) - 1;
    const int64_t end = last / page_tokens_ + 1;
    return {first_seen / page_tokens_, writes_ ? sequence.position / page_tokens_ : end, end};
  }

  Status CheckSequence(size_t s, const StepLimits& limits) const {
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
    if (sequence.n_best < 0 || sequence.n_best > std::min(limits.best, spec_.n_vocab)) {
      return InvalidArgument("sequence ", s, " of the step wants the ", sequence.n_best,
                             " best tokens of ", spec_.n_vocab, ", at most ", limits.best);
    }
    if (sequence.n_vectors < 0 || sequence.n_vectors > n_tokens) {
      return InvalidArgument("sequence ", s, " of the step wants ", sequence.n_vectors,
                             " vectors of ", n_tokens, " tokens");
    }
    WEFT_RETURN_IF_ERROR(CheckChanges(s, limits));
    WEFT_RETURN_IF_ERROR(CheckHidden(s, limits));
    WEFT_RETURN_IF_ERROR(CheckAdapters(s, limits));
    if (sequence.n_logits > 0 && !spec_.output) {
      return InvalidArgument("sequence ", s, " of the step wants logits of a model without them");
    }
    if (needs_whole_texts_ && sequence.position != 0) {
      return InvalidArgument("sequence ", s, " of the step begins at position ", sequence.position,
                             ", but the model needs whole texts");
    }
    if (spec_.positions && sequence.position + n_tokens > spec_.context_tokens) {
      return InvalidArgument("sequence ", s, " of the step ends at position ",
                             sequence.position + n_tokens, ", but the model has ",
                             spec_.context_tokens, " learned positions");
    }
    for (const TokenId token : sequence.tokens) {
      if (IsRow(token)) continue;
      if (token < 0 || token >= spec_.n_vocab) {
        return InvalidArgument("sequence ", s, " of the step: token ", token,
                               " is not in the vocabulary of ", spec_.n_vocab);
      }
    }
    WEFT_RETURN_IF_ERROR(CheckRows(s, limits));
    if (sequence.page_tables.size() != spec_.kv_groups.size()) {
      return InvalidArgument("sequence ", s, " of the step has ", sequence.page_tables.size(),
                             " page tables, the model has ", spec_.kv_groups.size());
    }
    return OkStatus();
  }

  Status CheckChanges(size_t s, const StepLimits& limits) const {
    const StepSequence& sequence = step_.sequences[s];
    if (sequence.changes.empty() && sequence.temperature == 0) return OkStatus();
    if (!limits.changes) return Unimplemented("this backend changes no rows");
    if (sequence.n_best == 0) {
      return InvalidArgument("sequence ", s, " of the step changes rows that it wants whole");
    }
    if (!(sequence.temperature >= 0) || std::isinf(sequence.temperature)) {
      return InvalidArgument("sequence ", s, " of the step has a temperature of ",
                             sequence.temperature);
    }
    if (!sequence.changes.empty() && std::ssize(sequence.changes) != sequence.n_logits) {
      return InvalidArgument("sequence ", s, " of the step changes ", sequence.changes.size(),
                             " rows of ", sequence.n_logits);
    }
    const int64_t n_words = (spec_.n_vocab + 31) / 32;
    for (const RowChanges& changes : sequence.changes) {
      if (!changes.allowed.empty() && std::ssize(changes.allowed) != n_words) {
        return InvalidArgument("sequence ", s, " of the step has a mask of ",
                               changes.allowed.size(), " words, a row takes ", n_words);
      }
      for (const LogitChange& change : changes.logits) {
        if (change.token >= 0 && change.token < spec_.n_vocab) continue;
        return InvalidArgument("sequence ", s, " of the step changes the logit of token ",
                               change.token, ", which is not in the vocabulary of ", spec_.n_vocab);
      }
    }
    return OkStatus();
  }

  Status CheckHidden(size_t s, const StepLimits& limits) const {
    const StepSequence& sequence = step_.sequences[s];
    const int64_t n_rows = spec_.hidden_input ? std::ssize(sequence.tokens) : 0;
    if (std::ssize(sequence.hidden) != n_rows * HiddenWidth(spec_)) {
      return InvalidArgument("sequence ", s, " of the step brings ", sequence.hidden.size(),
                             " hidden values, the model takes ", n_rows * HiddenWidth(spec_));
    }
    if ((spec_.hidden_input || sequence.vectors_before_norm) && !limits.prediction_heads) {
      return Unimplemented("this backend computes no prediction heads");
    }
    return OkStatus();
  }

  Status CheckAdapters(size_t s, const StepLimits& limits) const {
    int64_t former = -1;
    for (const AdapterUse& use : step_.sequences[s].adapters) {
      if (use.adapter <= former || use.adapter >= limits.adapters) {
        return InvalidArgument("sequence ", s, " of the step uses adapter ", use.adapter, " of ",
                               limits.adapters, ", out of order or not there");
      }
      if (!std::isfinite(use.scale)) {
        return InvalidArgument("sequence ", s, " of the step uses adapter ", use.adapter,
                               " at scale ", use.scale);
      }
      former = use.adapter;
    }
    return OkStatus();
  }

  Status CheckRows(size_t s, const StepLimits& limits) const {
    const StepSequence& sequence = step_.sequences[s];
    const int64_t n_rows = std::ranges::count_if(sequence.tokens, IsRow);
    if (n_rows != std::ssize(sequence.rows)) {
      return InvalidArgument("sequence ", s, " of the step has ", sequence.rows.size(),
                             " vectors for ", n_rows, " places");
    }
    if (spec_.row_input && n_rows != std::ssize(sequence.tokens)) {
      return InvalidArgument("sequence ", s, " of the step has tokens, and the model takes none");
    }
    WEFT_RETURN_IF_ERROR(CheckAxes(s, limits));
    WEFT_RETURN_IF_ERROR(CheckMutual(s, limits));
    if (n_rows == 0) return OkStatus();
    if (!limits.rows) return Unimplemented("this backend takes no input embeddings");
    WEFT_RETURN_IF_ERROR(CheckTakesRows(spec_));
    for (const std::span<const float> row : sequence.rows) {
      const bool is_embedding = !spec_.row_input && std::ssize(row) == spec_.d_model;
      if (is_embedding) continue;
      if (std::ssize(row) != RowWidth(spec_)) {
        return InvalidArgument("sequence ", s, " of the step has a vector of ", row.size(),
                               " values in a model of ", RowWidth(spec_));
      }
      if (!limits.row_input) return Unimplemented("this backend takes no rows of several parts");
    }
    return OkStatus();
  }

  Status CheckMutual(size_t s, const StepLimits& limits) const {
    const StepSequence& sequence = step_.sequences[s];
    if (sequence.mutual.empty()) return OkStatus();
    if (!limits.mutual || !attends_plainly_) {
      return Unimplemented(spec_.architecture,
                           " cannot be computed here with tokens that see later "
                           "ones");
    }
    int64_t end = 0;
    for (const TokenRun& run : sequence.mutual) {
      if (run.begin < end || run.end <= run.begin || run.end > std::ssize(sequence.tokens)) {
        return InvalidArgument("sequence ", s, " of the step has a run of tokens from ", run.begin,
                               " to ", run.end, ", which is not among its own");
      }
      end = run.end;
    }
    return OkStatus();
  }

  Status CheckAxes(size_t s, const StepLimits& limits) const {
    const StepSequence& sequence = step_.sequences[s];
    if (sequence.axes.empty()) return OkStatus();
    if (!limits.row_input) return Unimplemented("this backend takes no positions on axes");
    if (sequence.axes.size() == sequence.tokens.size()) return OkStatus();
    return InvalidArgument("sequence ", s, " of the step has ", sequence.axes.size(),
                           " positions on axes for ", sequence.tokens.size(), " tokens");
  }

  template <typename... Pieces>
  Status PageError(size_t group, size_t s, const Pieces&... pieces) const {
    return InvalidArgument("sequence ", s, " of the step, page group ", group, ": ", pieces...);
  }

  const ModelSpec& spec_;
  const bool needs_whole_texts_ = NeedsWholeTexts(spec_);
  const bool writes_ = LastToWriteState(spec_) != nullptr;
  const bool attends_plainly_ = AttendsPlainly(spec_);
  const StateStore& state_;
  const int page_tokens_;
  const Step& step_;
};

}  // namespace

Status ValidateStep(const ModelSpec& spec, const StateStore& state, const StepLimits& limits,
                    const Step& step) {
  const StepValidator validator(spec, state, step);
  WEFT_RETURN_IF_ERROR(validator.CheckSequences(limits));
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    WEFT_RETURN_IF_ERROR(validator.CheckGroup(group));
  }
  return validator.CheckSlots();
}

int64_t LastSeen(const StepSequence& sequence, int64_t i) {
  const auto after = std::ranges::upper_bound(sequence.mutual, i, {}, &TokenRun::begin);
  if (after == sequence.mutual.begin()) return sequence.position + i;
  return sequence.position + std::max(i, std::prev(after)->end - 1);
}

void PutLogits(const Step& step, size_t n_vocab, std::span<const float> rows) {
  std::span<float> logits = step.logits;
  std::span<TokenLogit> best = step.best;
  for (const StepSequence& sequence : step.sequences) {
    const auto n_best = static_cast<size_t>(sequence.n_best);
    for (int64_t i = 0; i < sequence.n_logits; ++i, rows = rows.subspan(n_vocab)) {
      if (n_best > 0) {
        PutBest(rows.first(n_vocab), best.first(n_best));
        best = best.subspan(n_best);
      } else {
        std::ranges::copy(rows.first(n_vocab), logits.begin());
        logits = logits.subspan(n_vocab);
      }
    }
  }
}

void PutBest(std::span<const float> logits, std::span<TokenLogit> best) {
  const size_t n = IsSound(logits) ? FindBest(logits, best) : 0;
  if (n < best.size()) best[n] = {kNoToken, std::numeric_limits<float>::quiet_NaN()};
}

}  // namespace weft
