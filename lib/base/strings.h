// String building without printf or iostreams.
//
// StrCat("page ", id, " of ", n) joins text, characters, booleans, integers and floating-point
// numbers. Everything here is a pure function, callable anywhere.
#ifndef WEFT_BASE_STRINGS_H_
#define WEFT_BASE_STRINGS_H_

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace weft {

namespace strings_internal {

template <typename T>
void AppendPiece(std::string* out, const T& piece) {
  if constexpr (std::is_same_v<T, bool>) {
    out->append(piece ? "true" : "false");
  } else if constexpr (std::is_same_v<T, char>) {
    out->push_back(piece);
  } else if constexpr (std::is_enum_v<T>) {
    AppendPiece(out, static_cast<std::underlying_type_t<T>>(piece));
  } else if constexpr (std::is_arithmetic_v<T>) {
    char buffer[40];
    const auto result = std::to_chars(buffer, buffer + sizeof(buffer), piece);
    out->append(buffer, result.ptr);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    out->append(std::string_view(piece));
  } else {
    // Another library's view type, such as absl::string_view.
    out->append(piece.data(), piece.size());
  }
}

}  // namespace strings_internal

template <typename... Pieces>
void StrAppend(std::string* out, const Pieces&... pieces) {
  (strings_internal::AppendPiece(out, pieces), ...);
}

template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  StrAppend(&out, pieces...);
  return out;
}

template <typename Range>
std::string StrJoin(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out.append(separator);
    first = false;
    StrAppend(&out, item);
  }
  return out;
}

// Splits at every `separator`; "" gives one empty part.
std::vector<std::string_view> StrSplit(std::string_view text, char separator);

// A copy that is safe to display: control characters and invalid UTF-8 become \xNN, and text beyond
// `max_bytes` is cut with "...". For names that come from files.
std::string Printable(std::string_view text, size_t max_bytes = 80);

// Maps A-Z to a-z in any locale; every other byte is unchanged.
constexpr char AsciiLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
std::string AsciiLower(std::string_view text);
// Ignores the case of A-Z only.
bool EqualIgnoringCase(std::string_view a, std::string_view b);

// 1536 -> "1.5 KiB".
std::string HumanBytes(uint64_t bytes);

// Strict parsers: false unless the whole text is the number.
bool ParseInt64(std::string_view text, int64_t* value);
bool ParseDouble(std::string_view text, double* value);

}  // namespace weft

#endif  // WEFT_BASE_STRINGS_H_
