#include "answer/reply/text_place.h"

#include <algorithm>

#include "base/strings.h"

namespace weft {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

constexpr size_t kMaxInfoBytes = 64;

// Languages of fences in which models write calls; empty: no language.
constexpr std::string_view kCallLanguages[] = {
    "",          "json",           "jsonc",         "json5",      "jsonl",         "xml",
    "tool",      "tools",          "tool_call",     "tool_calls", "tool-call",     "toolcall",
    "tool_use",  "tool_code",      "function",      "functions",  "function_call", "call",
    "calls",     "function_calls", "function-call", "action",     "text",          "txt",
    "plaintext", "plain"};

}  // namespace

bool TextPlace::IsCallLanguage(std::string_view word) {
  return std::any_of(
      std::begin(kCallLanguages), std::end(kCallLanguages),
      [word](std::string_view language) { return EqualIgnoringCase(language, word); });
}

bool TextPlace::MayBecomeCallLanguage(std::string_view prefix) {
  return std::any_of(std::begin(kCallLanguages), std::end(kCallLanguages),
                     [prefix](std::string_view language) {
                       return EqualIgnoringCase(language.substr(0, prefix.size()), prefix);
                     });
}

bool TextPlace::MayHoldObject() const {
  if (!MayHoldMarkup()) return false;
  if (!IsSpace(last_) && last_ != ':' && last_ != '>') return false;
  // In an expression, a list or a quotation it is part of that.
  constexpr std::string_view kGoesOn = "=([{,+*/&|\"'<$%@#~\\";
  if (last_of_line_ == ':' && (before_last_ == '"' || before_last_ == '\'')) return false;
  return last_of_line_ == 0 || kGoesOn.find(last_of_line_) == std::string_view::npos;
}

void TextPlace::PassCall() {
  EndRun('\n');
  code_ticks_ = 0;
  last_ = '\n';
  last_of_line_ = before_last_ = 0;
  at_line_start_ = true;
  depth_ = 0;
  in_string_ = false;
}

void TextPlace::PassLineEnd() {
  if (in_info_) {
    in_info_ = false;
    const size_t end = std::min(info_.find_first_of(" \t\r{"), info_.size());
    fence_may_hold_calls_ = IsCallLanguage(std::string_view(info_).substr(0, end));
    depth_ = 0;
  } else if (at_line_start_ && fence_ticks_ == 0) {
    depth_ = 0;
  }
  code_ticks_ = 0;
  in_string_ = escaped_ = false;
  at_line_start_ = true;
  last_of_line_ = before_last_ = 0;
}

void TextPlace::PassByte(char c) {
  const bool fences = c == '`' || (c == '~' && (at_line_start_ || run_ > 0));
  if (fences && (run_ == 0 || c == run_char_)) {
    if (run_ == 0) run_starts_line_ = at_line_start_;
    run_char_ = c;
    ++run_;
  } else {
    EndRun(c);
    if (in_info_ && c != '\n' && info_.size() < kMaxInfoBytes) info_ += c;
    PassBracket(c);
  }
  last_ = c;
  if (c == '\n') return PassLineEnd();
  if (IsSpace(c)) return;
  at_line_start_ = false;
  // A list item's bullet is not an operator.
  const bool is_item = (c == '-' || c == '*') && last_of_line_ == 0;
  before_last_ = last_of_line_;
  last_of_line_ = is_item ? '.' : c;
}

// A run of backticks ends before `next`.
void TextPlace::EndRun(char next) {
  const size_t n = run_;
  run_ = 0;
  if (n == 0) return;
  if (in_info_ && run_char_ == '`') {  // inline code, not a fence
    in_info_ = false;
    code_ticks_ = fence_ticks_ == n ? 0 : fence_ticks_;
    fence_ticks_ = 0;
  } else if (fence_ticks_ > 0) {
    if (run_starts_line_ && run_char_ == fence_char_ && n >= fence_ticks_ && IsSpace(next)) {
      fence_ticks_ = 0;
      depth_ = 0;
      in_string_ = false;
    }
  } else if (code_ticks_ > 0) {
    if (code_ticks_ == n) code_ticks_ = 0;
  } else if (n >= 3) {
    in_info_ = true;
    info_.clear();
    fence_ticks_ = n;
    fence_char_ = run_char_;
    fence_may_hold_calls_ = false;
  } else if (run_char_ == '`') {
    code_ticks_ = n;
  }
}

void TextPlace::PassBracket(char c) {
  if (code_ticks_ > 0 || in_info_) return;
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if ((c == '}' || c == ']') && depth_ > 0) {
    --depth_;
  } else if (c == '"' && depth_ > 0) {
    in_string_ = true;
    escaped_ = false;
  }
}

}  // namespace weft
