// weft run: one prompt in, its continuation out, as it is made.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/sampling_flags.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  bool raw = false;
  bool json = false;
  std::string prompt;
};

const char* NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kLoop:
      return "loop";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

void PrintJson(const RunFlags& flags, const std::string& text, const std::vector<int32_t>& tokens,
               uint64_t seed, const DoneEvent& done) {
  const auto rate = [](int64_t n, int64_t us) { return us > 0 ? n * 1e6 / us : 0.0; };
  const TurnUsage& usage = done.usage;
  PrintJsonLine({{"text", text},
                 {"tokens", tokens},
                 {"finish_reason", NameOf(done.reason)},
                 {"seed", seed},
                 {"prompt_tokens", usage.prompt_tokens},
                 {"cached_tokens", usage.cached_tokens},
                 {"completion_tokens", usage.completion_tokens},
                 {"prompt_tokens_per_s", rate(usage.prompt_tokens, usage.prompt_us)},
                 {"tokens_per_s", rate(usage.completion_tokens, usage.decode_us)}});
}

Status Run(const RunFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string prompt, TextOrStdin(flags.prompt));
  WEFT_ASSIGN_OR_RETURN(const EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  TurnOptions turn_options;
  turn_options.tokens = model->Encode(prompt, /*add_special=*/!flags.raw, /*parse_special=*/true);
  ApplySamplingFlags(flags.sampling, &turn_options);
  WEFT_ASSIGN_OR_RETURN(const auto turn, engine->SubmitOnce("", turn_options));

  std::string text;
  std::vector<int32_t> tokens;
  uint64_t seed = 0;
  const auto show = [&](const std::string& piece) {
    text += piece;
    if (flags.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  while (auto event = turn->Next()) {
    if (const auto* started = std::get_if<StartedEvent>(&*event)) seed = started->seed;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      tokens.push_back(token->token);
      show(token->text);
    }
    if (const auto* done = std::get_if<DoneEvent>(&*event)) {
      show(done->text);
      WEFT_RETURN_IF_ERROR(done->status);
      if (flags.json) {
        PrintJson(flags, text, tokens, seed, *done);
      } else {
        std::fputc('\n', stdout);
      }
    }
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeRunCommand(CLI::App* app) {
  auto flags = std::make_shared<RunFlags>();
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  AddPredictFlag(app, &flags->sampling);
  AddSamplingFlags(app, &flags->sampling);
  app->add_flag("--raw", flags->raw, "Take the prompt as it is: no tokens are put around it");
  app->add_flag("--json", flags->json, "One JSON object with text, tokens and timings");
  app->add_option("PROMPT", flags->prompt, "The prompt; - reads it from stdin")->required();
  app->footer("\nExample:\n  weft run -m model.gguf -n 64 --temp 0 \"The loom\"");
  return [flags] { return Run(*flags); };
}

}  // namespace weft::cli
