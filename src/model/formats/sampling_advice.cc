#include "model/formats/sampling_advice.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/strings.h"

namespace weft {
namespace {

constexpr std::string_view kSamplingPrefix = "general.sampling.";

// Converting a float to double adds digits that nobody wrote; this removes them.
double AsWritten(double number) { return std::strtod(NumberText(number).c_str(), nullptr); }

// For unsupported samplers: values that leave them off, and values that only tune them.
bool IsHarmless(std::string_view key, double number) {
  for (const ForeignSampler& foreign : ForeignSamplers()) {
    if (foreign.name == key) return number == foreign.off;
  }
  const auto tuning = ForeignTuning();
  return std::find(tuning.begin(), tuning.end(), key) != tuning.end();
}

const SamplingParameter* FindKey(std::string_view key) {
  for (const SamplingParameter& parameter : SamplingParameters()) {
    if (parameter.gguf_key == key) return &parameter;
  }
  return nullptr;
}

// The list of samplers to use.
void FollowSequence(std::string_view sequence, SamplingAdvice* advice) {
  SamplingAdvice off;
  const std::vector<std::string_view> names = StrSplit(sequence, ';');
  if (SamplersOff(names, &off)) {
    advice->left_out.push_back(StrCat("sequence ", Printable(sequence)));
    return;
  }
  for (const SamplingParameter& parameter : SamplingParameters()) {
    if (off.*parameter.advice) advice->*parameter.advice = off.*parameter.advice;
  }
}

std::optional<double> NumberOf(const MetaValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
  if (const auto* d = std::get_if<double>(&value)) return AsWritten(*d);
  return std::nullopt;
}

}  // namespace

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
    const SamplingParameter* const parameter = FindKey(key);
    if (number && parameter != nullptr && parameter->Takes(*number)) {
      advice.*parameter->advice = *number;
    } else if (!number || !IsHarmless(key, *number)) {
      advice.left_out.push_back(number ? StrCat(Printable(key), " ", NumberText(*number))
                                       : Printable(key));
    }
  }
  if (!sequence.empty()) FollowSequence(sequence, &advice);
  return advice;
}

}  // namespace weft
