// What an answer must be: a JSON value by a schema, a text by a regular expression or a grammar,
// or one of a few texts. docs/CONSTRAINTS.md says what is enforced, and how.
//
//   WEFT_ASSIGN_OR_RETURN(turn.token_mask,
//                         MakeConstraint(*model, {.text = R"({"type": "object"})"}));
#ifndef WEFT_CONSTRAINT_H_
#define WEFT_CONSTRAINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft {

struct ConstraintSpec {
  // A text that stands in the answer, or what matches a regular expression.
  struct Trigger {
    std::string text;
    bool is_pattern = false;
    bool operator==(const Trigger&) const = default;
  };
  enum class Kind : uint8_t {
    kJsonSchema,
    kRegex,    // ECMA-262 as far as it is regular; the whole answer matches
    kGrammar,  // GBNF, the answer being a `root`; or Lark's, a `start`
    kChoice,   // one of `choices`
  };
  Kind kind = Kind::kJsonSchema;
  std::string text = {};  // the schema, the pattern or the grammar
  std::vector<std::string> choices = {};
  // Not empty: the answer is free until the first of these, which is where the constraint begins.
  std::vector<Trigger> triggers = {};
  bool any_property_order = false;  // else as the schema lists them
  bool compact = false;             // no space behind commas and colons; else the model chooses

  bool operator==(const ConstraintSpec&) const = default;
};

// Makes the masks of a turn's choices, for TurnOptions::token_mask. Compiled once: the model keeps
// what was compiled last. `begun` is what the prompt has of the answer already.
//
// INVALID_ARGUMENT and UNIMPLEMENTED say in a sentence what cannot be enforced and where it stands;
// RESOURCE_EXHAUSTED that compiling takes too much. Any thread; it may take 10 ms, and the first
// of a model half a second.
absl::StatusOr<TokenMaskFactory> MakeConstraint(const Model& model, const ConstraintSpec& spec,
                                                std::string_view begun = "");

}  // namespace weft

#endif  // WEFT_CONSTRAINT_H_
