// The syntax tree of a grammar in Lark's notation. Private to lark*.cc.
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

// The maximum nesting of groups, and of terminals within terminals.
inline constexpr int kMaxLarkDepth = 200;

struct LarkNode;
using LarkSequence = std::vector<LarkNode>;
using LarkAlternatives = std::vector<LarkSequence>;

struct LarkNode {
  enum class Kind : uint8_t { kName, kText, kPattern, kRange, kGroup };
  Kind kind = Kind::kName;
  std::string text;  // a name, text or pattern, or the start of a range
  std::string last;  // the end of a range
  bool any_case = false;
  LarkAlternatives group;
  int32_t least = 1, most = 1;  // repetition
  size_t at = 0;                // offset in the grammar's text
};

struct LarkDefinition {
  LarkAlternatives body;
  size_t at = 0;
};

struct LarkText {
  std::string_view text;
  std::map<std::string, LarkDefinition> rules, terminals;
  std::vector<LarkNode> ignored;

  // An error with the line number.
  Status Wrong(size_t at, std::string_view what) const;
};

// Whether the name is a terminal's; otherwise it is a rule's.
bool IsLarkTerminal(std::string_view name);
// `text` must outlive the result. The work is charged to the pool.
StatusOr<LarkText> ReadLarkText(std::string_view text, RegexPool* pool);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_GRAMMAR_LARK_TEXT_H_
