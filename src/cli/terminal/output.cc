#include "cli/terminal/output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "nlohmann/json.hpp"

namespace weft::cli {

void PrintText(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintLine(std::string_view line) {
  PrintText(line);
  std::fputc('\n', stdout);
}

std::vector<std::string> TableLines(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::vector<std::string> texts;
  for (const auto& line : lines) {
    std::string& text = texts.emplace_back();
    for (size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      text.append(widths[i] + 2 - line[i].size(), ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return texts;
}

void PrintTable(const std::vector<std::vector<std::string>>& lines) {
  for (const std::string& text : TableLines(lines)) PrintLine(text);
}

void PrintJsonLine(const nlohmann::json& value) {
  PrintLine(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

Status FlushStdout() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return ErrnoStatus(errno, "cannot write to stdout");
  }
  return OkStatus();
}

}  // namespace weft::cli
