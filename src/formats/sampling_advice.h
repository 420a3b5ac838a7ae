// How somebody would have a model sampled: those who made its file, those who pack it under a
// name, or who runs it. Each value is there only where something is said, so that advice of
// different people can be put one over the other.
//
// Values; any thread.
#ifndef WEFT_FORMATS_SAMPLING_ADVICE_H_
#define WEFT_FORMATS_SAMPLING_ADVICE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_file.h"

namespace weft {

struct SamplingAdvice {
  std::optional<double> temperature, top_k, top_p, min_p;
  std::optional<double> repeat_penalty, repeat_last_n, frequency_penalty, presence_penalty;
  std::vector<std::string> stop;  // what ends an answer; empty: nothing is said
  // What is said and cannot be followed, such as "mirostat 2".
  std::vector<std::string> left_out;

  // Whether there is nothing to follow.
  bool empty() const;
  // Takes from `other` what is not said here.
  void FillFrom(const SamplingAdvice& other);
  // "temperature 0.2, top_p 0.9": the values, without the stops; empty where there is none.
  std::string Text() const;
};

// One of the values, by the name that OpenAI's, Ollama's and llama-server's requests have for it.
struct SamplingField {
  std::string_view name;
  std::string_view key;  // in GGUF files, behind "general.sampling."
  std::optional<double> SamplingAdvice::*value;
  double least, most;
  bool is_whole;

  // Whether a value can be followed.
  bool Takes(double number) const;
};
std::span<const SamplingField> SamplingFields();

// As people write it: 0.95 for the float nearest to that.
std::string NumberText(double number);

// What general.sampling.* of the file says. Values that make no sense are left out.
SamplingAdvice ReadSamplingAdvice(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_FORMATS_SAMPLING_ADVICE_H_
