#include "cli/flags/constraint_flags.h"

#include <iostream>

#include "base/files/mapped_file.h"
#include "base/strings.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxSourceBytes = size_t{64} << 20;

StatusOr<std::string> SourceText(const char* flag, const std::string& path) {
  if (path != "-") {
    auto text = ReadFile(path, kMaxSourceBytes);
    WEFT_RETURN_IF_ERROR(Annotate(text.status(), flag, ": "));
    return text;
  }
  std::string line;
  if (!std::getline(std::cin, line))
    return InvalidArgument("stdin is empty; its first line must be the schema");
  return line;
}

}  // namespace

void AddConstraintFlags(CLI::App* app, ConstraintFlags* flags) {
  auto* const schema =
      app->add_option("--json-schema", flags->json_schema,
                      "A file with a JSON Schema, or the schema itself; - reads a line of stdin");
  auto* const grammar =
      app->add_option("--grammar", flags->grammar,
                      "A file with a grammar in llama-server's (GBNF) or Lark's notation");
  auto* const regex = app->add_option("--regex", flags->regex,
                                      "A regular expression that the whole text must match");
  schema->excludes(grammar)->excludes(regex);
  grammar->excludes(regex);
}

std::string NameOf(const ConstraintFlags& flags) {
  if (!flags.regex.empty()) return "--regex";
  if (!flags.grammar.empty()) return StrCat("--grammar ", Printable(flags.grammar, 300));
  if (flags.json_schema.starts_with("{")) return "--json-schema";
  return StrCat("--json-schema ", Printable(flags.json_schema, 300));
}

StatusOr<std::optional<ConstraintSpec>> ConstraintOf(const ConstraintFlags& flags) {
  if (flags.empty()) return std::nullopt;
  ConstraintSpec spec;
  if (!flags.regex.empty()) {
    spec.kind = ConstraintSpec::Kind::kRegex;
    spec.text = flags.regex;
  } else if (!flags.grammar.empty()) {
    spec.kind = ConstraintSpec::Kind::kGrammar;
    WEFT_ASSIGN_OR_RETURN(spec.text, SourceText("--grammar", flags.grammar));
  } else if (flags.json_schema.starts_with("{")) {
    spec.text = flags.json_schema;
  } else {
    WEFT_ASSIGN_OR_RETURN(spec.text, SourceText("--json-schema", flags.json_schema));
  }
  return spec;
}

}  // namespace weft::cli
