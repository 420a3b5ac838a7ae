// Grammars in the notation of Lark, as OpenAI's custom tools and llguidance take them.
//
// Rules (lower case) over terminals (upper case), groups, [options], ? * + and ~n..m, aliases,
// priorities (which say nothing here), "texts" with the flag i, /patterns/, "a".."z", %ignore and
// %import from common. A rule may call itself first, another rule before that not. A text belongs
// to the grammar where it can be cut into terminals at all; what a lexer would rather cut does not
// count.
#ifndef WEFT_CONSTRAINT_GRAMMAR_LARK_H_
#define WEFT_CONSTRAINT_GRAMMAR_LARK_H_

#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// Reads rules into `grammar`, and gives `start`, which is where a text begins.
StatusOr<RuleId> AddLark(std::string_view text, Grammar* grammar);
// The same of a text in either notation.
StatusOr<RuleId> AddGrammar(std::string_view text, Grammar* grammar);
// Whether a grammar is one of Lark's: it has a line that begins the rule `start` with one colon.
bool IsLark(std::string_view text);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_LARK_H_
