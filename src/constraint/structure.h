// A text made of parts of different kinds: literal texts, values of JSON Schemas, regular
// expressions, grammars, free text up to a marker, control tokens; one after the other, one of
// several, or repeated. Constraint::Structured makes a constraint of it.
//
// A literal may contain control tokens: ControlBytes(id) in token_table.h is what such a token is
// written as. Free text, values and regular expressions never contain any.
//
// A Structure is a value, cheap to copy: its parts are shared and never change. The same part at
// several places is compiled once.
#ifndef WEFT_CONSTRAINT_STRUCTURE_H_
#define WEFT_CONSTRAINT_STRUCTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constraint/grammar/written_grammar.h"
#include "constraint/regex/regex.h"
#include "constraint/schema/options.h"
#include "constraint/schema/schema_part.h"

namespace weft::constraint {

// Text of any characters but for what is excluded.
struct FreeText {
  std::vector<std::string> without;           // these stand nowhere in it
  std::vector<std::string> without_patterns;  // nor what these regular expressions match
  std::vector<std::string> unlike;            // none of these matches all of it
};

// Strings of a schema as they read, up to a closing text.
struct RawStrings {
  SchemaPart schema;
  std::vector<std::string> unlike;  // regular expressions of texts that would be no strings
  enum class Breaks : uint8_t {
    kExact,     // the text is the string
    kAround,    // a line break before it and one behind it are no part of it
    kPossible,  // the same, where they are there
  };
  Breaks breaks = Breaks::kExact;
  std::string close;       // a literal
  std::string close_text;  // what it reads
};

class Structure {
 public:
  Structure() : Structure(Literal("")) {}

  static Structure Literal(std::string bytes);
  // The whole text must match.
  static Structure Pattern(std::string regex);
  // GBNF, or Lark's notation.
  static Structure FromGrammar(std::string grammar, TextStyle style = {});
  static Structure Value(SchemaPart schema, ValueStyle style = {},
                         ValueKinds kinds = ValueKinds::kAll);
  static Structure Strings(RawStrings strings);
  // Ends wherever what follows may begin, or the text may end.
  static Structure Text(FreeText text);
  // Free text and the marker behind it, a literal; where that is text, it stands nowhere before.
  static Structure TextUntil(FreeText text, std::string marker);
  static Structure TextUntilPattern(FreeText text, std::string marker);
  static Structure Sequence(std::vector<Structure> parts);
  static Structure OneOf(std::vector<Structure> parts);
  // REQUIRES: 0 <= least, and least <= most or most == kUnlimited.
  static Structure Repeat(Structure part, int32_t least, int32_t most);
  static Structure Optional(Structure part) { return Repeat(std::move(part), 0, 1); }

 private:
  friend class StructureCompiler;
  enum class Kind : uint8_t {
    kLiteral,
    kPattern,
    kGrammar,
    kValue,
    kStrings,
    kText,
    kTextUntil,
    kTextUntilPattern,
    kSequence,
    kOneOf,
    kRepeat
  };
  struct Node {
    Kind kind = Kind::kLiteral;
    std::string text;  // a literal, a pattern, a grammar, a marker
    SchemaPart schema;
    ValueStyle style;
    ValueKinds kinds = ValueKinds::kAll;
    RawStrings strings;
    TextStyle written;  // of a grammar
    FreeText free;
    std::vector<Structure> parts;
    int32_t least = 0, most = 0;
  };
  explicit Structure(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}

  std::shared_ptr<const Node> node_;
};

// Fills and finishes `grammar`. `controls` are the tokens of the literals, each once.
Status CompileStructure(const Structure& structure, const ConstraintOptions& options,
                        Grammar* grammar, std::vector<int32_t>* controls);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_STRUCTURE_H_
