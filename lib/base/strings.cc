#include "base/strings.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/unicode.h"

namespace weft {

std::vector<std::string_view> StrSplit(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  parts.push_back(text.substr(start));
  return parts;
}

std::string Printable(std::string_view text, size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    if (out.size() >= max_bytes) {
      out.append("...");
      break;
    }
    const int length = StrictCharLength(text.substr(i));
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    // U+0080..U+009F are controls too: a terminal may treat U+009B as an escape.
    const bool c1 = byte == 0xC2 && length == 2 && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (length <= 0 || byte < 0x20 || byte == 0x7F || c1) {
      out.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
      ++i;
    } else {
      out.append(text.substr(i, static_cast<size_t>(length)));
      i += static_cast<size_t>(length);
    }
  }
  return out;
}

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = AsciiLower(c);
  return lower;
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return AsciiLower(x) == AsciiLower(y); });
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, 1).ptr;
  return StrCat(std::string_view(buffer, static_cast<size_t>(end - buffer)), " ", kUnits[unit]);
}

namespace {

template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

}  // namespace

bool ParseInt64(std::string_view text, int64_t* value) { return ParseWhole(text, value); }

#if defined(__cpp_lib_to_chars)
bool ParseDouble(std::string_view text, double* value) { return ParseWhole(text, value); }
#else
// libc++ before LLVM 20 reads no floating-point numbers. strtod takes more than from_chars does:
// leading space, plus signs, hexadecimal digits.
bool ParseDouble(std::string_view text, double* value) {
  const std::string magnitude(text.starts_with('-') ? text.substr(1) : text);
  const bool is_number = magnitude.find_first_not_of("0123456789.eE+-") == std::string::npos &&
                         !magnitude.starts_with('+') && !magnitude.starts_with('-');
  if (!is_number && magnitude != "inf" && magnitude != "nan") return false;
  char* end = nullptr;
  errno = 0;
  const double parsed = std::strtod(magnitude.c_str(), &end);
  if (magnitude.empty() || end != magnitude.c_str() + magnitude.size() || errno == ERANGE) {
    return false;
  }
  *value = text.starts_with('-') ? -parsed : parsed;
  return true;
}
#endif

}  // namespace weft
