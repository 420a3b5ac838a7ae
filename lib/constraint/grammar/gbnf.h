// Grammars in llama-server's notation (GBNF).
#ifndef WEFT_CONSTRAINT_GRAMMAR_GBNF_H_
#define WEFT_CONSTRAINT_GRAMMAR_GBNF_H_

#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// Adds the rules to `grammar` and returns `root`, the start rule.
StatusOr<RuleId> AddGbnf(std::string_view text, Grammar* grammar);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_GBNF_H_
