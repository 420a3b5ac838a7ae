#include "cli/chat/settings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/strings.h"

namespace weft::cli {
namespace {

constexpr char kSeed[] = "seed", kMaxTokens[] = "max_tokens", kReasoning[] = "reasoning",
               kReasoningBudget[] = "reasoning_budget", kDefault[] = "default";

Status NoSuchSetting(std::string_view name) {
  return InvalidArgument("there is no setting ", Printable(name), "; there are ",
                         StrJoin(ChatSettings::Names(), ", "));
}

Status WrongValue(std::string_view name, std::string_view takes) {
  return InvalidArgument(name, " takes ", takes, ", or 'default'");
}

// An integer of at least -1.
Status SetCount(std::string_view name, std::string_view value, int64_t most, int64_t* target) {
  int64_t number = 0;
  if (!ParseInt64(value, &number) || number < -1 || number > most) {
    return WrongValue(name, "an integer of at least -1");
  }
  *target = number;
  return OkStatus();
}

Status SetNumber(const SamplingParameter& field, std::string_view value, SamplingAdvice* said) {
  const std::string text(value);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(number) || !field.Takes(number)) {
    return WrongValue(field.name, StrCat(field.is_whole() ? "a whole number" : "a number", " from ",
                                         NumberText(field.min), " to ", NumberText(field.max)));
  }
  said->*field.advice = number;
  return OkStatus();
}

}  // namespace

ChatSettings::ChatSettings(SamplingFlags sampling, ReplyFlags reply, SamplingAdvice of_model)
    : sampling_(sampling),
      reply_(reply),
      first_sampling_(std::move(sampling)),
      first_reply_(std::move(reply)),
      of_model_(std::move(of_model)) {}

std::vector<std::string> ChatSettings::Names() {
  std::vector<std::string> names;
  for (const SamplingParameter& field : SamplingParameters()) names.emplace_back(field.name);
  for (const char* const name : {kSeed, kMaxTokens, kReasoning, kReasoningBudget}) {
    names.emplace_back(name);
  }
  return names;
}

Status ChatSettings::Set(std::string_view name, std::string_view value) {
  const bool resets = value == kDefault;
  if (const SamplingParameter* const field = FindSamplingParameter(name)) {
    if (!resets) return SetNumber(*field, value, &sampling_.said);
    sampling_.said.*field->advice = first_sampling_.said.*field->advice;
    return OkStatus();
  }
  if (name == kSeed) {
    if (!resets) {
      return SetCount(name, value, std::numeric_limits<int64_t>::max() - 1, &sampling_.seed);
    }
    sampling_.seed = first_sampling_.seed;
  } else if (name == kMaxTokens) {
    if (!resets) return SetCount(name, value, int64_t{1} << 30, &sampling_.n);
    sampling_.n = first_sampling_.n;
  } else if (name == kReasoningBudget) {
    if (!resets) {
      return SetCount(name, value, std::numeric_limits<int32_t>::max(), &reply_.reasoning_budget);
    }
    reply_.reasoning_budget = first_reply_.reasoning_budget;
  } else if (name == kReasoning) {
    if (!resets && value != "on" && value != "off" && value != "auto") {
      return WrongValue(name, "on, off or auto");
    }
    reply_.reasoning = resets ? first_reply_.reasoning : std::string(value);
  } else {
    return NoSuchSetting(name);
  }
  return OkStatus();
}

StatusOr<std::string> ChatSettings::ValueOf(std::string_view name) const {
  if (const SamplingParameter* const field = FindSamplingParameter(name)) {
    if (const auto& said = sampling_.said.*field->advice) return NumberText(*said);
    if (const auto& advised = of_model_.*field->advice) {
      return NumberText(*advised) + " (the model's)";
    }
    return NumberText(field->own);
  }
  if (name == kSeed) {
    return sampling_.seed < 0 ? std::string("random each time") : StrCat(sampling_.seed);
  }
  if (name == kMaxTokens) return StrCat(sampling_.n);
  if (name == kReasoning) return reply_.reasoning;
  if (name == kReasoningBudget) return StrCat(reply_.reasoning_budget);
  return NoSuchSetting(name);
}

StatusOr<std::string> ChatSettings::Show(std::string_view name) const {
  WEFT_ASSIGN_OR_RETURN(const std::string value, ValueOf(name));
  return StrCat(name, " ", value);
}

std::string ChatSettings::Text() const {
  constexpr size_t kNameWidth = 20;
  std::string text;
  for (std::string name : Names()) {
    const auto value = ValueOf(name);
    name.resize(kNameWidth, ' ');
    StrAppend(&text, name, value.ok() ? *value : "", "\n");
  }
  return text;
}

}  // namespace weft::cli
