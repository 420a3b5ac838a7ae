// Standard output: whole lines, JSON, and the errors of writing them.
#ifndef WEFT_CLI_TERMINAL_OUTPUT_H_
#define WEFT_CLI_TERMINAL_OUTPUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace weft::cli {

void PrintText(std::string_view text);
void PrintLine(std::string_view line);
// Columns as wide as what stands in them, two spaces between.
void PrintTable(const std::vector<std::vector<std::string>>& lines);
// Text that is not UTF-8 is shown with U+FFFD in its place.
void PrintJsonLine(const nlohmann::json& value);
// An error when something that was printed did not arrive (a full disk, a closed pipe).
Status FlushStdout();

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_OUTPUT_H_
