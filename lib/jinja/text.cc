#include "jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/strings.h"
#include "base/unicode.h"
#include "jinja/meter.h"

namespace weft::jinja {

size_t CharBytes(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < 0x80) return 1;
  const int length = StrictCharLength(text);
  return length > 0 ? static_cast<size_t>(length) : 1;
}

char32_t FirstChar(std::string_view text) {
  const unsigned char lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead;
  return StrictCharLength(text) > 0 ? DecodeTrusted(text.data()).code : kReplacementChar;
}

int64_t CountChars(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharBytes(text.substr(at))) ++count;
  return count;
}

size_t ByteOffset(std::string_view text, int64_t n_chars) {
  size_t at = 0;
  for (int64_t i = 0; i < n_chars && at < text.size(); ++i) at += CharBytes(text.substr(at));
  return at;
}

std::vector<std::string_view> Chars(std::string_view text) {
  std::vector<std::string_view> chars;
  chars.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharBytes(text);
    chars.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return chars;
}

namespace {

// Longer needles cost more: a search compares more per byte it passes.
uint64_t SearchSteps(size_t passed_bytes, size_t needle_bytes) {
  constexpr size_t kShort = 2, kSetupBytes = 16, kStepBytes = 32, kMaxCompared = 256;
  const uint64_t factor =
      needle_bytes <= kShort ? 1 : 4 + std::min(needle_bytes, kMaxCompared) / kStepBytes;
  return 2 + needle_bytes / kSetupBytes + passed_bytes / kStepBytes * factor;
}

size_t Search(std::string_view text, std::string_view needle, size_t from) {
  const void* const found =
      memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace

size_t FindText(Meter* meter, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const size_t found = Search(text, needle, from);
  meter->Spend(SearchSteps(std::min(found, text.size()) - from, needle.size()));
  return found;
}

size_t FindLastText(Meter* meter, std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  // Searches forwards in a mirror image, in a window that doubles: linear in the distance from the
  // end.
  // The second is held beside the first, and beside the next one while that is made.
  if (!meter->Fits(2 * text.size() + needle.size())) return std::string_view::npos;
  const std::string mirrored_needle(needle.rbegin(), needle.rend());
  for (size_t window = needle.size() + 64;; window *= 2) {
    const size_t start = window >= text.size() ? 0 : text.size() - window;
    const std::string_view tail = text.substr(start);
    // Mirroring takes about as long as a search.
    if (!meter->Spend(2 * SearchSteps(tail.size(), needle.size()))) return std::string_view::npos;
    const std::string mirrored(tail.rbegin(), tail.rend());
    const size_t found = needle.empty() ? 0 : Search(mirrored, mirrored_needle, 0);
    if (found != std::string_view::npos) return text.size() - found - needle.size();
    if (start == 0) return std::string_view::npos;
  }
}

// --- stripping --------------------------------------------------------------

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return (ClassOf(c) & kSpace) != 0;
}

namespace {

// Start of the last code point. REQUIRES: not empty.
size_t LastCharAt(std::string_view text) {
  const size_t earliest = text.size() > 4 ? text.size() - 4 : 0;
  for (size_t at = text.size() - 1;; --at) {
    if (at + CharBytes(text.substr(at)) == text.size()) {
      const bool continues = (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
      if (!continues) return at;
    }
    if (at == earliest) return text.size() - 1;
  }
}

template <typename Predicate>
std::string_view StripLeftIf(std::string_view text, Predicate drop) {
  while (!text.empty()) {
    const size_t bytes = CharBytes(text);
    if (!drop(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  return text;
}

template <typename Predicate>
std::string_view StripRightIf(std::string_view text, Predicate drop) {
  while (!text.empty()) {
    const size_t at = LastCharAt(text);
    if (!drop(text.substr(at))) break;
    text = text.substr(0, at);
  }
  return text;
}

bool IsSpaceChar(std::string_view c) { return IsSpace(FirstChar(c)); }

// Whether `c` is one of the code points of `set`.
struct OneOf {
  explicit OneOf(std::string_view set) : chars(Chars(set)) {}
  bool operator()(std::string_view c) const { return std::ranges::find(chars, c) != chars.end(); }
  std::vector<std::string_view> chars;
};

}  // namespace

std::string_view StripLeft(std::string_view text) { return StripLeftIf(text, IsSpaceChar); }
std::string_view StripRight(std::string_view text) { return StripRightIf(text, IsSpaceChar); }
std::string_view Strip(std::string_view text) { return StripLeft(StripRight(text)); }
std::string_view StripLeft(std::string_view text, std::string_view chars) {
  return StripLeftIf(text, OneOf(chars));
}
std::string_view StripRight(std::string_view text, std::string_view chars) {
  return StripRightIf(text, OneOf(chars));
}

// --- case -------------------------------------------------------------------

namespace {

void AppendUpper(char32_t c, std::string* out) {
  switch (c) {  // letters whose capital is two letters
    case 0xDF:
      out->append("SS");
      return;
    case 0x149:
      out->append("\xCA\xBCN");
      return;
    case 0xFB00:
      out->append("FF");
      return;
    case 0xFB01:
      out->append("FI");
      return;
    case 0xFB02:
      out->append("FL");
      return;
    default:
      AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  if (c == 0xDF) {
    out->append("Ss");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))), out);
  }
}

void AppendLower(char32_t c, std::string* out) {
  if (c == 0x130) {
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))), out);
  }
}

