#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/strings.h"

namespace weft {

std::optional<WindowSize> WindowOf(int fd) {
  winsize window = {};
  if (ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return std::nullopt;
  return WindowSize{.columns = window.ws_col, .rows = window.ws_row};
}

std::string Fill(std::string_view text, size_t columns, size_t column, size_t indent) {
  std::string filled;
  for (const std::string_view word : StrSplit(text, ' ')) {
    if (filled.empty()) {
      filled = word;
    } else if (column + 1 + word.size() > columns) {
      StrAppend(&filled, "\n", std::string(indent, ' '), word);
      column = indent;
    } else {
      StrAppend(&filled, " ", word);
      ++column;
    }
    column += word.size();
  }
  return filled;
}

std::string FillLine(std::string_view line, size_t columns, size_t indent) {
  const size_t begin = line.find_first_not_of(' ');
  if (line.size() <= columns || begin == line.npos) return std::string(line);
  return StrCat(line.substr(0, begin), Fill(line.substr(begin), columns, begin, begin + indent));
}

std::string FillParagraphs(std::string_view text, size_t columns) {
  constexpr size_t kDeeper = 4;
  std::string filled, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) StrAppend(&filled, Fill(paragraph, columns), "\n");
    paragraph.clear();
  };
  for (const std::string_view line : StrSplit(text, '\n')) {
    const bool is_fixed = line.empty() || line.front() == ' ';
    if (is_fixed) {
      end_paragraph();
      StrAppend(&filled, FillLine(line, columns, kDeeper), "\n");
    } else {
      StrAppend(&paragraph, paragraph.empty() ? "" : " ", line);
    }
  }
  end_paragraph();
  // The last line's end is the text's own.
  if (!filled.empty()) filled.pop_back();
  return filled;
}

}  // namespace weft
