// The options that say how to sample: the same for every command that generates.
#ifndef WEFT_CLI_SAMPLING_FLAGS_H_
#define WEFT_CLI_SAMPLING_FLAGS_H_

#include <cstdint>

#include "CLI/CLI.hpp"
#include "weft/options.h"

namespace weft::cli {

struct SamplingFlags {
  SamplingOptions sampling;
  int64_t n = -1;     // tokens to generate
  int64_t seed = -1;  // -1: a new one for each turn
  bool end_loops = true;
};

void AddPredictFlag(CLI::App* app, SamplingFlags* flags);  // -n
void AddSamplingFlags(CLI::App* app, SamplingFlags* flags);
SamplingOptions FlaggedSampling(const SamplingFlags& flags);
// Puts the flags into the options of a turn.
void ApplySamplingFlags(const SamplingFlags& flags, TurnOptions* options);

}  // namespace weft::cli

#endif  // WEFT_CLI_SAMPLING_FLAGS_H_
