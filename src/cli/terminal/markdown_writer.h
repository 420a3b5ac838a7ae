// Shows an answer at a terminal as it arrives: lines broken between words, headings and **words**
// in bold, code in a colour and never broken. Everything else stays as it is.
//
// Holds a word back until it is complete. One thread.
#ifndef WEFT_CLI_TERMINAL_MARKDOWN_WRITER_H_
#define WEFT_CLI_TERMINAL_MARKDOWN_WRITER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft::cli {

class MarkdownWriter {
 public:
  // `colours`: whether to show styles at all.
  MarkdownWriter(size_t columns, bool colours) : columns_(columns), colours_(colours) {}

  // What to print for the next piece, which holds whole characters and no control characters.
  std::string Write(std::string_view piece);
  // What to print at the end. The next piece begins another answer.
  std::string End();

 private:
  // The current line's kind, known once its beginning is complete.
  enum class Line { kUnknown, kText, kHeading, kVerbatim };

  void Take(std::string_view character);
  void BeginLine();
  void EndWord();
  void EndLine();
  void Emit(std::string_view text) { out_ += text; }
  void Style();

  size_t columns_;
  bool colours_;
  std::string out_;
  std::string word_;  // not shown yet
  size_t column_ = 0;
  size_t n_blanks_ = 0;  // before the word, not shown yet
  size_t indent_ = 0;    // for the line's continuations
  Line line_ = Line::kUnknown;
  bool in_fence_ = false;  // between lines of ```
  bool is_fence_line_ = false;
  bool bold_ = false, code_ = false;
};

// For answers on stdout. Nothing if that is no terminal: a pipe gets them unchanged. NO_COLOR turns
// styles off.
std::optional<MarkdownWriter> MarkdownForStdout();

}  // namespace weft::cli

#endif  // WEFT_CLI_TERMINAL_MARKDOWN_WRITER_H_
