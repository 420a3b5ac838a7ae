#include "jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/unicode.h"
#include "jinja/text.h"

namespace weft::jinja {
namespace {

// Normalises line endings and drops one at the very end.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsNameStart(std::string_view text) {
  if (text.empty()) return false;
  const char32_t c = FirstChar(text);
  return c == '_' || IsAlpha(c);
}

bool IsNameChar(std::string_view text) {
  if (text.empty()) return false;
  const char32_t c = FirstChar(text);
  return c == '_' || (ClassOf(c) & (kLetter | kNumber | kMark)) != 0;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeLines(source)) {}

  StatusOr<std::vector<Token>> Run() {
    while (at_ < text_.size()) WEFT_RETURN_IF_ERROR(LexText());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(text_).substr(at_); }
  bool Looking(std::string_view prefix) const { return Rest().starts_with(prefix); }

  // Columns count bytes; positions only move forward.
  Position Here() {
    for (; counted_ < at_; ++counted_) {
      if (text_[counted_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else {
        ++position_.column;
      }
    }
    return position_;
  }

  Status Error(std::string_view what) { return AtPosition(Here(), InvalidArgument(what)); }

  void Add(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, Here(), std::string(text)});
  }

  void SkipSpace() { at_ = text_.size() - StripLeft(Rest()).size(); }

