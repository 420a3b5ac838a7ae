// JSON that keeps all digits of integers beyond 64 bits, which occur in calls and schemas as ids,
// hashes and limits. A JSON library turns them into doubles and loses the last digits.
//
// Such an integer is stored as a value of the library's binary kind, which never occurs in JSON
// text. Pure functions; any thread.
#ifndef WEFT_JSON_BIG_INTEGER_H_
#define WEFT_JSON_BIG_INTEGER_H_

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace weft {

// The number as written if it is an integer that does not fit 64 bits; otherwise `value`.
nlohmann::ordered_json NumberAsWritten(double value, std::string_view written);

bool IsBigInteger(const nlohmann::ordered_json& value);
// REQUIRES: IsBigInteger(value).
std::string BigIntegerDigits(const nlohmann::ordered_json& value);
// Whether `value` contains one at any depth.
bool HasBigInteger(const nlohmann::ordered_json& value);

// Discarded (is_discarded()) if `text` is not JSON.
nlohmann::ordered_json ParseKeepingIntegers(std::string_view text);

}  // namespace weft

#endif  // WEFT_JSON_BIG_INTEGER_H_
