// What a grammar in the notation of Lark says, as it was read. Private to lark*.cc.
#ifndef WEFT_CONSTRAINT_GRAMMAR_LARK_TEXT_H_
#define WEFT_CONSTRAINT_GRAMMAR_LARK_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

// Groups, and terminals within terminals, are nested no deeper.
inline constexpr int kMostLarkDepth = 200;

struct LarkNode;
using LarkSequence = std::vector<LarkNode>;
using LarkAlternatives = std::vector<LarkSequence>;

struct LarkNode {
  enum class Kind : uint8_t { kName, kText, kPattern, kRange, kGroup };
  Kind kind = Kind::kName;
  std::string text;  // a name, a text, a pattern, the first of a range
  std::string last;  // of a range
  bool any_case = false;
  LarkAlternatives group;
  int32_t least = 1, most = 1;  // how many times
  size_t at = 0;                // in the grammar's text
};

struct LarkDefinition {
  LarkAlternatives body;
  size_t at = 0;
};

struct LarkText {
  std::string_view text;
  std::map<std::string, LarkDefinition> rules, terminals;
  std::vector<LarkNode> ignored;

  // An error that names the line.
  Status Wrong(size_t at, std::string_view what) const;
};

// Its name says whether something is a terminal or a rule.
bool IsLarkTerminal(std::string_view name);
// `text` outlives what was read. Reading is charged to the pool.
StatusOr<LarkText> ReadLarkText(std::string_view text, RegexPool* pool);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_LARK_TEXT_H_
