// The sampling options: the same for every command that generates.
#ifndef WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_
#define WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_

#include <cstdint>

#include "CLI/CLI.hpp"
#include "model/sampling/sampling_parameters.h"
#include "model/tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::cli {

struct SamplingFlags {
  SamplingAdvice said;  // the flags given
  int64_t n = -1;       // tokens to generate
  int64_t seed = -1;    // -1: a new one for each turn
  bool end_loops = true;
};

void AddPredictFlag(CLI::App* app, SamplingFlags* flags);  // -n
void AddSamplingFlags(CLI::App* app, SamplingFlags* flags);
// The flags' advice, completed by the model's.
SamplingAdvice AdviceWith(const SamplingFlags& flags, const SamplingAdvice& of_model);
// The same over Weft's defaults, with the seed.
SamplingOptions SamplingWith(const SamplingFlags& flags, const SamplingAdvice& of_model);
// Applies all of it to a turn's options: sampling, and the ends of answers.
void ApplySamplingFlags(const SamplingFlags& flags, const SamplingAdvice& of_model,
                        const Tokenizer& tokenizer, TurnOptions* options);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_
