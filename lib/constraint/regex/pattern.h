// Regular expressions in ECMA-262 syntax, as far as they are regular.
//
// Look-ahead is supported outside of repetitions. Back references, look-behind and word boundaries
// are refused by name.
#ifndef WEFT_CONSTRAINT_REGEX_PATTERN_H_
#define WEFT_CONSTRAINT_REGEX_PATTERN_H_

#include <string_view>

#include "base/status.h"
#include "constraint/regex/characters.h"
#include "constraint/regex/regex.h"

namespace weft::constraint {

// Longer patterns are refused.
inline constexpr size_t kMaxPatternBytes = 16384;

// The JSON strings, quotation marks included, in which `pattern` matches somewhere.
StatusOr<RegexId> JsonStringsMatching(RegexPool* pool, std::string_view pattern, int32_t least = 0,
                                      int32_t most = kUnlimited);
// The texts that `pattern` matches from beginning to end.
StatusOr<RegexId> WholeTextsMatching(RegexPool* pool, std::string_view pattern);

// For grammars: reads a class ("[a-z]") that starts at `*at`, and moves past it.
StatusOr<CharSet> ReadCharClass(std::string_view text, size_t* at);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_REGEX_PATTERN_H_
