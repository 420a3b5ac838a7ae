// Grammars in Lark's notation, as accepted by OpenAI's custom tools and llguidance.
//
// Supported: rules (lower case) over terminals (upper case), groups, [options], ? * + and ~n..m,
// aliases, priorities (which have no effect), "texts" with the flag i, /patterns/, "a".."z",
// %ignore, and %import from common. A rule may be left-recursive directly, but not through another
// rule. A text is in the grammar if it can be divided into terminals in any way: there is no lexer
// that would prefer one of them.
#ifndef WEFT_CONSTRAINT_GRAMMAR_LARK_H_
#define WEFT_CONSTRAINT_GRAMMAR_LARK_H_

#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// Adds the rules to `grammar` and returns the start rule, which calls `start`.
StatusOr<RuleId> AddLark(std::string_view text, Grammar* grammar);
// The same for a text in either notation.
StatusOr<RuleId> AddGrammar(std::string_view text, Grammar* grammar);
// Whether the grammar is in Lark's notation: one of its lines defines the rule `start` with a
// single colon.
bool IsLark(std::string_view text);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_LARK_H_
