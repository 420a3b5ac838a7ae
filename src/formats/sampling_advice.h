// Recommended sampling parameters for a model: from the authors of its file, from the packagers of
// a named model, or from the operator. Values are optional, so that advice from several sources can
// be layered.
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
  std::vector<std::string> stop;  // texts that end an answer; empty: no advice
  // Advice that cannot be followed, such as "mirostat 2".
  std::vector<std::string> left_out;

  // Whether there is no advice to follow.
  bool empty() const;
  // Takes the values that are missing here from `other`.
  void FillFrom(const SamplingAdvice& other);
  // "temperature 0.2, top_p 0.9": the values, without the stops; empty if there are none.
  std::string Text() const;
};

// One of the values, under its name in OpenAI's, Ollama's and llama-server's requests.
struct SamplingField {
  std::string_view name;
  std::string_view key;  // in GGUF files, after "general.sampling."
  std::optional<double> SamplingAdvice::*value;
  double least, most;
  bool is_whole;

  // Whether a value is acceptable.
  bool Takes(double number) const;
};
std::span<const SamplingField> SamplingFields();

// As people write it: 0.95 for the nearest float.
std::string NumberText(double number);

// The file's general.sampling.* keys. Invalid values are left out.
SamplingAdvice ReadSamplingAdvice(const ModelFile& file);

}  // namespace weft

#endif  // WEFT_FORMATS_SAMPLING_ADVICE_H_