// Calls change(code point, out) for each; invalid bytes are copied.
template <typename Change>
std::string MapChars(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = CharBytes(text);
    if (bytes == 1 && static_cast<unsigned char>(text[0]) >= 0x80) {
      out.push_back(text[0]);
    } else {
      change(FirstChar(text), &out);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c); }

}  // namespace

std::string ToUpper(std::string_view text) { return MapChars(text, AppendUpper); }
std::string ToLower(std::string_view text) { return MapChars(text, AppendLower); }

std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapChars(text, [&first](char32_t c, std::string* out) {
    first ? AppendTitle(c, out) : AppendLower(c, out);
    first = false;
  });
}

std::string TitleCase(std::string_view text) {
  bool inside = false;
  return MapChars(text, [&inside](char32_t c, std::string* out) {
    inside ? AppendLower(c, out) : AppendTitle(c, out);
    inside = IsCased(c);
  });
}

bool IsAlpha(char32_t c) { return (ClassOf(c) & kLetter) != 0; }
bool IsDecimal(char32_t c) {
  return utf8proc_category(static_cast<int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
bool IsNumeric(char32_t c) { return (ClassOf(c) & kNumber) != 0; }
bool IsUpper(char32_t c) { return (ClassOf(c) & kUpper) != 0; }
bool IsLower(char32_t c) { return (ClassOf(c) & kLower) != 0; }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

// --- numbers ----------------------------------------------------------------

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view written(buffer, end - buffer);
  const size_t e = written.find('e');
  int exponent = 0;
  const char* digits_of_exponent = written.data() + e + (written[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(written);
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed_end);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

namespace {

// Drops underscores between digits. False if there is one elsewhere.
bool DropUnderscores(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(text[i - 1] & 0x7F) &&
                         std::isalnum(text[i + 1] & 0x7F);
    if (!between) return false;
  }
  return true;
}

}  // namespace

bool ParseInt(std::string_view text, int base, int64_t* value) {
  std::string digits;
  if (!DropUnderscores(Strip(text), &digits)) return false;
  std::string_view rest = digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string prefix = ToLower(rest.substr(0, 2));
  for (const auto& [mark, its_base] : {std::pair("0x", 16), {"0o", 8}, {"0b", 2}}) {
    if (prefix == mark && (base == its_base || base == 0)) {
      rest.remove_prefix(2);
      base = its_base;
      break;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || rest.empty() || rest[0] == '-' || rest[0] == '+') return false;
  uint64_t magnitude = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), magnitude, base);
  if (result.ec != std::errc() || result.ptr != rest.data() + rest.size()) return false;
  const uint64_t most = uint64_t{1} << 63;
  if (magnitude > (negative ? most : most - 1)) return false;
  *value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool ParseFloat(std::string_view text, double* value) {
  std::string digits;
  if (!DropUnderscores(Strip(text), &digits)) return false;
  std::string_view rest = digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return false;
  const std::string lower = ToLower(rest);
  double parsed = 0;
  if (lower == "inf" || lower == "infinity") {
    parsed = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    parsed = std::numeric_limits<double>::quiet_NaN();
  } else if (!ParseDouble(rest, &parsed)) {
    // Perhaps too large or too small for a double: use strtod's result.
    if (rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return false;
    const std::string number(rest);
    char* end = nullptr;
    parsed = std::strtod(number.c_str(), &end);
    if (end != number.c_str() + number.size()) return false;
  }
  *value = negative ? -parsed : parsed;
  return true;
}

// --- quoting ----------------------------------------------------------------

namespace {

void AppendHex(uint32_t value, int digits, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out->push_back(kHex[(value >> shift) & 15]);
  }
}

void AppendEscapedChar(char32_t c, std::string* out) {
  if (c < 0x100) {
    out->append("\\x");
    AppendHex(c, 2, out);
  } else if (c < 0x10000) {
    out->append("\\u");
    AppendHex(c, 4, out);
  } else {
    out->append("\\U");
    AppendHex(c, 8, out);
  }
}

// The letter after the backslash in "\n" and similar; 0 if there is none.
char ShortEscape(char32_t c, bool json) {
  switch (c) {
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\b':
      return json ? 'b' : 0;
    case '\f':
      return json ? 'f' : 0;
    case '\\':
      return '\\';
    default:
      return 0;
  }
}

}  // namespace

char QuoteFor(std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  return has_single && text.find('"') == text.npos ? '"' : '\'';
}

void AppendQuoted(std::string_view text, char quote, std::string* out) {
  while (!text.empty()) {
    const size_t bytes = CharBytes(text);
    const char32_t c = FirstChar(text);
    if (const char letter = ShortEscape(c, /*json=*/false)) {
      out->push_back('\\');
      out->push_back(letter);
    } else if (c == static_cast<unsigned char>(quote)) {
      out->push_back('\\');
      out->push_back(quote);
    } else if (IsPrintable(c)) {
      out->append(text.substr(0, bytes));
    } else {
      AppendEscapedChar(c, out);
    }
    text.remove_prefix(bytes);
  }
}

void AppendJsonText(std::string_view text, bool ensure_ascii, std::string* out) {
  while (!text.empty()) {
    const size_t bytes = CharBytes(text);
    const char32_t c = FirstChar(text);
    if (const char letter = ShortEscape(c, /*json=*/true)) {
      out->push_back('\\');
      out->push_back(letter);
    } else if (c == '"') {
      out->append("\\\"");
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      out->append("\\u");
      AppendHex(c, 4, out);
    } else if (ensure_ascii && c >= 0x10000) {
      out->append("\\u");
      AppendHex(0xD800 + ((c - 0x10000) >> 10), 4, out);
      out->append("\\u");
      AppendHex(0xDC00 + ((c - 0x10000) & 0x3FF), 4, out);
    } else {
      out->append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
}

std::string EscapeHtml(std::string_view text) {
  constexpr size_t kMaxAdded = 5;
  const auto is_special = [](char c) {
    return std::string_view("&<>\"'").find(c) != std::string_view::npos;
  };
  std::string out;
  out.reserve(text.size() +
              kMaxAdded * static_cast<size_t>(std::ranges::count_if(text, is_special)));
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace weft::jinja
