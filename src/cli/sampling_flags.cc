#include "cli/sampling_flags.h"

#include <limits>

namespace weft::cli {

void AddPredictFlag(CLI::App* app, SamplingFlags* flags) {
  app->add_option("-n,--predict", flags->n, "Tokens to generate (-1: until the model ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
}

void AddSamplingFlags(CLI::App* app, SamplingFlags* flags) {
  app->add_option("--temp", flags->sampling.temperature, "Temperature (0: always the best token)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app->add_option("--top-k", flags->sampling.top_k, "Sample among the k best (0: all)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  app->add_option("--top-p", flags->sampling.top_p,
                  "Sample among the best that reach this probability (1: all)")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app->add_option("--min-p", flags->sampling.min_p,
                  "Drop what is less probable than this share of the best (0: off)")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--seed", flags->seed, "Equal seeds give equal output (-1: a new one)")
      // The largest number is what the parser makes of everything beyond it.
      ->check(CLI::Range(int64_t{-1}, std::numeric_limits<int64_t>::max() - 1))
      ->capture_default_str();
  app->add_flag("!--keep-loops", flags->end_loops,
                "Let an answer that repeats itself over and over go on until the context is full");
}

SamplingOptions FlaggedSampling(const SamplingFlags& flags) {
  SamplingOptions sampling = flags.sampling;
  if (flags.seed >= 0) sampling.seed = static_cast<uint64_t>(flags.seed);
  return sampling;
}

void ApplySamplingFlags(const SamplingFlags& flags, TurnOptions* options) {
  options->max_tokens = flags.n;
  options->sampling = FlaggedSampling(flags);
  options->end_loops = flags.end_loops;
}

}  // namespace weft::cli
