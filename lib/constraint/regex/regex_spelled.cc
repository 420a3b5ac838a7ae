// Languages of texts in another spelling.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraint/regex/characters.h"
#include "constraint/regex/regex.h"
#include "constraint/regex/walk.h"

namespace weft::constraint {
namespace {

// The characters that may follow a backslash within quotes, and their meanings.
constexpr std::string_view kEscapes = "ntrbf\\'\"", kMeanings = "\n\t\r\b\f\\'\"";

// The spelling of one byte of a text between quotation marks.
std::string SpellingOf(char c, RegexPool::Escapes escapes) {
  if (escapes == RegexPool::Escapes::kJson) return Spell({&c, 1}, Spelling::kJson);
  const size_t at = c == '\'' ? std::string_view::npos : kMeanings.find(c);
  return at == std::string_view::npos ? std::string(1, c) : std::string{'\\', kEscapes[at]};
}

}  // namespace

const ByteSet& RegexPool::EscapedBytes(Escapes escapes) {
  const auto escaped = [](Escapes how) {
    ByteSet set;
    for (int byte = 0; byte < 0x80; ++byte) {
      if (SpellingOf(static_cast<char>(byte), how).size() > 1) set.Add(byte);
    }
    return set;
  };
  static const ByteSet json = escaped(Escapes::kJson);
  static const ByteSet python = escaped(Escapes::kPython);
  return escapes == Escapes::kJson ? json : python;
}

ByteSet RegexPool::EdgesOfEscapes() {
  ByteSet edges;
  for (const char c : kEscapes) {
    edges.Add(c);
    edges.Add(c + 1);
  }
  return edges;
}

RegexId RegexWalk::Requoted(RegexId json, char quote) {
  return pool_.Concat(pool_.Byte(static_cast<uint8_t>(quote)),
                      Respelled(RawDerive(json, '"'), quote, false));
}

RegexId RegexWalk::Respelled(RegexId json_rest, int32_t quote, bool escaped) {
  if (json_rest == kNothing) return kNothing;
  const bool nullable = quote == 0 && pool_.AcceptsEmpty(RawDerive(json_rest, '"'));
  return pool_.Intern({.kind = Kind::kRespelled,
                       .nullable = nullable,
                       .a = json_rest,
                       .b = quote,
                       .c = escaped ? 1 : 0});
}

RegexId RegexWalk::DeriveRespelled(const Form& n, uint8_t byte) {
  char meaning = static_cast<char>(byte);
  if (n.c != 0) {
    const size_t known = kEscapes.find(meaning);
    if (known == std::string_view::npos) return kNothing;
    meaning = kMeanings[known];
  } else if (n.b != 0 && byte == n.b) {
    return pool_.AcceptsEmpty(RawDerive(n.a, '"')) ? kEmpty : kNothing;
  } else if (n.b != 0 && byte == '\\') {
    return Respelled(n.a, n.b, true);
  }
  RegexId rest = n.a;
  for (const char c : Spell({&meaning, 1}, Spelling::kJson)) {
    rest = RawDerive(rest, static_cast<uint8_t>(c));
  }
  return Respelled(rest, n.b, false);
}

RegexId RegexPool::Spelled(RegexId texts, Escapes escapes) {
  if (texts == kNothing || texts == kEmpty) return texts;
  return Intern({.kind = Kind::kSpelled, .a = texts, .b = static_cast<int32_t>(escapes)});
}

RegexId RegexWalk::DeriveSpelled(const Form& n, uint8_t byte) {
  const auto escapes = static_cast<RegexPool::Escapes>(n.b);
  const ByteSet escaped = RegexPool::EscapedBytes(escapes);
  if (byte != '\\') {
    return escaped.Has(byte) ? kNothing : pool_.Spelled(RawDerive(n.a, byte), escapes);
  }
  std::vector<RegexId> parts;
  for (int meant = 0; meant < 0x80; ++meant) {
    if (!escaped.Has(meant) || !MayBegin(n.a).Has(meant)) continue;
    const std::string spelling = SpellingOf(static_cast<char>(meant), escapes);
    parts.push_back(
        pool_.Concat(pool_.Literal(std::string_view(spelling).substr(1)),
                     pool_.Spelled(RawDerive(n.a, static_cast<uint8_t>(meant)), escapes)));
  }
  return pool_.Or(std::move(parts));
}

}  // namespace weft::constraint
