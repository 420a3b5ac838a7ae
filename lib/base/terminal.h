// The window of a terminal, and text that fits it. Any thread.
#ifndef WEFT_BASE_TERMINAL_H_
#define WEFT_BASE_TERMINAL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct WindowSize {
  size_t columns = 80, rows = 24;
};
// Nothing if `fd` is no terminal, or one that does not tell.
std::optional<WindowSize> WindowOf(int fd);

// Breaks text between words into lines that end before `columns`. The first one begins at
// `column`, where something may stand before it; the others are indented by `indent`.
std::string Fill(std::string_view text, size_t columns, size_t column = 0, size_t indent = 0);

// A line with its blanks, if it fits; else broken between words, the further lines indented by
// `indent` more than it is.
std::string FillLine(std::string_view line, size_t columns, size_t indent);

// The same for several paragraphs: lines up to an empty one. Lines that begin with a blank, such as
// examples, are not joined with others.
std::string FillParagraphs(std::string_view text, size_t columns);

}  // namespace weft

#endif  // WEFT_BASE_TERMINAL_H_
