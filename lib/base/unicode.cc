#include "base/unicode.h"

#include <utf8proc.h>

#include <map>
#include <vector>

namespace weft {
namespace {

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

uint8_t ComputeClass(char32_t c) {
  const uint8_t space = IsWhiteSpace(c) ? kSpace : 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    default:
      return space;
  }
}

struct OwnedTable {
  std::vector<uint16_t> block_of;
  std::vector<uint8_t> classes;
};

OwnedTable* BuildTable() {
  auto* table = new OwnedTable;
  std::map<std::string, uint16_t> known;
  std::string block(256, '\0');
  for (char32_t first = 0; first <= kMaxCodePoint; first += 256) {
    for (char32_t i = 0; i < 256; ++i) block[i] = static_cast<char>(ComputeClass(first + i));
    const auto [it, added] = known.emplace(block, static_cast<uint16_t>(known.size()));
    if (added) table->classes.insert(table->classes.end(), block.begin(), block.end());
    table->block_of.push_back(it->second);
  }
  return table;
}

}  // namespace

namespace unicode_internal {

const ClassTable& Classes() {
  // Never freed: other threads may still classify while the process exits.
  static const OwnedTable* const owned = BuildTable();
  static const ClassTable table = {owned->block_of.data(), owned->classes.data()};
  return table;
}

}  // namespace unicode_internal

bool IsHan(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2EBEF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

char32_t ToLower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

char32_t CanonicalBase(char32_t c) {
  if (c < 0xC0) return c;
  utf8proc_int32_t decomposed[16];
  int boundary = 0;
  const utf8proc_ssize_t n = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), decomposed, 16,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  return n > 0 ? static_cast<char32_t>(decomposed[0]) : c;
}

bool IsControlChar(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

DecodedChar DecodeLenient(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const uint32_t length = lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
  if (length == 0 || text.size() < length) return {kReplacementChar, 1};
  for (uint32_t i = 1; i < length; ++i) {
    if (!IsContinuationByte(text[i])) return {kReplacementChar, 1};
  }
  const DecodedChar decoded = DecodeTrusted(text.data());
  return decoded.code > kMaxCodePoint ? DecodedChar{kReplacementChar, 1} : decoded;
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

std::string_view RepairUtf8(std::string_view text, std::string* storage) {
  constexpr char32_t kMin[5] = {0, 0, 0x80, 0x800, 0x10000};
  size_t pos = 0;
  size_t copied = 0;  // text[0, copied) is in *storage
  bool repaired = false;
  while (pos < text.size()) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const DecodedChar c = DecodeLenient(text.substr(pos));
    const bool sound = c.bytes > 1 && c.code >= kMin[c.bytes];
    if (!sound) {
      if (!repaired) storage->clear();
      repaired = true;
      storage->append(text, copied, pos - copied);
      AppendUtf8(c.code, storage);
      copied = pos + c.bytes;
    }
    pos += c.bytes;
  }
  if (!repaired) return text;
  storage->append(text, copied, text.size() - copied);
  return *storage;
}

int StrictCharLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The limits on the second byte exclude overlong forms, surrogates and code points above
  // U+10FFFF.
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) >= text.size()) return 0;
    if (at(i) < low || at(i) > high) return -1;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace weft
