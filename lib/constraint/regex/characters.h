// Sets of code points, and the spelling of their members: plain UTF-8, or inside a JSON string.
//
// Inside a JSON string, every character has exactly one spelling here: itself, except for the
// quotation mark, the backslash and the control characters. These have their short escape, or
// otherwise \u00xx in lower case. With one spelling, complements and lengths are exact.
#ifndef WEFT_CONSTRAINT_REGEX_CHARACTERS_H_
#define WEFT_CONSTRAINT_REGEX_CHARACTERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/regex.h"

namespace weft::constraint {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

class CharSet {
 public:
  CharSet() = default;
  static CharSet All();  // all code points except surrogates

  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);
  CharSet Complement() const;
  // Sorted, disjoint, without surrogates.
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }
  bool Has(uint32_t c) const;

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

enum class Spelling : uint8_t { kPlain, kJson };

// One character of the set.
RegexId OneOf(RegexPool* pool, const CharSet& set, Spelling spelling);
// The spelling of one character.
std::string SpellOne(uint32_t c, Spelling spelling);
// The spelling of a text, without quotation marks.
std::string Spell(std::string_view text, Spelling spelling);
// A JSON string of `least` to `most` characters, including quotation marks.
RegexId QuotedJson(RegexPool* pool, int32_t least, int32_t most);
// A JSON string in any spelling, including \u0041 and \/.
RegexId AnySpellingJson(RegexPool* pool);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_CHARACTERS_H_
