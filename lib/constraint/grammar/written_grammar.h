// Grammars whose text is embedded in another text: between quotation marks, or before a terminating
// text.
#ifndef WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_
#define WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// How the text of the grammar is embedded.
struct TextStyle {
  enum class Escapes : uint8_t { kNone, kJson, kPython };  // as between quotation marks
  Escapes escapes = Escapes::kNone;
  // The text must never contain this terminator.
  std::string without = {};
};

// Adds a grammar in GBNF or Lark's notation and returns its start rule. Unimplemented if successive
// terminals might together contain `style.without`.
StatusOr<RuleId> AddWrittenGrammar(std::string_view text, const TextStyle& style, Grammar* grammar);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_
