// A text composed of parts: literal texts, JSON values of a schema, regular expressions, grammars,
// free text up to a marker, control tokens. Parts follow one another, are alternatives, or are
// repeated. Constraint::Structured compiles it.
//
// A literal may contain control tokens, written as ControlBytes(id) of token_table.h. Free text,
// values and regular expressions never contain any.
//
// A Structure is a value, cheap to copy: its parts are shared and immutable. A part that is used in
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

// Any text, with exclusions.
struct FreeText {
  std::vector<std::string> without;           // texts that it must not contain
  std::vector<std::string> without_patterns;  // regular expressions that must not match within it
  std::vector<std::string> unlike;            // regular expressions that must not match all of it
};

// The strings of a schema without quotes and escapes, up to a closing text.
struct RawStrings {
  SchemaPart schema;
  std::vector<std::string> unlike;  // regular expressions of texts that are not read as strings
  enum class Breaks : uint8_t {
    kExact,     // the text is the string
    kAround,    // a line break before and one after it are not part of the string
    kPossible,  // the same, but each line break may be missing
  };
  Breaks breaks = Breaks::kExact;
  std::string close;       // a literal
  std::string close_text;  // the text of `close`, which the string must not contain
};

class Structure {
 public:
  Structure() : Structure(Literal("")) {}

  static Structure Literal(std::string bytes);
  // The whole text must match.
  static Structure Pattern(std::string regex);
  // GBNF or Lark's notation.
  static Structure FromGrammar(std::string grammar, TextStyle style = {});
  static Structure Value(SchemaPart schema, ValueStyle style = {},
                         ValueKinds kinds = ValueKinds::kAll);
  static Structure Strings(RawStrings strings);
  // Ends wherever the next part may begin, or where the text may end.
  static Structure Text(FreeText text);
  // Free text followed by `marker`, a literal. If the marker is text, it cannot occur earlier.
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
    std::string text;  // literal, pattern, grammar or marker
    SchemaPart schema;
    ValueStyle style;
    ValueKinds kinds = ValueKinds::kAll;
    RawStrings strings;
    TextStyle written;  // for a grammar
    FreeText free;
    std::vector<Structure> parts;
    int32_t least = 0, most = 0;
  };
  explicit Structure(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}

  std::shared_ptr<const Node> node_;
};

// Fills and finishes `grammar`. `controls` gets the control tokens of the literals, without
// duplicates.
Status CompileStructure(const Structure& structure, const ConstraintOptions& options,
                        Grammar* grammar, std::vector<int32_t>* controls);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_STRUCTURE_H_
