// weft score: the probability of a continuation after a context, for evaluations.
#include <deque>
#include <iostream>
#include <memory>
#include <string>

#include "base/tokens.h"
#include "cli/commands/command.h"
#include "cli/flags/model_flags.h"
#include "cli/terminal/output.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

// Concurrent turns: enough to fill a step, few enough that output flows.
constexpr size_t kPromptsAtOnce = 8;

struct Pending {
  std::shared_ptr<Turn> turn;
  size_t n_context = 0;  // tokens before the continuation
};

// The tokens of a text to be continued: started as the model wants, not ended.
std::vector<int32_t> TokensOf(const Model& model, const std::string& text) {
  std::vector<int32_t> tokens = model.Encode(text, /*add_special=*/false, /*parse_special=*/true);
  const Tokenizer& tokenizer = *model.tokenizer();
  if (tokenizer.adds_bos()) tokens.insert(tokens.begin(), tokenizer.bos());
  return tokens;
}

// What precedes a text's first token if the model adds nothing there: the end of another text.
StatusOr<int32_t> EndOfAnotherText(const Tokenizer& tokenizer) {
  for (const TokenId token : {tokenizer.eos(), tokenizer.eot(), tokenizer.bos()}) {
    if (token != kNoToken) return token;
  }
  return InvalidArgument(
      "the model has no token to put before the continuation; give a \"context\"");
}

StatusOr<Pending> SubmitLine(Engine* engine, const std::string& line, int64_t number) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("context") || !json.contains("continuation") ||
      !json["context"].is_string() || !json["continuation"].is_string()) {
    return InvalidArgument("line ", number,
                           " is not an object with the strings \"context\" and \"continuation\"");
  }
  const Model& model = engine->model();
  const std::string context = json["context"];
  const std::vector<int32_t> before = TokensOf(model, context);
  TurnOptions options;
  options.tokens = TokensOf(model, context + json["continuation"].get<std::string>());
  // Tokens that span the border count as part of the continuation.
  size_t n_context = static_cast<size_t>(CommonLength(before, options.tokens));
  if (n_context == 0) {
    WEFT_ASSIGN_OR_RETURN(const int32_t end, EndOfAnotherText(*model.tokenizer()));
    options.tokens.insert(options.tokens.begin(), end);
    n_context = 1;
  }
  options.max_tokens = 0;
  options.prompt_logprobs = true;
  options.top_logprobs = 0;
  WEFT_ASSIGN_OR_RETURN(auto turn, engine->SubmitOnce("", options));
  return Pending{.turn = std::move(turn), .n_context = n_context};
}

Status PrintScore(const Pending& pending) {
  double sum = 0;
  bool greedy = true;
  size_t n_tokens = 0;
  while (auto event = pending.turn->Next()) {
    if (const auto* started = std::get_if<StartedEvent>(&*event)) {
      const auto& entries = started->prompt_logprobs;
      for (size_t i = pending.n_context; i < entries.size(); ++i) {
        sum += static_cast<double>(entries[i].token.logprob);
        greedy = greedy && entries[i].is_greedy;
        ++n_tokens;
      }
    }
    if (const auto* done = std::get_if<DoneEvent>(&*event)) WEFT_RETURN_IF_ERROR(done->status);
  }
  PrintJsonLine({{"logprob", sum}, {"is_greedy", greedy}, {"tokens", n_tokens}});
  return OkStatus();
}

Status Score(const ModelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const EngineOptions options, FlaggedEngineOptions(flags));
  WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags));
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  std::deque<Pending> window;
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    WEFT_ASSIGN_OR_RETURN(Pending pending, SubmitLine(engine.get(), line, number));
    window.push_back(std::move(pending));
    if (window.size() < kPromptsAtOnce) continue;
    WEFT_RETURN_IF_ERROR(PrintScore(window.front()));
    window.pop_front();
  }
  for (const Pending& pending : window) WEFT_RETURN_IF_ERROR(PrintScore(pending));
  return FlushStdout();
}

}  // namespace

CommandBody MakeScoreCommand(CLI::App* app) {
  auto flags = std::make_shared<ModelFlags>();
  AddModelFlag(app, flags.get());
  AddComputeFlags(app, flags.get());
  AddContextFlag(app, flags.get());
  app->footer(
      "\nReads one JSON object per line from stdin: {\"context\": \"...\", \"continuation\":\n"
      "\"...\"} and prints one per line: {\"logprob\": sum over the continuation's tokens,\n"
      "\"is_greedy\": whether each was the model's first choice, \"tokens\": number of tokens}.");
  return [flags] { return Score(*flags); };
}

}  // namespace weft::cli