  // Lexes the text up to the next tag, and the tag's opening.
  Status LexText() {
    size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == text_.size()) {
        Add(TokenKind::kText, Rest());
        at_ = text_.size();
        return OkStatus();
      }
      const char next = text_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    EmitText(tag, sign, /*strips_line=*/text_[tag + 1] != '{');
    at_ = tag;
    const bool print = text_[tag + 1] == '{';
    if (text_[tag + 1] == '#') return LexComment(sign);
    Position begin = Here();
    at_ += sign == '-' || sign == '+' ? 3 : 2;
    if (!print && LexRawBegin()) return LexRaw();
    tokens_.push_back({print ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, begin, ""});
    return LexInside(print);
  }

  // Emits the text from at_ to `end`, where a tag with this sign begins.
  void EmitText(size_t end, char sign, bool strips_line) {
    std::string_view text = std::string_view(text_).substr(at_, end - at_);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starts_) && Strip(text.substr(line)).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) Add(TokenKind::kText, text);
  }

  // Skips what must not be printed after a tag, as the end mark's sign says.
  void FinishTag(size_t end, char sign, bool trims_newline) {
    at_ = end;
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && trims_newline && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    line_starts_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  Status LexComment(char sign) {
    const size_t close = text_.find("#}", at_ + 2);
    if (close == std::string::npos) return Error("this comment is never closed; add #}");
    // "{#-#}": the sign belongs to the opening mark.
    const size_t body = at_ + (sign == '-' || sign == '+' ? 3 : 2);
    const char end_sign = close > body ? text_[close - 1] : '\0';
    FinishTag(close + 2, end_sign, /*trims_newline=*/true);
    return OkStatus();
  }

  // Consumes "raw %}" after a block's opening mark.
  bool LexRawBegin() {
    std::string_view rest = StripLeft(Rest());
    if (!rest.starts_with("raw")) return false;
    rest = StripLeft(rest.substr(3));
    const bool strips = rest.starts_with("-%}");
    if (!strips && !rest.starts_with("%}")) return false;
    FinishTag(text_.size() - rest.size() + (strips ? 3 : 2), strips ? '-' : '\0', false);
    return true;
  }

  Status LexRaw() {
    for (size_t tag = at_; (tag = text_.find("{%", tag)) != std::string::npos; tag += 2) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      std::string_view rest = StripLeft(std::string_view(text_).substr(tag + (has_sign ? 3 : 2)));
      if (!rest.starts_with("endraw")) continue;
      rest = StripLeft(rest.substr(6));
      const char end_sign = rest.empty() ? '\0' : rest[0];
      if (end_sign == '-' || end_sign == '+') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      EmitText(tag, sign, /*strips_line=*/true);
      FinishTag(text_.size() - rest.size() + 2, end_sign, /*trims_newline=*/true);
      return OkStatus();
    }
    return Error("this raw block is never closed; add {% endraw %}");
  }

  // Lexes an expression or statement up to its end mark.
  Status LexInside(bool print) {
    const std::string_view close = print ? "}}" : "%}";
    std::string open;  // brackets waiting for their partners
    while (true) {
      SkipSpace();
      if (at_ >= text_.size()) {
        return Error(print ? "the template ends inside {{ }}" : "the template ends inside {% %}");
      }
      const char sign = text_[at_];
      const bool has_sign = sign == '-' || (sign == '+' && !print);
      if (open.empty() && (Looking(close) || (has_sign && Rest().substr(1).starts_with(close)))) {
        Add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        FinishTag(at_ + (has_sign ? 3 : 2), sign, /*trims_newline=*/!print);
        return OkStatus();
      }
      WEFT_RETURN_IF_ERROR(LexToken(&open));
    }
  }

  Status LexToken(std::string* open) {
    const char c = text_[at_];
    if (IsDigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString();
    if (IsNameStart(Rest())) {
      size_t end = at_;
      while (IsNameChar(Rest().substr(end - at_))) end += CharBytes(Rest().substr(end - at_));
      Add(TokenKind::kName, Rest().substr(0, end - at_));
      at_ = end;
      return OkStatus();
    }
    return LexOperator(open);
  }

  Status LexOperator(std::string* open) {
    constexpr std::array<std::string_view, 6> kTwo = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view two : kTwo) {
      if (!Looking(two)) continue;
      Add(TokenKind::kOperator, two);
      at_ += 2;
      return OkStatus();
    }
    const char c = text_[at_];
    constexpr std::string_view kOne = "+-/*%~[](){}<>=.:|,;";
    if (kOne.find(c) == std::string_view::npos) {
      return Error(StrCat("unexpected '", Printable(Rest().substr(0, CharBytes(Rest()))), "'"));
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open->empty() || open->back() != partner) return Error(StrCat("unexpected '", c, "'"));
      open->pop_back();
    }
    Add(TokenKind::kOperator, std::string_view(&c, 1));
    ++at_;
    return OkStatus();
  }

  // The end of a run of digits in `base`, possibly with underscores between them, from `from`.
  size_t DigitsEnd(size_t from, int base) const {
    const auto is_digit = [&](size_t i) {
      if (i >= text_.size()) return false;
      const char c = text_[i];
      const int digit = IsDigit(c)                           ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                             : 99;
      return digit < base;
    };
    size_t end = from;
    while (is_digit(end) || (end < text_.size() && text_[end] == '_' && is_digit(end + 1))) ++end;
    return end;
  }

  Status LexNumber() {
    size_t end = at_;
    bool is_float = false;
    const char mark = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 32) : '\0';
    const int base = text_[at_] != '0' ? 10
                     : mark == 'x'     ? 16
                     : mark == 'o'     ? 8
                     : mark == 'b'     ? 2
                                       : 10;
    if (base != 10) {
      end = DigitsEnd(at_ + 2, base);
    } else {
      end = DigitsEnd(at_, 10);
      if (end + 1 < text_.size() && text_[end] == '.' && IsDigit(text_[end + 1])) {
        is_float = true;
        end = DigitsEnd(end + 1, 10);
      }
      if (end < text_.size() && (text_[end] | 32) == 'e') {
        const size_t sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
        const size_t exponent_end = DigitsEnd(end + 1 + sign, 10);
        if (exponent_end > end + 1 + sign) {
          is_float = true;
          end = exponent_end;
        }
      }
    }
    Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, Here(),
                text_.substr(at_, end - at_)};
    const bool fits = is_float ? ParseFloat(token.text, &token.real)
                               : ParseInt(token.text, base == 10 ? 10 : 0, &token.integer);
    if (!fits) return Error(StrCat("the number ", Printable(token.text), " does not fit 64 bits"));
    tokens_.push_back(std::move(token));
    at_ = end;
    return OkStatus();
  }

  Status LexString() {
    const char quote = text_[at_];
    Token token{TokenKind::kString, Here(), ""};
    size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != quote; ++i) {
      if (text_[i] != '\\') {
        token.text.push_back(text_[i]);
        continue;
      }
      if (i + 1 >= text_.size()) break;
      if (!LexEscape(&i, &token.text)) return Error("this string has a broken escape");
    }
    if (i >= text_.size()) return Error("this string is never closed");
    tokens_.push_back(std::move(token));
    at_ = i + 1;
    return OkStatus();
  }

  // Decodes the escape whose backslash is at *i; leaves *i at its last byte.
  bool LexEscape(size_t* i, std::string* out) {
    const char c = text_[++*i];
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      out->push_back(kMeanings[at]);
      return true;
    }
    if (c == '\n') return true;
    if (c == 'N') return false;
    if (c == 'x' || c == 'u' || c == 'U') return LexHex(c == 'x' ? 2 : c == 'u' ? 4 : 8, i, out);
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t n = 0;
      for (; n < 3 && *i + n < text_.size() && text_[*i + n] >= '0' && text_[*i + n] <= '7'; ++n) {
        code = code * 8 + (text_[*i + n] - '0');
      }
      *i += n - 1;
      AppendUtf8(code, out);
      return true;
    }
    out->push_back('\\');
    out->push_back(c);
    return true;
  }

  bool LexHex(size_t digits, size_t* i, std::string* out) {
    const size_t first = *i + 1;
    if (first + digits > text_.size() || DigitsEnd(first, 16) < first + digits) return false;
    int64_t code = 0;
    if (!ParseInt(text_.substr(first, digits), 16, &code)) return false;
    if (code > static_cast<int64_t>(kMaxCodePoint)) return false;
    *i += digits;
    // Two escapes that form a surrogate pair, as in JSON, are one character.
    if (code >= 0xD800 && code < 0xDC00 && text_.compare(*i + 1, 2, "\\u") == 0) {
      int64_t low = 0;
      if (*i + 7 <= text_.size() && ParseInt(text_.substr(*i + 3, 4), 16, &low) && low >= 0xDC00 &&
          low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        *i += 6;
      }
    }
    AppendUtf8(code >= 0xD800 && code < 0xE000 ? kReplacementChar : static_cast<char32_t>(code),
               out);
    return true;
  }

  const std::string text_;
  size_t at_ = 0;
  // Whether at_ counts as the beginning of a line for stripping.
  bool line_starts_ = true;
  size_t counted_ = 0;
  Position position_;
  std::vector<Token> tokens_;
};

}  // namespace

Status AtPosition(const Position& at, const Status& status) {
  return Annotate(status, "chat template, line ", at.line, ", column ", at.column, ": ");
}

StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace weft::jinja
