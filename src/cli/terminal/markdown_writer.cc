#include "cli/terminal/markdown_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/terminal.h"
#include "base/unicode.h"

namespace weft::cli {
namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kBold = "**";

// Columns of a character: two for those of East Asia and for pictures.
size_t Width(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0xE1) return 1;
  if (first >= 0xF0)
    return first == 0xF0 && static_cast<unsigned char>(character[1]) >= 0x9F ? 2 : 1;
  const auto second = static_cast<unsigned char>(character[1]);
  if (first == 0xE1) return second == 0x84 || second == 0x85 ? 2 : 1;
  if (first == 0xE2) return second >= 0xBA ? 2 : 1;
  if (first <= 0xED) return 2;
  return first == 0xEF && (second >= 0xBC && second <= 0xBD) ? 2 : 1;
}

std::string_view FirstCharacter(std::string_view text) {
  const int length = StrictCharLength(text);
  return text.substr(0, length > 0 ? static_cast<size_t>(length) : 1);
}

// The width in columns of text without marks.
size_t WidthOf(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const std::string_view character = FirstCharacter(text);
    text.remove_prefix(character.size());
    width += Width(character);
  }
  return width;
}

// "-", "*", "+", "3." or "3)".
bool IsListMark(std::string_view word) {
  if (word == "-" || word == "*" || word == "+") return true;
  if (word.size() < 2 || word.size() > 4) return false;
  const bool ends = word.back() == '.' || word.back() == ')';
  return ends &&
         std::all_of(word.begin(), word.end() - 1, [](char c) { return c >= '0' && c <= '9'; });
}

bool IsHeadingMark(std::string_view word) {
  return !word.empty() && word.size() <= 6 && word.find_first_not_of('#') == word.npos;
}

}  // namespace

std::string MarkdownWriter::Write(std::string_view piece) {
  while (!piece.empty()) {
    const std::string_view character = FirstCharacter(piece);
    piece.remove_prefix(character.size());
    Take(character);
  }
  return std::exchange(out_, {});
}

std::string MarkdownWriter::End() {
  EndWord();
  if (colours_ && (bold_ || code_ || line_ == Line::kHeading || in_fence_)) Emit("\033[0m");
  std::string rest = std::exchange(out_, {});
  *this = MarkdownWriter(columns_, colours_);
  return rest;
}

void MarkdownWriter::Take(std::string_view character) {
  if (character == "\n") return EndLine();
  if (line_ == Line::kVerbatim) {
    Emit(character);
    return;
  }
  if (character == " " || character == "\t") {
    EndWord();
    if (line_ == Line::kVerbatim) {
      Emit(character);
    } else {
      n_blanks_ += character == " " ? 1 : 4;
    }
    return;
  }
  // Between characters that are two columns wide a line may break anywhere.
  if (Width(character) == 2) EndWord();
  word_ += character;
  if (Width(character) == 2) EndWord();
}

// Decides by the first word what the line is.
void MarkdownWriter::BeginLine() {
  indent_ = n_blanks_;
  if (word_.starts_with(kFence)) {
    is_fence_line_ = true;
    line_ = Line::kVerbatim;
  } else if (in_fence_ || word_.starts_with('|') || n_blanks_ >= 4) {
    line_ = Line::kVerbatim;
  } else if (IsHeadingMark(word_)) {
    line_ = Line::kHeading;
  } else {
    line_ = Line::kText;
    if (IsListMark(word_)) indent_ += word_.size() + 1;
  }
  Style();
}

void MarkdownWriter::Style() {
  if (!colours_) return;
  const bool is_code = code_ || in_fence_ || is_fence_line_;
  Emit("\033[0m");
  if (bold_ || line_ == Line::kHeading) Emit("\033[1m");
  if (is_code) Emit("\033[36m");
}

void MarkdownWriter::EndWord() {
  if (word_.empty()) return;
  const bool is_first = line_ == Line::kUnknown;
  if (is_first) BeginLine();
  if (line_ == Line::kVerbatim) {
    Emit(std::string(n_blanks_, ' '));
    Emit(std::exchange(word_, {}));
    n_blanks_ = 0;
    return;
  }
  const size_t width = WidthOf(word_);
  if (!is_first && column_ + n_blanks_ + width > columns_ && column_ > indent_) {
    Emit("\n");
    Emit(std::string(indent_, ' '));
    column_ = indent_;
  } else {
    Emit(std::string(n_blanks_, ' '));
    column_ += n_blanks_;
  }
  n_blanks_ = 0;
  std::string_view rest = word_;
  while (!rest.empty()) {
    const bool is_bold_mark = colours_ && !code_ && rest.starts_with(kBold) && word_ != kBold;
    const bool is_code_mark = colours_ && rest[0] == '`';
    if (is_bold_mark || is_code_mark) {
      rest.remove_prefix(is_bold_mark ? kBold.size() : 1);
      (is_bold_mark ? bold_ : code_) ^= true;
      Style();
      continue;
    }
    const std::string_view character = FirstCharacter(rest);
    rest.remove_prefix(character.size());
    Emit(character);
    column_ += Width(character);
  }
  word_.clear();
}

void MarkdownWriter::EndLine() {
  EndWord();
  if (is_fence_line_) in_fence_ = !in_fence_;
  // A mark that nothing closes ends with its line.
  const bool styled = colours_ && line_ != Line::kUnknown;
  bold_ = code_ = is_fence_line_ = false;
  line_ = Line::kUnknown;
  if (styled) Emit("\033[0m");
  Emit("\n");
  column_ = n_blanks_ = indent_ = 0;
}

std::optional<MarkdownWriter> MarkdownForStdout() {
  if (isatty(STDOUT_FILENO) != 1) return std::nullopt;
  const char* const no_colour = std::getenv("NO_COLOR");
  const bool colours = no_colour == nullptr || *no_colour == '\0';
  const size_t columns = WindowOf(STDOUT_FILENO).value_or(WindowSize()).columns;
  return std::make_optional<MarkdownWriter>(columns - 1, colours);
}

}  // namespace weft::cli
