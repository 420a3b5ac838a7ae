#include "cli/terminal/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/strings.h"
#include "base/terminal.h"
#include "nlohmann/json.hpp"

namespace weft::cli {
namespace {

using Row = std::vector<std::string>;

// A table for narrow windows.
std::vector<std::string> Listed(const std::vector<Row>& lines, size_t columns) {
  constexpr size_t kIndent = 4;
  std::vector<std::string> texts;
  for (size_t n = 1; n < lines.size(); ++n) {
    texts.push_back(FillLine(lines[n][0], columns, kIndent));
    std::string values;
    for (size_t i = 1; i < lines[n].size(); ++i) {
      if (lines[n][i].empty()) continue;
      StrAppend(&values, values.empty() ? "" : ", ", AsciiLower(lines[0][i]), " ", lines[n][i]);
    }
    const std::string filled =
        StrCat(std::string(kIndent, ' '), Fill(values, columns, kIndent, kIndent));
    for (const std::string_view line : StrSplit(filled, '\n')) texts.emplace_back(line);
  }
  return texts;
}

}  // namespace

size_t OutputColumns() {
  const auto window = WindowOf(STDOUT_FILENO);
  return window ? window->columns : SIZE_MAX;
}

void PrintWrapped(std::string_view line, size_t indent) {
  PrintLine(FillLine(line, OutputColumns(), indent));
}

void PrintText(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void PrintLine(std::string_view line) {
  PrintText(line);
  std::fputc('\n', stdout);
}

std::vector<std::string> TableLines(const std::vector<Row>& lines, size_t columns) {
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
    if (text.size() > columns) return Listed(lines, columns);
  }
  return texts;
}

void PrintTable(const std::vector<Row>& lines) {
  for (const std::string& text : TableLines(lines, OutputColumns())) PrintLine(text);
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
