// Python's text operations on UTF-8: code points, white space, case, and the formatting of numbers
// and strings. Pure functions, callable anywhere. Invalid bytes count as one code point each.
#ifndef WEFT_JINJA_TEXT_H_
#define WEFT_JINJA_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

class Meter;

// Length in bytes of the first code point. REQUIRES: not empty.
size_t CharBytes(std::string_view text);
// The first code point; U+FFFD for an invalid byte. REQUIRES: not empty.
char32_t FirstChar(std::string_view text);
int64_t CountChars(std::string_view text);
// Byte offset of the n-th code point, or the size if there are fewer.
size_t ByteOffset(std::string_view text, int64_t n_chars);
std::vector<std::string_view> Chars(std::string_view text);
// What Chars takes.
inline size_t CharsBytes(std::string_view text) { return text.size() * sizeof(std::string_view); }

// Where `needle` first occurs at or after `from`, npos if nowhere. Takes linear time for any texts;
// charges `meter` for the distance searched.
size_t FindText(Meter* meter, std::string_view text, std::string_view needle, size_t from = 0);
// Where it last occurs.
size_t FindLastText(Meter* meter, std::string_view text, std::string_view needle);

// str.isspace of one code point.
bool IsSpace(char32_t c);
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
std::string_view Strip(std::string_view text);
// Strips code points that occur in `chars`.
std::string_view StripLeft(std::string_view text, std::string_view chars);
std::string_view StripRight(std::string_view text, std::string_view chars);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalize(std::string_view text);
// str.title: capitalises every letter that follows a non-letter.
std::string TitleCase(std::string_view text);

// The classes behind str.isalpha and similar, for one code point.
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsNumeric(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsPrintable(char32_t c);

// repr(float): the shortest digits that parse back to the same value, "1e+16", "nan".
std::string FloatRepr(double value);
// The quotes of repr(str), and what stands between them: of each part of the text separately.
char QuoteFor(std::string_view text);
void AppendQuoted(std::string_view text, char quote, std::string* out);
// What stands between the quotes of a JSON string.
void AppendJsonText(std::string_view text, bool ensure_ascii, std::string* out);
// & < > " ' as HTML entities.
std::string EscapeHtml(std::string_view text);

// int(text, base) and float(text), allowing surrounding white space and underscores between digits.
// False if the text is not a number or exceeds 64 bits.
bool ParseInt(std::string_view text, int base, int64_t* value);
bool ParseFloat(std::string_view text, double* value);

}  // namespace weft::jinja

#endif  // WEFT_JINJA_TEXT_H_
