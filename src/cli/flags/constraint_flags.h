// Flags that constrain answers.
#ifndef WEFT_CLI_FLAGS_CONSTRAINT_FLAGS_H_
#define WEFT_CLI_FLAGS_CONSTRAINT_FLAGS_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "weft/constraint.h"

namespace weft::cli {

struct ConstraintFlags {
  std::string json_schema, grammar, regex;

  bool empty() const { return json_schema.empty() && grammar.empty() && regex.empty(); }
};

void AddConstraintFlags(CLI::App* app, ConstraintFlags* flags);
// For errors: the flag that was given, and its file if it has one.
std::string NameOf(const ConstraintFlags& flags);
// Reads the file of a schema or a grammar; "-" is the first line of stdin, and text that begins
// with "{" is the schema itself. Nothing if no flag was given.
StatusOr<std::optional<ConstraintSpec>> ConstraintOf(const ConstraintFlags& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_CONSTRAINT_FLAGS_H_
