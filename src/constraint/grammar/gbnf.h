// Grammars as llama-server takes them (GBNF).
#ifndef WEFT_CONSTRAINT_GRAMMAR_GBNF_H_
#define WEFT_CONSTRAINT_GRAMMAR_GBNF_H_

#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// Reads rules into `grammar`, and gives `root`, which is where a text begins.
StatusOr<RuleId> AddGbnf(std::string_view text, Grammar* grammar);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_GBNF_H_
