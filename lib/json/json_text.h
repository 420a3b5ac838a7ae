// JSON as text: one line, valid UTF-8.
//
// Pure functions; any thread.
#ifndef WEFT_JSON_JSON_TEXT_H_
#define WEFT_JSON_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace weft {

enum class JsonStyle {
  kCompact,  // no spaces
  kSpaced,   // a space after commas and colons, as templates and models write it
  kPython,   // spaced, with True, False and None
};

// Invalid UTF-8 becomes U+FFFD: a token may hold half a character. Integers keep all their digits
// (json/big_integer.h). Recursive: the depth is bounded by the limits of what was parsed.
std::string StyledJson(const nlohmann::ordered_json& value, JsonStyle style);

std::string CompactJson(const nlohmann::ordered_json& value);

}  // namespace weft

#endif  // WEFT_JSON_JSON_TEXT_H_
