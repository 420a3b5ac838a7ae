// JSON that keeps the digits of integers beyond 64 bits, as calls and schemas may have them: ids,
// hashes, limits. A JSON library makes doubles of them, whose last digits are others.
//
// Such an integer is a value of the library's binary kind, which JSON as text has none of.
// Functions of their arguments; any thread.
#ifndef WEFT_JSON_BIG_INTEGER_H_
#define WEFT_JSON_BIG_INTEGER_H_

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace weft {

// A number as it was written, where it is an integer that 64 bits do not hold; else `value`.
nlohmann::ordered_json NumberAsWritten(double value, std::string_view written);

bool IsBigInteger(const nlohmann::ordered_json& value);
// REQUIRES: it is one
std::string BigIntegerDigits(const nlohmann::ordered_json& value);
// Whether there is one anywhere in it.
bool HasBigInteger(const nlohmann::ordered_json& value);

// Discarded (is_discarded()) where `text` is no JSON.
nlohmann::ordered_json ParseKeepingIntegers(std::string_view text);

}  // namespace weft

#endif  // WEFT_JSON_BIG_INTEGER_H_
