#include "json/json_text.h"

#include <string_view>

#include "base/strings.h"
#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct Words {
  std::string_view comma, colon, yes, no, null;
};

Words WordsOf(JsonStyle style) {
  switch (style) {
    case JsonStyle::kCompact:
      return {",", ":", "true", "false", "null"};
    case JsonStyle::kSpaced:
      return {", ", ": ", "true", "false", "null"};
    case JsonStyle::kPython:
      break;
  }
  return {", ", ": ", "True", "False", "None"};
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

void Append(const Json& value, const Words& words, std::string* text) {
  if (value.is_structured()) {
    const bool object = value.is_object();
    *text += object ? '{' : '[';
    std::string_view separator;
    for (const auto& [key, member] : value.items()) {
      *text += separator;
      separator = words.comma;
      if (object) StrAppend(text, Dump(key), words.colon);
      Append(member, words, text);
    }
    *text += object ? '}' : ']';
  } else if (value.is_boolean()) {
    *text += value.get<bool>() ? words.yes : words.no;
  } else if (value.is_null()) {
    *text += words.null;
  } else {
    *text += IsBigInteger(value) ? BigIntegerDigits(value) : Dump(value);
  }
}

}  // namespace

std::string StyledJson(const Json& value, JsonStyle style) {
  std::string text;
  Append(value, WordsOf(style), &text);
  return text;
}

std::string CompactJson(const Json& value) {
  // The library is faster.
  return HasBigInteger(value) ? StyledJson(value, JsonStyle::kCompact) : Dump(value);
}

}  // namespace weft
