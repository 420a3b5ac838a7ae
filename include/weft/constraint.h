// What an answer must be: a JSON value that follows a schema, text that matches a regular
// expression or a grammar, or one of a few choices. docs/structured-output.md says what is
// enforced, and how.
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
  // A literal text in the answer, or a regular expression.
  struct Trigger {
    std::string text;
    bool is_pattern = false;
    bool operator==(const Trigger&) const = default;
  };
  enum class Kind : uint8_t {
    kJsonSchema,
    kRegex,    // the regular subset of ECMA-262; matches the whole answer
    kGrammar,  // GBNF with start rule `root`, or Lark with `start`
    kChoice,   // one of `choices`
  };
  Kind kind = Kind::kJsonSchema;
  std::string text = {};  // the schema, the pattern or the grammar
  std::vector<std::string> choices = {};
  // If not empty: the answer is free until the first trigger, where the constraint begins.
  std::vector<Trigger> triggers = {};
  bool any_property_order = false;  // otherwise in the schema's order
  bool compact = false;             // no space after commas and colons; otherwise the model chooses

  bool operator==(const ConstraintSpec&) const = default;
};

// Makes the masks for a turn's choices, to be used as TurnOptions::token_mask. The model caches
// recently compiled constraints. `begun` is the part of the answer already in the prompt.
//
// INVALID_ARGUMENT and UNIMPLEMENTED say in one sentence what cannot be enforced and where it is;
// RESOURCE_EXHAUSTED means that compiling takes too much. Any thread; may take 10 ms, or half a
// second for a model's first constraint.
absl::StatusOr<TokenMaskFactory> MakeConstraint(const Model& model, const ConstraintSpec& spec,
                                                std::string_view begun = "");

}  // namespace weft

#endif  // WEFT_CONSTRAINT_H_
