#include "cli/flags/sampling_flags.h"

#include <limits>
#include <optional>
#include <string>

#include "answer/answer_ends.h"
#include "base/strings.h"
#include "model/sampling/sampling_parameters.h"

namespace weft::cli {

namespace {

void AddParameterFlag(CLI::App* app, const SamplingParameter& parameter, SamplingAdvice* said) {
  const std::string name(parameter.flag);
  const std::string text =
      StrCat(parameter.help, " (", parameter.values, "; default: the model's recommendation, else ",
             NumberText(parameter.own), ")");
  const auto set = [said, at = parameter.advice](auto value) { said->*at = value; };
  if (parameter.is_whole()) {
    app->add_option_function<int>(name, set, text)
        ->check(CLI::Range(static_cast<int>(parameter.min), static_cast<int>(parameter.max)));
  } else {
    app->add_option_function<double>(name, set, text)
        ->check(CLI::Range(parameter.min, parameter.max));
  }
}

}  // namespace

void AddPredictFlag(CLI::App* app, SamplingFlags* flags) {
  app->add_option("-n,--predict", flags->n, "Tokens to generate (-1: until the model ends)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
}

void AddSamplingFlags(CLI::App* app, SamplingFlags* flags) {
  for (const SamplingParameter& parameter : SamplingParameters()) {
    if (!parameter.flag.empty()) AddParameterFlag(app, parameter, &flags->said);
  }
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
  SamplingOptions sampling = Advised(SamplingOptions(), AdviceWith(flags, of_model));
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
