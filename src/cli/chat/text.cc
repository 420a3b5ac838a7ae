#include "cli/chat/text.h"

#include "base/unicode.h"

namespace weft::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void AppendEscaped(std::string_view bytes, std::string* out) {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out->append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
  }
}

// A control character that a terminal might interpret.
bool IsObeyed(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) {
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  }
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const int length = StrictCharLength(text);
    const std::string_view character = text.substr(0, length > 0 ? length : 1);
    text.remove_prefix(character.size());
    if (character == "\r") continue;
    if (length <= 0 || IsObeyed(character)) {
      AppendEscaped(character, &out);
    } else {
      out.append(character);
    }
  }
  return out;
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const int length = StrictCharLength(text);
    out.append(length > 0 ? text.substr(0, length) : kReplacement);
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

}  // namespace weft::cli
