// The sampling parameters as data. A new parameter is a row in weft/sampling_parameters.inc and its
// use in engine/sampling: every reader of requests, files and flags goes through this table.
// Also sampling advice: values of the parameters from the authors of a model's file, from the
// packagers of a named model, or from the operator. They are optional, so that advice from several
// sources can be layered.
//
// Values and pure functions; any thread.
#ifndef WEFT_MODEL_SAMPLING_SAMPLING_PARAMETERS_H_
#define WEFT_MODEL_SAMPLING_SAMPLING_PARAMETERS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/options.h"

namespace weft {

struct SamplingAdvice {
#define WEFT_SAMPLING_PARAMETER(type, member, own, name, ...) std::optional<double> name = {};
#include "weft/sampling_parameters.inc"
#undef WEFT_SAMPLING_PARAMETER
  std::vector<std::string> stop = {};  // texts that end an answer; empty: no advice
  // Advice that cannot be followed, such as "mirostat 2".
  std::vector<std::string> left_out = {};

  // Whether there is no advice to follow.
  bool empty() const;
  // Takes the values that are missing here from `other`.
  void FillFrom(const SamplingAdvice& other);
  // "temperature 0.2, top_p 0.9": the values, without the stops; empty if there are none.
  std::string Text() const;
};

// A row of the table.
struct SamplingParameter {
  // The name in OpenAI's, Ollama's and llama-server's requests, and in `weft chat`.
  std::string_view name;
  std::optional<double> SamplingAdvice::*advice;
  std::variant<float SamplingOptions::*, int SamplingOptions::*> member;
  double own;  // Weft's default

  std::string_view other_name = "";  // in vLLM's requests and over gRPC
  std::string_view gguf_key = "";    // in GGUF files, after "general.sampling."
  // The range, which keeps the arithmetic finite, and OpenAI's limit on the magnitude (0: none).
  double min = 0, max = 0;
  double openai_max = 0;
  // A value that stands for another one.
  struct Alias {
    double said = 0, means = 0;
  } alias = {};
  // The sampler as llama-server's lists name it, its place in the order in which samplers run, and
  // the value that turns it off. Without a name: only tunes other samplers.
  struct Stage {
    std::string_view name = "";
    int order = 0;
    double off = 0;
  } stage = {};
  // ExecuTorch workers: what a refused value must be; such a worker takes no alias. Empty: the
  // usual error of numbers. Null: the protocol lacks the parameter.
  const char* worker = nullptr;
  std::string_view flag = "", help = "", values = "";  // "--temp", "Temperature", "0: greedy"

  bool is_whole() const { return std::holds_alternative<int SamplingOptions::*>(member); }
  // Whether a value is acceptable.
  bool Takes(double number) const;
  double In(const SamplingOptions& options) const;
  // Resolves the alias. REQUIRES: Takes(number).
  void Set(double number, SamplingOptions* options) const;
};
std::span<const SamplingParameter> SamplingParameters();
// Null if there is none.
const SamplingParameter* FindSamplingParameter(std::string_view name);

// `own`, overridden by the advice.
SamplingOptions Advised(SamplingOptions own, const SamplingAdvice& advice);
// All samplers off: each token is as probable as the model says.
SamplingOptions UnchangedSampling();

// For the log: "temperature 0.2, top_p 0.9 (catalogue); top_k 40, min_p 0.05 (Weft)".
std::string DescribeSampling(const SamplingAdvice& flags, const SamplingAdvice& model,
                             const std::string& model_by);

// The samplers in the order in which they run, as llama-server names them.
std::vector<std::string_view> SamplerNames();
// llama-server's list of the samplers to use: all others are off, those without a value of their
// own too. Sets their parameters in `off`. Unsupported samplers are ignored if they do nothing
// without a parameter of their own. Returns the first name that is unknown or out of order.
std::optional<std::string_view> SamplersOff(std::span<const std::string_view> used,
                                            SamplingAdvice* off);

// A sampler of llama-server, Ollama or vLLM that Weft lacks.
struct ForeignSampler {
  std::string_view name;
  double off;
  bool is_llamas;  // llama-server's settings tell it
};
std::span<const ForeignSampler> ForeignSamplers();
// Parameters that only tune foreign samplers: without effect while these are off.
std::span<const std::string_view> ForeignTuning();

// As people write it: 0.95 for the nearest float.
std::string NumberText(double number);

}  // namespace weft

#endif  // WEFT_MODEL_SAMPLING_SAMPLING_PARAMETERS_H_
