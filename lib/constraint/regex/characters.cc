#include "constraint/regex/characters.h"

#include <algorithm>
#include <utility>

namespace weft::constraint {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

// Whether JSON does not write the character as itself.
bool IsEscaped(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

// REQUIRES: IsEscaped(c).
std::string JsonEscape(uint32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return std::string("\\u00") + kHexDigits[c >> 4] + kHexDigits[c & 15];
  }
}

int EncodeUtf8(uint32_t c, uint8_t* out) {
  if (c < 0x80) {
    out[0] = static_cast<uint8_t>(c);
    return 1;
  }
  const int bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = bytes - 1; i > 0; --i, c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<uint8_t>(kLead[bytes] | c);
  return bytes;
}

// All sequences from `first` to `last`, which have the same number of bytes.
void AddUtf8(RegexPool* pool, const uint8_t* first, const uint8_t* last, int bytes,
             std::vector<RegexId>* out) {
  if (bytes == 1) {
    out->push_back(pool->Bytes(ByteSet::Range(first[0], last[0])));
    return;
  }
  const auto tail = [&](const uint8_t* from, const uint8_t* to) {
    std::vector<RegexId> parts;
    AddUtf8(pool, from, to, bytes - 1, &parts);
    return pool->Or(std::move(parts));
  };
  constexpr uint8_t kLow[] = {0x80, 0x80, 0x80}, kHigh[] = {0xBF, 0xBF, 0xBF};
  if (first[0] == last[0]) {
    out->push_back(pool->Concat(pool->Byte(first[0]), tail(first + 1, last + 1)));
    return;
  }
  int begin = first[0], end = last[0];
  const auto is = [&](const uint8_t* from, uint8_t value) {
    return std::all_of(from + 1, from + bytes, [value](uint8_t b) { return b == value; });
  };
  if (!is(first, 0x80)) {
    out->push_back(pool->Concat(pool->Byte(first[0]), tail(first + 1, kHigh)));
    ++begin;
  }
  if (!is(last, 0xBF)) {
    out->push_back(pool->Concat(pool->Byte(last[0]), tail(kLow, last + 1)));
    --end;
  }
  if (begin <= end) {
    out->push_back(pool->Concat(pool->Bytes(ByteSet::Range(begin, end)), tail(kLow, kHigh)));
  }
}

RegexId OneOfAnew(RegexPool* pool, const CharSet& set, Spelling spelling) {
  std::vector<RegexId> parts;
  ByteSet ascii;
  for (const auto& [first, last] : set.ranges()) {
    for (uint32_t c = first; c <= std::min(last, 0x7Fu); ++c) {
      if (spelling == Spelling::kJson && IsEscaped(c)) {
        parts.push_back(pool->Literal(JsonEscape(c)));
      } else {
        ascii.Add(static_cast<int>(c));
      }
    }
    constexpr uint32_t kBounds[] = {0x80, 0x800, 0x10000, kLastCodePoint + 1};
    for (int i = 0; i < 3; ++i) {
      const uint32_t low = std::max(first, kBounds[i]), high = std::min(last, kBounds[i + 1] - 1);
      if (low > high) continue;
      uint8_t from[4], to[4];
      const int bytes = EncodeUtf8(low, from);
      EncodeUtf8(high, to);
      AddUtf8(pool, from, to, bytes, &parts);
    }
  }
  parts.push_back(pool->Bytes(ascii));
  return pool->Or(std::move(parts));
}

}  // namespace

CharSet CharSet::All() {
  CharSet all;
  all.Add(0, kLastCodePoint);
  return all;
}

void CharSet::Add(uint32_t first, uint32_t last) {
  last = std::min(last, kLastCodePoint);
  if (first > last) return;
  if (first <= 0xDFFF && last >= 0xD800) {
    if (first < 0xD800) Add(first, 0xD7FF);
    if (last > 0xDFFF) Add(0xE000, last);
    return;
  }
  std::pair<uint32_t, uint32_t> made{first, last};
  std::vector<std::pair<uint32_t, uint32_t>> kept;
  for (const auto& range : ranges_) {
    if (range.second + 1 < made.first || range.first > made.second + 1) {
      kept.push_back(range);
    } else {
      made = {std::min(made.first, range.first), std::max(made.second, range.second)};
    }
  }
  kept.insert(std::ranges::upper_bound(kept, made), made);
  ranges_ = std::move(kept);
}

void CharSet::Add(const CharSet& other) {
  for (const auto& [first, last] : other.ranges_) Add(first, last);
}

CharSet CharSet::Complement() const {
  CharSet rest;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) rest.Add(next, first - 1);
    next = last + 1;
  }
  rest.Add(next, kLastCodePoint);
  return rest;
}

bool CharSet::Has(uint32_t c) const {
  return std::ranges::any_of(ranges_, [c](const auto& r) { return r.first <= c && c <= r.second; });
}

RegexId OneOf(RegexPool* pool, const CharSet& set, Spelling spelling) {
  std::vector<uint32_t> key{static_cast<uint32_t>(spelling)};
  for (const auto& [first, last] : set.ranges()) key.insert(key.end(), {first, last});
  const auto [it, added] = pool->made().try_emplace(std::move(key), kNothing);
  if (added) it->second = OneOfAnew(pool, set, spelling);
  return it->second;
}

std::string SpellOne(uint32_t c, Spelling spelling) {
  if (spelling == Spelling::kJson && IsEscaped(c)) return JsonEscape(c);
  uint8_t bytes[4];
  const int count = EncodeUtf8(c, bytes);
  return {bytes, bytes + count};
}

std::string Spell(std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kPlain) return std::string(text);
  const auto is_escaped = [](char c) { return IsEscaped(static_cast<uint8_t>(c)); };
  std::string out;
  for (auto at = text.begin();;) {
    const auto next = std::find_if(at, text.end(), is_escaped);
    out.append(at, next);
    if (next == text.end()) return out;
    out.append(JsonEscape(static_cast<uint8_t>(*next)));
    at = next + 1;
  }
}

RegexId QuotedJson(RegexPool* pool, int32_t least, int32_t most) {
  const RegexId unit = OneOf(pool, CharSet::All(), Spelling::kJson);
  return pool->Concat({pool->Byte('"'), pool->Repeat(unit, least, most), pool->Byte('"')});
}

RegexId AnySpellingJson(RegexPool* pool) {
  CharSet plain = CharSet::All();
  CharSet special;
  special.Add(0, 0x1F);
  special.Add('"', '"');
  special.Add('\\', '\\');
  plain = special.Complement();
  const auto set = [&](std::string_view members) {
    ByteSet bytes;
    for (const char c : members) bytes.Add(static_cast<uint8_t>(c));
    return pool->Bytes(bytes);
  };
  const RegexId hex = set("0123456789abcdefABCDEF");
  const RegexId d = set("dD"), u = pool->Literal("\\u");
  const RegexId hex2 = pool->Concat(hex, hex), hex3 = pool->Concat(hex, hex2);
  const RegexId unit = pool->Or(
      {OneOf(pool, plain, Spelling::kPlain), pool->Concat(pool->Byte('\\'), set("\"\\/bfnrt")),
       pool->Concat({u, set("0123456789abcefABCEF"), hex3}),
       pool->Concat({u, d, set("01234567"), hex2}),
       pool->Concat({u, d, set("89abAB"), hex2, u, d, set("cdefCDEF"), hex2})});
  return pool->Concat({pool->Byte('"'), pool->Repeat(unit, 0, kUnlimited), pool->Byte('"')});
}

}  // namespace weft::constraint
