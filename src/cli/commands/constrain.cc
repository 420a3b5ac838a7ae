// weft constrain: checks texts against the masks of a schema, a grammar or a regular expression.
#include <algorithm>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer/masks/constraint_mask.h"
#include "cli/commands/command.h"
#include "cli/flags/constraint_flags.h"
#include "cli/flags/model_flags.h"
#include "cli/flags/sampling_flags.h"
#include "cli/terminal/output.h"
#include "constraint/constraint.h"
#include "engine/loading/token_table_of.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokens_behind.h"
#include "nlohmann/json.hpp"
#include "weft/engine.h"

namespace weft::cli {
namespace {

using constraint::Constraint;
using constraint::ConstraintOptions;
using constraint::ConstraintState;
using constraint::PropertyOrder;
using constraint::WhiteSpace;

constexpr int kRefused = 3;
// Answers generated concurrently.
constexpr int64_t kAtOnce = 8;

struct ConstrainFlags {
  ModelFlags model;
  ConstraintFlags constraint;
  int64_t generate = 0;
  SamplingFlags sampling{.n = 512};
  std::string prompt;
  std::string order = "any";
  std::string white_space = "optional";
  int64_t max_work = ConstraintOptions{}.max_work;
  int64_t max_megabytes = ConstraintOptions{}.max_bytes >> 20;
};

StatusOr<std::shared_ptr<const Constraint>> Compile(
    const ConstrainFlags& flags, const ConstraintSpec& spec,
    std::shared_ptr<const constraint::TokenTable> table) {
  ConstraintOptions options;
  options.property_order = flags.order == "any" ? PropertyOrder::kAny : PropertyOrder::kSchema;
  options.white_space = flags.white_space == "compact"  ? WhiteSpace::kCompact
                        : flags.white_space == "spaced" ? WhiteSpace::kSpaced
                        : flags.white_space == "any"    ? WhiteSpace::kAny
                                                        : WhiteSpace::kOptionalSpace;
  options.max_work = flags.max_work;
  options.max_bytes = flags.max_megabytes << 20;
  switch (spec.kind) {
    case ConstraintSpec::Kind::kRegex:
      return Constraint::Regex(spec.text, options, std::move(table));
    case ConstraintSpec::Kind::kGrammar:
      return Constraint::FromGrammar(spec.text, options, std::move(table));
    default:
      return Constraint::JsonSchema(spec.text, options, std::move(table));
  }
}

nlohmann::json WalkText(const Constraint& constraint, const Tokenizer& tokenizer,
                        const std::string& text) {
  std::vector<TokenId> tokens = TokensBehind(tokenizer, text);
  // Refused if the two differ.
  if (tokens.empty()) tokens = tokenizer.Encode(text, {});
  ConstraintState state = constraint.Begin();
  std::vector<uint32_t> mask(constraint.tokens().mask_words());
  double sum_us = 0, max_us = 0;
  int64_t masks = 0;
  const auto fill = [&] {
    const auto begin = std::chrono::steady_clock::now();
    state.FillMask(mask);
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    sum_us += us;
    max_us = std::max(max_us, us);
    ++masks;
  };
  nlohmann::json refused_at;
  for (const TokenId token : tokens) {
    fill();
    const auto id = static_cast<size_t>(token);
    if ((mask[id / 32] >> (id % 32) & 1) != 0 && state.Advance(token)) continue;
    refused_at = state.text().size() + state.AllowedPrefix(constraint.tokens().Bytes(token));
    break;
  }
  if (refused_at.is_null()) {
    fill();
    if (!state.CanEnd()) refused_at = state.text().size();
  }
  return {{"accepted", refused_at.is_null()},
          {"at", refused_at},
          {"masks", masks},
          {"mask_us", sum_us / static_cast<double>(masks)},
          {"max_us", max_us}};
}

// An answer of the model, and how it ended. The prompt is continued as plain text, without a chat
// template.
StatusOr<nlohmann::json> FinishAnswer(Turn* turn) {
  std::string text;
  nlohmann::json answer;
  while (auto event = turn->Next()) {
    if (const auto* token = std::get_if<TokenEvent>(&*event)) text += token->text;
    const auto* const done = std::get_if<DoneEvent>(&*event);
    if (done == nullptr) continue;
    WEFT_RETURN_IF_ERROR(done->status);
    text += done->text;
    const bool is_whole = done->reason == FinishReason::kStop;
    answer = {{"text", text},
              {"finish_reason", is_whole ? "stop" : "length"},
              {"tokens", done->usage.completion_tokens}};
  }
  return answer;
}

Status Generate(const ConstrainFlags& flags, const std::shared_ptr<const Constraint>& constraint,
                const std::shared_ptr<const Model>& model, const SamplingAdvice& advice) {
  WEFT_ASSIGN_OR_RETURN(const EngineOptions options, FlaggedEngineOptions(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto engine, Engine::Start(model, options));
  TurnOptions turn;
  ApplySamplingFlags(flags.sampling, advice, *model->tokenizer(), &turn);
  turn.tokens = model->Encode(flags.prompt, /*add_special=*/true, /*parse_special=*/true);
  // An answer needs something to follow.
  if (turn.tokens.empty()) turn.tokens = model->Encode("\n", true, true);
  turn.token_mask = [tokenizer = model->tokenizer(), constraint](int) {
    return std::make_unique<ConstraintMask>(tokenizer, constraint->Begin());
  };
  turn.end_loops = false;
  const uint64_t seed = turn.sampling.seed.value_or(0);  // incremented for each answer
  std::deque<std::shared_ptr<Turn>> running;
  for (int64_t submitted = 0; submitted < flags.generate || !running.empty();) {
    while (submitted < flags.generate && static_cast<int64_t>(running.size()) < kAtOnce) {
      turn.sampling.seed = seed + static_cast<uint64_t>(submitted++);
      WEFT_ASSIGN_OR_RETURN(auto next, engine->SubmitOnce("", turn));
      running.push_back(std::move(next));
    }
    WEFT_ASSIGN_OR_RETURN(const nlohmann::json answer, FinishAnswer(running.front().get()));
    running.pop_front();
    PrintJsonLine(answer);
  }
  return FlushStdout();
}

Status Refused(const ConstrainFlags& flags, const Status& why) {
  return WithExitCode(Annotate(why, NameOf(flags.constraint), ": "), kRefused);
}

Status Constrain(const ConstrainFlags& flags) {
  if (flags.constraint.empty()) {
    return InvalidArgument("give --json-schema FILE, --grammar FILE or --regex R");
  }
  WEFT_ASSIGN_OR_RETURN(const auto spec, ConstraintOf(flags.constraint));
  if (flags.generate > 0) {
    WEFT_ASSIGN_OR_RETURN(const FlaggedModel found, OpenFlaggedModel(flags.model));
    WEFT_ASSIGN_OR_RETURN(const auto model, LoadFlaggedModel(flags.model, found.file));
    const auto made = Compile(flags, *spec, TokenTableOf(*model->tokenizer()));
    if (!made.ok()) return Refused(flags, made.status());
    return Generate(flags, *made, model, found.advice);
  }
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  const auto made = Compile(flags, *spec, TokenTableOf(*tokenizer));
  if (!made.ok()) return Refused(flags, made.status());
  std::string line;
  while (std::getline(std::cin, line)) PrintJsonLine(WalkText(**made, *tokenizer, line));
  return FlushStdout();
}

}  // namespace

CommandBody MakeConstrainCommand(CLI::App* app) {
  auto flags = std::make_shared<ConstrainFlags>();
  AddModelFlag(app, &flags->model);
  AddConstraintFlags(app, &flags->constraint);
  app->add_option("--generate", flags->generate,
                  "Generate this many constrained answers instead of reading texts, and print each "
                  "as a JSON line")
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("-p,--prompt", flags->prompt, "The text that the answers continue");
  AddComputeFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  AddPredictFlag(app, &flags->sampling);
  AddSamplingFlags(app, &flags->sampling);
  app->add_option("--order", flags->order, "Order of properties: as in the schema, or any")
      ->check(CLI::IsMember({"schema", "any"}))
      ->capture_default_str();
  app->add_option("--white-space", flags->white_space,
                  "White space after commas and colons: a space or none (optional), none "
                  "(compact), one space (spaced); or spaces and line ends anywhere (any)")
      ->check(CLI::IsMember({"optional", "compact", "spaced", "any"}))
      ->capture_default_str();
  app->add_option("--most-work", flags->max_work, "Max steps of work for compiling")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--most-mb", flags->max_megabytes, "Max memory for compiling, in megabytes")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->footer(
      "\nReads texts from stdin, one per line, tokenizes each with the model's tokenizer, checks\n"
      "it against the masks and prints a JSON line: whether it is accepted, the byte at which\n"
      "it was refused, and the cost of the masks. A constraint that cannot be enforced exactly\n"
      "gives an error on stderr and exit code 3.");
  return [flags] { return Constrain(*flags); };
}

}  // namespace weft::cli
