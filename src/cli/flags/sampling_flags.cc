#include "cli/flags/sampling_flags.h"

#include <limits>
#include <optional>
#include <string>

#include "base/strings.h"
#include "host/sampling_defaults.h"

namespace weft::cli {

void AddPredictFlag(CLI::App* app, SamplingFlags* flags) {
  app->add_option("-n,--predict", flags->n, "Tokens to generate (-1: until the model ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
}

void AddSamplingFlags(CLI::App* app, SamplingFlags* flags) {
  const auto number = [app](const char* name, std::optional<double>* said, double least,
                            double most, std::string text) {
    app->add_option_function<double>(
           name, [said](double value) { *said = value; }, text)
        ->check(CLI::Range(least, most));
  };
  const auto integer = [app](const char* name, std::optional<double>* said, int least,
                             std::string text) {
    app->add_option_function<int>(
           name, [said](int value) { *said = value; }, text)
        ->check(CLI::Range(least, std::numeric_limits<int>::max()));
  };
  const SamplingOptions own;
  const auto otherwise = [](auto value) {
    return StrCat("; default: the model's recommendation, else ", NumberText(value), ")");
  };
  SamplingAdvice& said = flags->said;
  number("--temp", &said.temperature, 0, 1e6,
         "Temperature (0: always choose the best token" + otherwise(own.temperature));
  integer("--top-k", &said.top_k, 0,
          "Sample from the k best tokens (0: all" + otherwise(own.top_k));
  number("--top-p", &said.top_p, 1e-9, 1,
         "Sample from the best tokens that together reach this probability (1: all" +
             otherwise(own.top_p));
  number("--min-p", &said.min_p, 0, 1,
         "Drop tokens less probable than this fraction of the best one (0: off" +
             otherwise(own.min_p));
  number("--repeat-penalty", &said.repeat_penalty, 0, 100,
         "Make repeated tokens less probable (1: off" + otherwise(own.repetition_penalty));
  integer("--repeat-last-n", &said.repeat_last_n, -1,
          "How many recent tokens the penalties look at (-1: all" + otherwise(own.penalty_window));
  number(
      "--presence-penalty", &said.presence_penalty, -100, 100,
      "Lower the logits of repeated tokens by this much (0: off" + otherwise(own.presence_penalty));
  number("--frequency-penalty", &said.frequency_penalty, -100, 100,
         "Lower them by this much for each occurrence (0: off" + otherwise(own.frequency_penalty));
  app->add_option("--seed", flags->seed, "Equal seeds give equal output (-1: random)")
      // The parser turns anything larger into the largest number.
      ->check(CLI::Range(int64_t{-1}, std::numeric_limits<int64_t>::max() - 1))
      ->capture_default_str();
  app->add_flag("!--keep-loops", flags->end_loops,
                "Let an answer that keeps repeating itself continue until the context is full");
}

SamplingAdvice AdviceWith(const SamplingFlags& flags, const SamplingAdvice& of_model) {
  SamplingAdvice advice = flags.said;
  advice.FillFrom(of_model);
  return advice;
}

SamplingOptions SamplingWith(const SamplingFlags& flags, const SamplingAdvice& of_model) {
  SamplingOptions sampling = serve::Advised(SamplingOptions(), AdviceWith(flags, of_model));
  if (flags.seed >= 0) sampling.seed = static_cast<uint64_t>(flags.seed);
  return sampling;
}

void ApplySamplingFlags(const SamplingFlags& flags, const SamplingAdvice& of_model,
                        const Tokenizer& tokenizer, TurnOptions* options) {
  options->max_tokens = flags.n;
  options->sampling = SamplingWith(flags, of_model);
  options->end_loops = flags.end_loops;
  const AnswerEnds ends = serve::EndsOf(of_model, tokenizer);
  options->stop_strings = ends.texts;
  serve::AddEndTokens(ends.tokens, options);
}

}  // namespace weft::cli
