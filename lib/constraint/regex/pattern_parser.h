// Parses the text of a regular expression. Private to patterns.
#ifndef WEFT_CONSTRAINT_REGEX_PATTERN_PARSER_H_
#define WEFT_CONSTRAINT_REGEX_PATTERN_PARSER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "constraint/regex/characters.h"

namespace weft::constraint {

struct PatternNode {
  enum class Kind : uint8_t { kSet, kSequence, kChoice, kRepeat, kBegin, kEnd, kAhead, kNotAhead };
  Kind kind = Kind::kSequence;
  CharSet set;
  std::vector<PatternNode> parts;
  int32_t least = 0, most = 0;
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  StatusOr<PatternNode> Parse();
  StatusOr<CharSet> ParseClass();  // after its '['
  size_t at() const { return at_; }

 private:
  StatusOr<PatternNode> ParseChoice(int depth);
  StatusOr<PatternNode> ParseSequence(int depth);
  StatusOr<PatternNode> ParseAtom(int depth);
  StatusOr<PatternNode> ParseGroup(int depth);
  Status ParseQuantifier(PatternNode* atom);
  bool ReadBraces(int32_t* least, int32_t* most);
  // The set of an escape; starts after the backslash.
  StatusOr<CharSet> ParseEscape(bool in_class);
  StatusOr<CharSet> ParseProperty(bool negated);
  StatusOr<uint32_t> ParseHex(int digits);
  StatusOr<uint32_t> ParseUnicodeEscape();
  uint32_t NextChar();
  bool AtEnd() const { return at_ >= text_.size(); }
  bool Take(std::string_view expected);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_PATTERN_PARSER_H_
