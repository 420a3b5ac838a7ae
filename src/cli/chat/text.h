// Text of models and users, made harmless for a terminal and for JSON. Pure functions.
#ifndef WEFT_CLI_CHAT_TEXT_H_
#define WEFT_CLI_CHAT_TEXT_H_

#include <string>
#include <string_view>

namespace weft::cli {

// A copy in which a terminal finds nothing to obey: control characters but newline and
// tab (those of one byte, and U+0080 to U+009F) and bytes that are no UTF-8 become \xNN;
// carriage returns are left out. `text` holds whole characters.
std::string ForTerminal(std::string_view text);

// A copy in which every byte that is no UTF-8 is replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_TEXT_H_
