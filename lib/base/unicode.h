// Code points: decoding from UTF-8, and character classes.
//
// Pure functions over tables built once; callable from any thread.
#ifndef WEFT_BASE_UNICODE_H_
#define WEFT_BASE_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Bits for a code point's general category. kUpper and kLower are set in addition to kLetter;
// modifier and other letters have neither.
enum CharClass : uint8_t {
  kLetter = 1,       // L*
  kNumber = 2,       // N*
  kPunctuation = 4,  // P*
  kSymbol = 8,       // S*
  kMark = 16,        // M*
  kSpace = 32,       // the property White_Space
  kUpper = 64,       // Lu, Lt
  kLower = 128,      // Ll
};

namespace unicode_internal {
// Classes in blocks of 256 code points; equal blocks are stored once.
struct ClassTable {
  const uint16_t* block_of;  // [0x1100]
  const uint8_t* classes;    // [blocks][256]
};
const ClassTable& Classes();
}  // namespace unicode_internal

inline constexpr char32_t kReplacementChar = 0xFFFD;
inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

// A combination of CharClass bits; 0 for code points in none of the classes.
inline uint8_t ClassOf(char32_t c) {
  if (c > kMaxCodePoint) return 0;
  static const unicode_internal::ClassTable& table = unicode_internal::Classes();
  return table.classes[table.block_of[c >> 8] * size_t{256} + (c & 255)];
}

// Han ideographs: the unified blocks with extensions A to F, and compatibility.
bool IsHan(char32_t c);

// The simple lower-case mapping.
char32_t ToLower(char32_t c);

// The first code point of the canonical decomposition, e.g. a letter without its accents.
char32_t CanonicalBase(char32_t c);

// Control, format, surrogate and private-use code points (Cc, Cf, Cs, Co).
bool IsControlChar(char32_t c);

struct DecodedChar {
  char32_t code;
  uint32_t bytes;
};

// The character at the start of `text` (not empty), decoded leniently: overlong forms and
// surrogates are accepted, as other tokenizers do. Anything that is not a sequence at all, or is
// above U+10FFFF, is one byte of U+FFFD.
DecodedChar DecodeLenient(std::string_view text);

// The same without checks, for text that RepairUtf8 has returned.
inline DecodedChar DecodeTrusted(const char* p) {
  const auto* b = reinterpret_cast<const unsigned char*>(p);
  if (b[0] < 0x80) return {b[0], 1};
  if (b[0] < 0xE0) return {static_cast<char32_t>((b[0] & 0x1F) << 6 | (b[1] & 0x3F)), 2};
  if (b[0] < 0xF0) {
    return {static_cast<char32_t>((b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F)), 3};
  }
  return {static_cast<char32_t>((b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 |
                                (b[3] & 0x3F)),
          4};
}

void AppendUtf8(char32_t c, std::string* out);

// `text` itself if every character in it decodes to its shortest form (surrogates to themselves);
// otherwise `*storage`, with invalid parts replaced as DecodeLenient reads them.
std::string_view RepairUtf8(std::string_view text, std::string* storage);

// Length of the well-formed character at the start of `text`; 0 if more bytes may still complete
// one, -1 if the first byte cannot start one here.
int StrictCharLength(std::string_view text);

// True for a byte that continues a character.
inline bool IsContinuationByte(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The length announced by the lead byte alone; 1 for bytes that are not lead bytes.
inline size_t AnnouncedLength(char lead) {
  constexpr uint8_t kLengths[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kLengths[static_cast<unsigned char>(lead) >> 4];
}

}  // namespace weft

#endif  // WEFT_BASE_UNICODE_H_
