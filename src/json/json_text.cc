#include "json/json_text.h"

#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Append(const Json& value, std::string* text) {
  const char* separator = "";
  if (value.is_object()) {
    *text += '{';
    for (const auto& [key, member] : value.items()) {
      *text += separator + Dump(key) + ':';
      Append(member, text);
      separator = ",";
    }
    *text += '}';
  } else if (value.is_array()) {
    *text += '[';
    for (const Json& element : value) {
      *text += separator;
      Append(element, text);
      separator = ",";
    }
    *text += ']';
  } else {
    *text += IsBigInteger(value) ? BigIntegerDigits(value) : Dump(value);
  }
}

}  // namespace

std::string CompactJson(const Json& value) {
  if (!HasBigInteger(value)) return Dump(value);
  std::string text;
  Append(value, &text);
  return text;
}

}  // namespace weft
