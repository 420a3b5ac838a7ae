// Standard output: whole lines, JSON, and write errors.
#ifndef WEFT_CLI_TERMINAL_OUTPUT_H_
#define WEFT_CLI_TERMINAL_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace weft::cli {

void PrintText(std::string_view text);
void PrintLine(std::string_view line);
// How wide a line may be: as the terminal is, or as wide as it likes.
size_t OutputColumns();
// On a terminal, a line that is too wide is broken between words, the further ones indented.
void PrintWrapped(std::string_view line, size_t indent = 2);
// Columns as wide as their contents, separated by two spaces. The first line has their titles. If a
// line is wider than `columns`, each has one value to a title below the first value.
std::vector<std::string> TableLines(const std::vector<std::vector<std::string>>& lines,
                                    size_t columns = SIZE_MAX);
void PrintTable(const std::vector<std::vector<std::string>>& lines);
// Shows invalid UTF-8 as U+FFFD.
void PrintJsonLine(const nlohmann::json& value);
// An error if printed output was lost (a full disk, a closed pipe).
Status FlushStdout();

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_OUTPUT_H_
