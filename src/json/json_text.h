// JSON as text, as it travels: without spaces, in valid UTF-8.
//
// Functions of their arguments; any thread.
#ifndef WEFT_JSON_JSON_TEXT_H_
#define WEFT_JSON_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace weft {

// Bytes that are no UTF-8 become U+FFFD: a token may be half a character. Integers keep all
// their digits (json/big_integer.h).
std::string CompactJson(const nlohmann::ordered_json& value);

}  // namespace weft

#endif  // WEFT_JSON_JSON_TEXT_H_
