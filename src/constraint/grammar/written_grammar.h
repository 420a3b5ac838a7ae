// Grammars whose text stands within something else: between quotation marks, or before a text that
// ends it.
#ifndef WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_
#define WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "constraint/grammar/grammar.h"

namespace weft::constraint {

// How the text of a grammar is written.
struct TextStyle {
  enum class Escapes : uint8_t { kNone, kJson, kPython };  // as between quotation marks
  Escapes escapes = Escapes::kNone;
  // The text never contains this: it is what ends it.
  std::string without = {};
};

// GBNF, or Lark's notation. The rule with which it begins. Unimplemented where it cannot be told
// whether the text of several terminals might contain `style.without`.
StatusOr<RuleId> AddWrittenGrammar(std::string_view text, const TextStyle& style, Grammar* grammar);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_WRITTEN_GRAMMAR_H_
