// Compact JSON text: no spaces, valid UTF-8.
//
// Pure functions; any thread.
#ifndef WEFT_JSON_JSON_TEXT_H_
#define WEFT_JSON_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace weft {

// Invalid UTF-8 becomes U+FFFD: a token may hold half a character. Integers keep all their digits
// (json/big_integer.h).
std::string CompactJson(const nlohmann::ordered_json& value);

}  // namespace weft

#endif  // WEFT_JSON_JSON_TEXT_H_
