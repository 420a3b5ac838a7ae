#include "host/sampling_defaults.h"

#include <limits>
#include <vector>

#include "base/strings.h"

namespace weft::serve {
namespace {

// Weft's own defaults, as advice: used if nobody else gives a value.
SamplingAdvice OwnAdvice() {
  const SamplingOptions own;
  return {
      .temperature = own.temperature, .top_k = own.top_k, .top_p = own.top_p, .min_p = own.min_p};
}

// The part of `advice` that `before` does not already give.
SamplingAdvice Remaining(SamplingAdvice advice, const SamplingAdvice& before) {
  for (const SamplingField& field : SamplingFields()) {
    if (before.*field.value) (advice.*field.value).reset();
  }
  return advice;
}

}  // namespace

SamplingOptions Advised(SamplingOptions own, const SamplingAdvice& advice) {
  const auto set = [](const std::optional<double>& said, auto* value) {
    if (said) *value = static_cast<std::remove_pointer_t<decltype(value)>>(*said);
  };
  set(advice.temperature, &own.temperature);
  set(advice.top_k, &own.top_k);
  if (own.top_k < 0) own.top_k = 0;
  set(advice.top_p, &own.top_p);
  // 0 means only the best token, as does the smallest positive number.
  if (own.top_p <= 0) own.top_p = std::numeric_limits<float>::min();
  set(advice.min_p, &own.min_p);
  set(advice.repeat_penalty, &own.repetition_penalty);
  if (own.repetition_penalty == 0) own.repetition_penalty = 1;  // 0: off
  set(advice.repeat_last_n, &own.penalty_window);
  set(advice.frequency_penalty, &own.frequency_penalty);
  set(advice.presence_penalty, &own.presence_penalty);
  return own;
}

AnswerEnds EndsOf(const SamplingAdvice& advice, const Tokenizer& tokenizer) {
  AnswerEnds ends;
  for (const std::string& stop : advice.stop) {
    const TokenId id = tokenizer.Find(stop);
    if (id == kNoToken || !tokenizer.IsControl(id)) {
      if (stop.size() <= kMaxStopStringBytes) ends.texts.push_back(stop);
    } else if (!tokenizer.IsEndOfGeneration(id)) {
      ends.tokens.push_back(id);
    }
  }
  return ends;
}

void AddEndTokens(const std::vector<int32_t>& tokens, TurnOptions* turn) {
  if (turn->ignore_eos) return;
  for (const int32_t token : tokens) {
    if (turn->stop_tokens.size() < kMaxStopTokens) turn->stop_tokens.push_back(token);
  }
}

std::string DescribeSampling(const SamplingAdvice& flags, const SamplingAdvice& model,
                             const std::string& model_by) {
  std::vector<std::string> parts;
  const auto add = [&](const SamplingAdvice& advice, std::string_view by) {
    if (const std::string text = advice.Text(); !text.empty()) {
      parts.push_back(StrCat(text, " (", by, ")"));
    }
  };
  add(flags, "flags");
  add(Remaining(model, flags), model_by);
  SamplingAdvice said = flags;
  said.FillFrom(model);
  add(Remaining(OwnAdvice(), said), "Weft's own");
  return StrJoin(parts, "; ");
}

}  // namespace weft::serve
