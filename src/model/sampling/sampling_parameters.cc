#include "model/sampling/sampling_parameters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/strings.h"

namespace weft {
namespace {

constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kSmallestFloat = std::numeric_limits<float>::min();

constexpr SamplingParameter kParameters[] = {
#define WEFT_SAMPLING_PARAMETER(type, member_, own_, name_, ...) \
  {.name = #name_,                                               \
   .advice = &SamplingAdvice::name_,                             \
   .member = &SamplingOptions::member_,                          \
   .own = own_,                                                  \
   __VA_ARGS__},
#include "weft/sampling_parameters.inc"
#undef WEFT_SAMPLING_PARAMETER
};

constexpr ForeignSampler kForeign[] = {
    {"typical_p", 1, true},       {"mirostat", 0, true},     {"dry_multiplier", 0, true},
    {"xtc_probability", 0, true}, {"top_n_sigma", -1, true}, {"dynatemp_range", 0, true},
    {"min_keep", 0, true},        {"tfs_z", 1, false},       {"adaptive_target", -1, true},
    {"length_penalty", 1, false},
};
constexpr std::string_view kForeignTuning[] = {"typ_p",
                                               "mirostat_tau",
                                               "mirostat_eta",
                                               "dry_base",
                                               "dry_allowed_length",
                                               "dry_penalty_last_n",
                                               "xtc_threshold",
                                               "dynatemp_exponent",
                                               "adaptive_decay",
                                               "dry_sequence_breakers"};
// Names in lists of samplers.
constexpr std::string_view kIdleSamplers[] = {"dry",       "top_n_sigma", "typ_p",
                                              "typical_p", "xtc",         "adaptive_p"};

// Weft's own defaults, as advice: the samplers used if nobody else gives a value.
SamplingAdvice OwnAdvice() {
  SamplingAdvice advice;
  for (const SamplingParameter& parameter : kParameters) {
    const bool is_used = parameter.stage.order > 0 && parameter.own != parameter.stage.off;
    if (is_used) advice.*parameter.advice = parameter.own;
  }
  return advice;
}

// The part of `advice` that `before` does not already give.
SamplingAdvice Remaining(SamplingAdvice advice, const SamplingAdvice& before) {
  for (const SamplingParameter& parameter : kParameters) {
    if (before.*parameter.advice) (advice.*parameter.advice).reset();
  }
  return advice;
}

}  // namespace

std::span<const SamplingParameter> SamplingParameters() { return kParameters; }
std::span<const ForeignSampler> ForeignSamplers() { return kForeign; }
std::span<const std::string_view> ForeignTuning() { return kForeignTuning; }

const SamplingParameter* FindSamplingParameter(std::string_view name) {
  for (const SamplingParameter& parameter : kParameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

bool SamplingParameter::Takes(double number) const {
  return number >= min && number <= max && (!is_whole() || number == std::floor(number));
}

double SamplingParameter::In(const SamplingOptions& options) const {
  return std::visit([&](auto at) { return static_cast<double>(options.*at); }, member);
}

void SamplingParameter::Set(double number, SamplingOptions* options) const {
  if (number == alias.said) number = alias.means;
  std::visit(
      [&](auto at) { options->*at = static_cast<std::decay_t<decltype(options->*at)>>(number); },
      member);
}

bool SamplingAdvice::empty() const { return stop.empty() && Text().empty(); }

void SamplingAdvice::FillFrom(const SamplingAdvice& other) {
  for (const SamplingParameter& parameter : kParameters) {
    if (!(this->*parameter.advice)) this->*parameter.advice = other.*parameter.advice;
  }
  if (stop.empty()) stop = other.stop;
  left_out.insert(left_out.end(), other.left_out.begin(), other.left_out.end());
}

std::string SamplingAdvice::Text() const {
  std::vector<std::string> parts;
  for (const SamplingParameter& parameter : kParameters) {
    const std::optional<double>& number = this->*parameter.advice;
    if (number) parts.push_back(StrCat(parameter.name, " ", NumberText(*number)));
  }
  return StrJoin(parts, ", ");
}

SamplingOptions Advised(SamplingOptions own, const SamplingAdvice& advice) {
  for (const SamplingParameter& parameter : kParameters) {
    if (const auto& number = advice.*parameter.advice) parameter.Set(*number, &own);
  }
  return own;
}

SamplingOptions UnchangedSampling() {
  SamplingOptions options;
  for (const SamplingParameter& parameter : kParameters) {
    if (parameter.stage.order > 0) parameter.Set(parameter.stage.off, &options);
  }
  return options;
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

std::vector<std::string_view> SamplerNames() {
  std::vector<SamplingParameter::Stage> stages;
  for (const SamplingParameter& parameter : kParameters) {
    if (parameter.stage.order > 0) stages.push_back(parameter.stage);
  }
  std::stable_sort(stages.begin(), stages.end(),
                   [](const auto& a, const auto& b) { return a.order < b.order; });
  std::vector<std::string_view> names;
  for (const auto& stage : stages) {
    if (names.empty() || names.back() != stage.name) names.push_back(stage.name);
  }
  return names;
}

std::optional<std::string_view> SamplersOff(std::span<const std::string_view> used,
                                            SamplingAdvice* off) {
  const std::vector<std::string_view> ours = SamplerNames();
  std::vector<std::string_view> unused = ours;
  auto next = ours.begin();
  for (const std::string_view name : used) {
    if (std::find(std::begin(kIdleSamplers), std::end(kIdleSamplers), name) !=
        std::end(kIdleSamplers)) {
      continue;
    }
    const auto at = std::find(next, ours.end(), name == "temp" ? "temperature" : name);
    if (at == ours.end()) return name;
    std::erase(unused, *at);
    next = at + 1;
  }
  for (const SamplingParameter& parameter : kParameters) {
    const auto at = std::find(unused.begin(), unused.end(), parameter.stage.name);
    if (at != unused.end()) off->*parameter.advice = parameter.stage.off;
  }
  return std::nullopt;
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), std::abs(number) < 1e7 ? "%.7g" : "%.10g", number);
  return text;
}

}  // namespace weft
