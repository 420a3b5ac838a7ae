// The options that say how to sample: the same for every command that generates.
#ifndef WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_
#define WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_

#include <cstdint>

#include "CLI/CLI.hpp"
#include "formats/sampling_advice.h"
#include "tokenizer/tokenizer.h"
#include "weft/options.h"

namespace weft::cli {

struct SamplingFlags {
  SamplingAdvice said;  // what is given
  int64_t n = -1;       // tokens to generate
  int64_t seed = -1;    // -1: a new one for each turn
  bool end_loops = true;
};

void AddPredictFlag(CLI::App* app, SamplingFlags* flags);  // -n
void AddSamplingFlags(CLI::App* app, SamplingFlags* flags);
// What the flags say, and the model where they say nothing.
SamplingAdvice AdviceWith(const SamplingFlags& flags, const SamplingAdvice& of_model);
// That over Weft's own, with the seed.
SamplingOptions SamplingWith(const SamplingFlags& flags, const SamplingAdvice& of_model);
// Puts all of it into the options of a turn: how tokens are chosen, and what ends an answer.
void ApplySamplingFlags(const SamplingFlags& flags, const SamplingAdvice& of_model,
                        const Tokenizer& tokenizer, TurnOptions* options);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_SAMPLING_FLAGS_H_
