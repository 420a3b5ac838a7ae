// weft constrain: texts through the masks of a schema, a grammar or a regular expression.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "constraint/constraint.h"
#include "constraint/vocabulary_bytes.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"

namespace weft::cli {
namespace {

using constraint::Constraint;
using constraint::ConstraintOptions;
using constraint::ConstraintState;
using constraint::PropertyOrder;
using constraint::WhiteSpace;

constexpr size_t kMostSourceBytes = size_t{64} << 20;
constexpr int kRefused = 3;

struct ConstrainFlags {
  ModelFlags model;
  std::string json_schema, grammar, regex;
  std::string order = "any";
  std::string white_space = "optional";
  int64_t most_work = ConstraintOptions{}.most_work;
  int64_t most_megabytes = ConstraintOptions{}.most_bytes >> 20;
};

// The text of a file, or the first line of stdin for "-".
StatusOr<std::string> SourceText(const std::string& path) {
  if (path != "-") return ReadFile(path, kMostSourceBytes);
  std::string line;
  if (!std::getline(std::cin, line))
    return InvalidArgument("stdin has no first line to be the schema");
  return line;
}

StatusOr<std::shared_ptr<const Constraint>> Compile(
    const ConstrainFlags& flags, std::shared_ptr<const constraint::TokenTable> table) {
  ConstraintOptions options;
  options.property_order = flags.order == "any" ? PropertyOrder::kAny : PropertyOrder::kSchema;
  options.white_space = flags.white_space == "compact"  ? WhiteSpace::kCompact
                        : flags.white_space == "spaced" ? WhiteSpace::kSpaced
                        : flags.white_space == "any"    ? WhiteSpace::kAny
                                                        : WhiteSpace::kOptionalSpace;
  options.most_work = flags.most_work;
  options.most_bytes = flags.most_megabytes << 20;
  if (!flags.regex.empty()) return Constraint::Regex(flags.regex, options, std::move(table));
  const std::string& path = flags.grammar.empty() ? flags.json_schema : flags.grammar;
  WEFT_ASSIGN_OR_RETURN(const std::string text, SourceText(path));
  return flags.grammar.empty() ? Constraint::JsonSchema(text, options, std::move(table))
                               : Constraint::FromGrammar(text, options, std::move(table));
}

std::string Joined(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += tokenizer.Piece(token, /*render_special=*/false);
  return text;
}

// The tokens of an answer: those of the text without the space that some vocabularies put
// before a text that begins.
std::vector<TokenId> TokensOf(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> tokens = tokenizer.Encode(text, {});
  if (Joined(tokenizer, tokens) == text) return tokens;
  std::vector<TokenId> behind = tokenizer.Encode("\n" + text, {});
  size_t bytes = Joined(tokenizer, behind).size();
  auto first = behind.begin();
  while (first != behind.end() && bytes > text.size()) {
    bytes -= tokenizer.Piece(*first++, /*render_special=*/false).size();
  }
  behind.erase(behind.begin(), first);
  return Joined(tokenizer, behind) == text ? behind : tokens;
}

nlohmann::json WalkText(const Constraint& constraint, const Tokenizer& tokenizer,
                        const std::string& text) {
  const std::vector<TokenId> tokens = TokensOf(tokenizer, text);
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

Status Constrain(const ConstrainFlags& flags) {
  if (flags.json_schema.empty() && flags.grammar.empty() && flags.regex.empty()) {
    return InvalidArgument("give --json-schema FILE, --grammar FILE or --regex R");
  }
  WEFT_ASSIGN_OR_RETURN(const auto file, OpenFlaggedFile(flags.model));
  WEFT_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(*file));
  const auto made = Compile(flags, constraint::TableOf(*tokenizer));
  if (!made.ok()) return WithExitCode(made.status(), kRefused);
  std::string line;
  while (std::getline(std::cin, line)) PrintJsonLine(WalkText(**made, *tokenizer, line));
  return FlushStdout();
}

}  // namespace

CommandBody MakeConstrainCommand(CLI::App* app) {
  auto flags = std::make_shared<ConstrainFlags>();
  AddModelFlag(app, &flags->model);
  auto* const schema =
      app->add_option("--json-schema", flags->json_schema,
                      "A file with a JSON Schema; - takes the first line of stdin");
  auto* const grammar = app->add_option("--grammar", flags->grammar,
                                        "A file with a grammar in llama-server's notation (GBNF)");
  auto* const regex =
      app->add_option("--regex", flags->regex, "A regular expression for the whole text");
  schema->excludes(grammar)->excludes(regex);
  grammar->excludes(regex);
  app->add_option("--order", flags->order, "Properties in the order of the schema, or in any")
      ->check(CLI::IsMember({"schema", "any"}))
      ->capture_default_str();
  app->add_option(
         "--white-space", flags->white_space,
         "Behind commas and colons: a space or none (optional), none (compact), one (spaced); "
         "or blanks and line ends anywhere (any)")
      ->check(CLI::IsMember({"optional", "compact", "spaced", "any"}))
      ->capture_default_str();
  app->add_option("--most-work", flags->most_work, "Steps of work that compiling may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--most-mb", flags->most_megabytes, "Megabytes that compiling may take")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app->footer(
      "\nReads texts from stdin, one a line, tokenizes each as the model does, walks it through "
      "the "
      "masks and\nprints a JSON line: whether it is accepted, the byte at which it was refused, "
      "and "
      "what the masks took.\nA constraint that cannot be enforced exactly is a sentence on stderr "
      "and "
      "exit code 3.");
  return [flags] { return Constrain(*flags); };
}

}  // namespace weft::cli
