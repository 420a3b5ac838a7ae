#include "formats/sampling_advice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "base/strings.h"

namespace weft {
namespace {

constexpr std::string_view kSamplingPrefix = "general.sampling.";
constexpr double kMostInt = 2147483647;

// Converting a float to double adds digits that nobody wrote; this removes them.
double AsWritten(double number) { return std::strtod(NumberText(number).c_str(), nullptr); }

// For unsupported samplers: values that leave them off, and values that only tune them.
bool IsHarmless(std::string_view key, double number) {
  if (key == "mirostat" || key == "xtc_probability") return number == 0;
  return key == "mirostat_tau" || key == "mirostat_eta" || key == "xtc_threshold";
}

// The list of samplers to use, in order; all others are off.
struct NamedSampler {
  std::string_view name;
  std::optional<double> SamplingAdvice::*value;
  double off;
};
constexpr NamedSampler kSamplers[] = {
    {"penalties", &SamplingAdvice::repeat_penalty, 1},
    {"top_k", &SamplingAdvice::top_k, 0},
    {"top_p", &SamplingAdvice::top_p, 1},
    {"min_p", &SamplingAdvice::min_p, 0},
    {"temperature", &SamplingAdvice::temperature, 1},
};
// Samplers that do nothing unless enabled by a value of their own.
constexpr std::string_view kIdleSamplers[] = {"dry",       "top_n_sigma", "typ_p",
                                              "typical_p", "xtc",         "adaptive_p"};

void FollowSequence(std::string_view sequence, SamplingAdvice* advice) {
  bool used[std::size(kSamplers)] = {};
  size_t next = 0;
  for (std::string_view name : StrSplit(sequence, ';')) {
    if (name == "temp") name = "temperature";
    if (std::find(std::begin(kIdleSamplers), std::end(kIdleSamplers), name) !=
        std::end(kIdleSamplers)) {
      continue;
    }
    size_t at = 0;
    while (at < std::size(kSamplers) && kSamplers[at].name != name) ++at;
    if (at < next || at == std::size(kSamplers)) {
      advice->left_out.push_back(StrCat("sequence ", Printable(sequence)));
      return;
    }
    used[at] = true;
    next = at + 1;
  }
  for (size_t i = 0; i < std::size(kSamplers); ++i) {
    if (!used[i]) advice->*kSamplers[i].value = kSamplers[i].off;
  }
}

std::optional<double> NumberOf(const MetaValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* d = std::get_if<double>(&value)) return AsWritten(*d);
  return std::nullopt;
}

}  // namespace

std::span<const SamplingField> SamplingFields() {
  static constexpr SamplingField kFields[] = {
      {"temperature", "temp", &SamplingAdvice::temperature, 0, 1e6, false},
      {"top_k", "top_k", &SamplingAdvice::top_k, 0, kMostInt, true},
      {"top_p", "top_p", &SamplingAdvice::top_p, 0, 1, false},
      {"min_p", "min_p", &SamplingAdvice::min_p, 0, 1, false},
      {"repeat_penalty", "penalty_repeat", &SamplingAdvice::repeat_penalty, 0, 100, false},
      {"repeat_last_n", "penalty_last_n", &SamplingAdvice::repeat_last_n, -1, kMostInt, true},
      {"frequency_penalty", "penalty_freq", &SamplingAdvice::frequency_penalty, -100, 100, false},
      {"presence_penalty", "penalty_present", &SamplingAdvice::presence_penalty, -100, 100, false},
  };
  return kFields;
}

bool SamplingField::Takes(double number) const {
  // Both mean "all of them".
  if (value == &SamplingAdvice::top_k && number == -1) return true;
  return number >= least && number <= most && (!is_whole || number == std::floor(number));
}

bool SamplingAdvice::empty() const { return stop.empty() && Text().empty(); }

void SamplingAdvice::FillFrom(const SamplingAdvice& other) {
  for (const SamplingField& field : SamplingFields()) {
    if (!(this->*field.value)) this->*field.value = other.*field.value;
  }
  if (stop.empty()) stop = other.stop;
  left_out.insert(left_out.end(), other.left_out.begin(), other.left_out.end());
}

std::string SamplingAdvice::Text() const {
  std::vector<std::string> parts;
  for (const SamplingField& field : SamplingFields()) {
    const std::optional<double>& number = this->*field.value;
    if (number) parts.push_back(StrCat(field.name, " ", NumberText(*number)));
  }
  return StrJoin(parts, ", ");
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), std::abs(number) < 1e7 ? "%.7g" : "%.10g", number);
  return text;
}

SamplingAdvice ReadSamplingAdvice(const ModelFile& file) {
  SamplingAdvice advice;
  std::string_view sequence;
  for (const ModelFile::KeyValue& entry : file.metadata()) {
    if (!entry.key.starts_with(kSamplingPrefix)) continue;
    const std::string_view key = entry.key.substr(kSamplingPrefix.size());
    if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
      if (key == "sequence") {
        sequence = *text;
      } else {
        advice.left_out.push_back(StrCat(Printable(key), " ", Printable(*text)));
      }
      continue;
    }
    const std::optional<double> number = NumberOf(entry.value);
    const auto fields = SamplingFields();
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const SamplingField& f) { return f.key == key; });
    if (number && field != fields.end() && field->Takes(*number)) {
      advice.*field->value = *number;
    } else if (!number || !IsHarmless(key, *number)) {
      advice.left_out.push_back(number ? StrCat(Printable(key), " ", NumberText(*number))
                                       : Printable(key));
    }
  }
  if (!sequence.empty()) FollowSequence(sequence, &advice);
  return advice;
}

}  // namespace weft
