// Makes text from models and users safe for terminals and JSON. Pure functions.
#ifndef WEFT_CLI_CHAT_TEXT_H_
#define WEFT_CLI_CHAT_TEXT_H_

#include <string>
#include <string_view>

namespace weft::cli {

// A copy without anything a terminal would interpret: control characters except newline and tab
// (single bytes, and U+0080 to U+009F) and invalid UTF-8 become \xNN; carriage returns are dropped.
// `text` holds whole characters.
std::string ForTerminal(std::string_view text);

// A copy with every invalid UTF-8 byte replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_TEXT_H_
