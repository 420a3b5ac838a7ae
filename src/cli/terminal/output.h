// Standard output: whole lines, JSON, and write errors.
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
// Columns as wide as their contents, separated by two spaces.
std::vector<std::string> TableLines(const std::vector<std::vector<std::string>>& lines);
void PrintTable(const std::vector<std::vector<std::string>>& lines);
// Shows invalid UTF-8 as U+FFFD.
void PrintJsonLine(const nlohmann::json& value);
// An error if printed output was lost (a full disk, a closed pipe).
Status FlushStdout();

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_OUTPUT_H_
