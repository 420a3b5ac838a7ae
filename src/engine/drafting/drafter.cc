#include "engine/drafting/drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/strings.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {
namespace {

// The probability of the best token is estimated from this many top candidates.
constexpr int64_t kBest = 8;
// Steps that are measured at the start.
constexpr int kMeasurements = 3;

int64_t HiddenWidthOf(const ModelSpec& spec) {
  const bool has_own = spec.hidden_input && spec.hidden_input->back;
  return has_own ? spec.hidden_input->back.n_out : spec.d_model;
}

}  // namespace

Status CheckDraftModel(const Model& model, const Model& draft) {
  if (!draft.uses().text) {
    return InvalidArgument("the draft model writes no text; it is for ", draft.purpose());
  }
  const Tokenizer& a = *model.tokenizer();
  const Tokenizer& b = *draft.tokenizer();
  if (a.model_name() != b.model_name()) {
    return InvalidArgument("the draft model has another kind of vocabulary (",
                           Printable(b.model_name(), 40), ") than the model (",
                           Printable(a.model_name(), 40), ")");
  }
  const int64_t both = std::min(model.n_vocab(), draft.n_vocab());
  const int64_t named = std::min<int64_t>({a.vocab_size(), b.vocab_size(), both});
  for (TokenId token = 0; token < named; ++token) {
    if (a.RawText(token) == b.RawText(token)) continue;
    return InvalidArgument("the draft model has another vocabulary: token ", token, " is \"",
                           Printable(b.RawText(token), 40), "\" there and \"",
                           Printable(a.RawText(token), 40), "\" in the model (", draft.n_vocab(),
                           " and ", model.n_vocab(), " tokens)");
  }
  for (const TokenId end : a.EndsOfGeneration()) {
    if (end < named) continue;
    return InvalidArgument("the draft model has another vocabulary: its ", draft.n_vocab(),
                           " tokens do not include the model's end token ", end);
  }
  return OkStatus();
}

bool Drafter::Draft::GoesOn(const Ask& ask) const {
  float chance = 1;
  for (const float next : chances) chance *= next;
  return !tokens.empty() && std::ssize(tokens) < ask.most && chance >= ask.least;
}

Drafter::Drafter(std::shared_ptr<const Model> draft,
                 std::function<void(const std::string&)> on_notice)
    : model_(std::move(draft)),
      hidden_input_(model_->spec().hidden_input),
      on_notice_(std::move(on_notice)),
      hidden_width_(HiddenWidthOf(model_->spec())),
      n_best_(std::min(kBest, model_->backend().capabilities().max_best)) {}

// A step that was delayed would end drafting for a while.
Status Drafter::WarmUp() {
  WEFT_RETURN_IF_ERROR(MeasureStep());
  int64_t fastest_us = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kMeasurements; ++i) {
    WEFT_RETURN_IF_ERROR(MeasureStep());
    fastest_us = std::min(fastest_us, step_us_);
  }
  step_us_ = fastest_us;
  return OkStatus();
}

StatusOr<std::vector<Drafter::Next>> Drafter::Run(Executor* executor,
                                                  std::vector<StepSequence> sequences) {
  size_t n_wanted = 0;
  for (StepSequence& sequence : sequences) {
    if (sequence.n_logits == 0) continue;
    sequence.n_best = n_best_;
    sequence.n_vectors = takes_hidden() ? 1 : 0;
    sequence.vectors_before_norm = hidden_before_norm();
    ++n_wanted;
  }
  const auto n_vocab = static_cast<size_t>(model_->n_vocab());
  const auto n_best = static_cast<size_t>(n_best_ > 0 ? n_best_ : kBest);
  best_.assign(n_wanted * n_best, {});
  logits_.resize(n_best_ > 0 ? 0 : n_wanted * n_vocab);
  const auto width = static_cast<size_t>(takes_hidden() ? model_->spec().d_model : 0);
  vectors_.resize(n_wanted * width);
  Step step{.sequences = sequences, .logits = logits_, .vectors = vectors_};
  if (n_best_ > 0) step.best = best_;
  const int64_t begin_us = NowMicros();
  WEFT_RETURN_IF_ERROR(executor->Forward(step));
  step_us_ = NowMicros() - begin_us;
  total_us_ += step_us_;
  ++steps_;
  std::vector<Next> all;
  for (size_t at = 0; at < n_wanted; ++at) {
    const auto best = std::span(best_).subspan(at * n_best, n_best);
    if (n_best_ == 0) {
      FindBest(std::span(logits_).subspan(at * n_vocab, n_vocab), best);
    }
    all.push_back(ReadBest(best));
    const auto vector = std::span(vectors_).subspan(at * width, width);
    all.back().hidden.assign(vector.begin(), vector.end());
  }
  return all;
}

Drafter::Next Drafter::ReadBest(std::span<const TokenLogit> best) {
  if (best[0].token == kNoToken || !std::isfinite(best[0].logit)) return {};
  double sum = 0;
  for (const TokenLogit& token : best) {
    if (token.token == kNoToken || !std::isfinite(token.logit)) break;
    sum += std::exp(static_cast<double>(token.logit - best[0].logit));
  }
  return {.token = best[0].token, .chance = static_cast<float>(1 / sum), .hidden = {}};
}

bool Drafter::CountFailure(const Status& status) {
  if (status.ok()) {
    failures_ = 0;
    return false;
  }
  ++failures_;
  if (!usable() && on_notice_) {
    on_notice_(StrCat("the draft model is not used any more: ", Message(status)));
  }
  return true;
}

void Drafter::FillStats(EngineStats* stats) const {
  const size_t floats = logits_.capacity() + vectors_.capacity();
  stats->draft_weight_bytes = model_->weight_bytes();
  stats->draft_scratch_bytes = static_cast<int64_t>(floats * sizeof(float));
  stats->draft_steps = steps_;
  stats->draft_us = total_us_;
}

}  // namespace weft
