#include "constraint/regex/pattern_parser.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/unicode.h"

namespace weft::constraint {
namespace {

constexpr int kMaxPatternDepth = 100;
constexpr int32_t kMaxPatternRepeats = 1'000'000;

CharSet Range(uint32_t first, uint32_t last) {
  CharSet set;
  set.Add(first, last);
  return set;
}

CharSet Digits() { return Range('0', '9'); }

CharSet WordChars() {
  CharSet set = Digits();
  set.Add('a', 'z');
  set.Add('A', 'Z');
  set.Add('_', '_');
  return set;
}

CharSet SpaceChars() {
  CharSet set = Range('\t', '\r');
  for (const uint32_t c :
       {0x20u, 0xA0u, 0x1680u, 0x2028u, 0x2029u, 0x202Fu, 0x205Fu, 0x3000u, 0xFEFFu}) {
    set.Add(c, c);
  }
  set.Add(0x2000, 0x200A);
  return set;
}

CharSet LineEnds() {
  CharSet set = Range('\n', '\n');
  set.Add('\r', '\r');
  set.Add(0x2028, 0x2029);
  return set;
}

// The code points of one class of ClassOf, computed once.
const CharSet& ClassSet(size_t bit) {
  static std::array<std::once_flag, 8> once;
  static std::array<CharSet, 8> sets;
  std::call_once(once[bit], [bit] {
    uint32_t first = 0;
    bool inside = false;
    CharSet made;
    for (uint32_t c = 0; c <= kLastCodePoint + 1; ++c) {
      const bool has = c <= kLastCodePoint && (ClassOf(c) >> bit & 1) != 0;
      if (has && !inside) first = c;
      if (!has && inside) made.Add(first, c - 1);
      inside = has;
    }
    sets[bit] = std::move(made);
  });
  return sets[bit];
}

}  // namespace

uint32_t PatternParser::NextChar() {
  const auto lead = static_cast<uint8_t>(text_[at_]);
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  uint32_t c = more == 0 ? lead : lead & (0x3Fu >> more);
  ++at_;
  for (int i = 0; i < more && !AtEnd(); ++i)
    c = c << 6 | (static_cast<uint8_t>(text_[at_++]) & 0x3F);
  return c;
}

bool PatternParser::Take(std::string_view expected) {
  if (text_.substr(at_, expected.size()) != expected) return false;
  at_ += expected.size();
  return true;
}

StatusOr<PatternNode> PatternParser::Parse() {
  WEFT_ASSIGN_OR_RETURN(PatternNode node, ParseChoice(0));
  if (!AtEnd()) return InvalidArgument("a \")\" without \"(\" at byte ", at_);
  return node;
}

StatusOr<PatternNode> PatternParser::ParseChoice(int depth) {
  if (depth > kMaxPatternDepth)
    return InvalidArgument("groups are nested more than ", kMaxPatternDepth, " deep");
  PatternNode choice{.kind = PatternNode::Kind::kChoice};
  do {
    WEFT_ASSIGN_OR_RETURN(PatternNode part, ParseSequence(depth));
    choice.parts.push_back(std::move(part));
  } while (Take("|"));
  if (choice.parts.size() == 1) return std::move(choice.parts[0]);
  return choice;
}

StatusOr<PatternNode> PatternParser::ParseSequence(int depth) {
  PatternNode sequence{.kind = PatternNode::Kind::kSequence};
  while (!AtEnd() && text_[at_] != '|' && text_[at_] != ')') {
    WEFT_ASSIGN_OR_RETURN(PatternNode atom, ParseAtom(depth));
    WEFT_RETURN_IF_ERROR(ParseQuantifier(&atom));
    sequence.parts.push_back(std::move(atom));
  }
  return sequence;
}

StatusOr<PatternNode> PatternParser::ParseAtom(int depth) {
  using Kind = PatternNode::Kind;
  if (Take("^")) return PatternNode{.kind = Kind::kBegin};
  if (Take("$")) return PatternNode{.kind = Kind::kEnd};
  if (Take("(")) return ParseGroup(depth);
  PatternNode node{.kind = Kind::kSet};
  if (Take(".")) {
    node.set = LineEnds().Complement();
  } else if (Take("[")) {
    WEFT_ASSIGN_OR_RETURN(node.set, ParseClass());
  } else if (Take("\\")) {
    WEFT_ASSIGN_OR_RETURN(node.set, ParseEscape(/*in_class=*/false));
  } else {
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?') {
      return InvalidArgument("a \"", c, "\" with nothing to repeat at byte ", at_);
    }
    const uint32_t code = NextChar();
    node.set.Add(code, code);
  }
  return node;
}

StatusOr<PatternNode> PatternParser::ParseGroup(int depth) {
  using Kind = PatternNode::Kind;
  Kind kind = Kind::kSequence;
  if (Take("?=")) {
    kind = Kind::kAhead;
  } else if (Take("?!")) {
    kind = Kind::kNotAhead;
  } else if (Take("?<=") || Take("?<!")) {
    return Unimplemented("look-behind is not supported");
  } else if (Take("?<") || Take("?P<")) {
    const size_t close = text_.find('>', at_);
    if (close == std::string_view::npos) return InvalidArgument("a group's name does not end");
    at_ = close + 1;
  } else if (!Take("?:") && Take("?")) {
    return Unimplemented("flags inside of a pattern are not supported");
  }
  WEFT_ASSIGN_OR_RETURN(PatternNode inner, ParseChoice(depth + 1));
  if (!Take(")")) return InvalidArgument("a \"(\" that is not closed");
  if (kind == Kind::kSequence) return inner;
  PatternNode node{.kind = kind};
  node.parts.push_back(std::move(inner));
  return node;
}

bool PatternParser::ReadBraces(int32_t* least, int32_t* most) {
  size_t at = at_ + 1;
  const auto number = [&](int32_t* value) {
    const size_t begin = at;
    int64_t sum = 0;
    for (; at < text_.size() && text_[at] >= '0' && text_[at] <= '9'; ++at) {
      sum = std::min<int64_t>(sum * 10 + (text_[at] - '0'), INT32_MAX);
    }
    *value = static_cast<int32_t>(sum);
    return at > begin;
  };
  if (!number(least)) return false;
  *most = *least;
  if (at < text_.size() && text_[at] == ',') {
    ++at;
    if (!number(most)) *most = kUnlimited;
  }
  if (at >= text_.size() || text_[at] != '}') return false;
  at_ = at + 1;
  return true;
}

Status PatternParser::ParseQuantifier(PatternNode* atom) {
  using Kind = PatternNode::Kind;
  while (!AtEnd()) {
    int32_t least = 0, most = kUnlimited;
    if (Take("+")) {
      least = 1;
    } else if (Take("?")) {
      most = 1;
    } else if (!Take("*")) {
      if (text_[at_] != '{' || !ReadBraces(&least, &most)) return OkStatus();
    }
    if (most != kUnlimited && most < least)
      return InvalidArgument("{", least, ",", most, "} is out of order");
    if (least > kMaxPatternRepeats || most > kMaxPatternRepeats) {
      return Unimplemented("more than ", kMaxPatternRepeats, " repetitions are not supported");
    }
    if (!AtEnd() && text_[at_] == '+')
      return InvalidArgument("possessive quantifiers are unknown to ECMA-262");
    Take("?");  // lazy: same language
    if (atom->kind == Kind::kBegin || atom->kind == Kind::kEnd || atom->kind == Kind::kAhead ||
        atom->kind == Kind::kNotAhead) {
      return Unimplemented("a repeated assertion is not supported");
    }
    PatternNode repeat{.kind = Kind::kRepeat, .least = least, .most = most};
    repeat.parts.push_back(std::move(*atom));
    *atom = std::move(repeat);
    if (!AtEnd() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) {
      return InvalidArgument("two quantifiers in a row at byte ", at_);
    }
    return OkStatus();
  }
  return OkStatus();
}

StatusOr<CharSet> PatternParser::ParseClass() {
  const bool negated = Take("^");
  CharSet set;
  while (true) {
    if (AtEnd()) return InvalidArgument("a \"[\" that is not closed");
    if (Take("]")) break;
    const auto item = [&]() -> StatusOr<CharSet> {
      if (Take("\\")) return ParseEscape(/*in_class=*/true);
      const uint32_t c = NextChar();
      return Range(c, c);
    };
    WEFT_ASSIGN_OR_RETURN(CharSet low, item());
    const auto single = [](const CharSet& s) {
      return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
    };
    if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
      ++at_;
      WEFT_ASSIGN_OR_RETURN(const CharSet high, item());
      if (single(low) && single(high)) {
        if (high.ranges()[0].first < low.ranges()[0].first) {
          return InvalidArgument("a range in \"[]\" is out of order");
        }
        set.Add(low.ranges()[0].first, high.ranges()[0].first);
        continue;
      }
      set.Add('-', '-');
      set.Add(high);
    }
    set.Add(low);
  }
  return negated ? set.Complement() : set;
}

StatusOr<uint32_t> PatternParser::ParseHex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = AtEnd() ? '?' : AsciiLower(text_[at_]);
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(c >= 'a' && c <= 'f'))
      return InvalidArgument("an escape lacks hexadecimal digits");
    value = value * 16 + static_cast<uint32_t>(decimal ? c - '0' : c - 'a' + 10);
    ++at_;
  }
  return value;
}

StatusOr<uint32_t> PatternParser::ParseUnicodeEscape() {
  if (Take("{")) {
    uint32_t value = 0;
    while (!Take("}")) {
      WEFT_ASSIGN_OR_RETURN(const uint32_t digit, ParseHex(1));
      value = value * 16 + digit;
      if (value > kLastCodePoint) return InvalidArgument("\\u{...} is beyond Unicode");
    }
    return value;
  }
  WEFT_ASSIGN_OR_RETURN(uint32_t value, ParseHex(4));
  if (value >= 0xD800 && value < 0xDC00 && Take("\\u")) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t low, ParseHex(4));
    if (low < 0xDC00 || low > 0xDFFF) return InvalidArgument("half a surrogate pair");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }
  return value;
}

StatusOr<CharSet> PatternParser::ParseProperty(bool negated) {
  const size_t close = text_.find('}', at_);
  if (!Take("{") || close == std::string_view::npos) return InvalidArgument("\\p without {...}");
  std::string_view name = text_.substr(at_, close - at_);
  at_ = close + 1;
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  constexpr std::pair<std::string_view, size_t> kNames[] = {{"L", 0},
                                                            {"Letter", 0},
                                                            {"N", 1},
                                                            {"Number", 1},
                                                            {"P", 2},
                                                            {"Punctuation", 2},
                                                            {"S", 3},
                                                            {"Symbol", 3},
                                                            {"M", 4},
                                                            {"Mark", 4},
                                                            {"White_Space", 5},
                                                            {"Ll", 7},
                                                            {"Lowercase_Letter", 7}};
  for (const auto& [known, bit] : kNames) {
    if (name == known) return negated ? ClassSet(bit).Complement() : ClassSet(bit);
  }
  return Unimplemented("\\p{", Printable(name), "} is not supported");
}

StatusOr<CharSet> PatternParser::ParseEscape(bool in_class) {
  if (AtEnd()) return InvalidArgument("a backslash at the end");
  const uint32_t c = NextChar();
  const auto code = [](uint32_t value) { return Range(value, value); };
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Digits().Complement();
    case 'w':
      return WordChars();
    case 'W':
      return WordChars().Complement();
    case 's':
      return SpaceChars();
    case 'S':
      return SpaceChars().Complement();
    case 't':
      return code('\t');
    case 'n':
      return code('\n');
    case 'r':
      return code('\r');
    case 'f':
      return code('\f');
    case 'v':
      return code('\v');
    case 'p':
    case 'P':
      return ParseProperty(c == 'P');
    case 'x': {
      WEFT_ASSIGN_OR_RETURN(const uint32_t value, ParseHex(2));
      return code(value);
    }
    case 'u': {
      WEFT_ASSIGN_OR_RETURN(const uint32_t value, ParseUnicodeEscape());
      return code(value);
    }
    case 'b':
      if (in_class) return code('\b');
      return Unimplemented("word boundaries (\\b) are not supported");
    case 'c': {
      const char letter = AtEnd() ? '?' : AsciiLower(text_[at_]);
      if (letter < 'a' || letter > 'z') return InvalidArgument("\\c without a letter");
      ++at_;
      return code(static_cast<uint32_t>(letter - 'a' + 1));
    }
    case '0':
      if (AtEnd() || text_[at_] < '0' || text_[at_] > '9') return code(0);
      return Unimplemented("octal escapes are not supported");
    default:
      break;
  }
  if (c >= '1' && c <= '9') return Unimplemented("back references are not supported");
  if (c < 0x80 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
    return Unimplemented("the escape \\", static_cast<char>(c), " is not supported");
  }
  return code(c);
}

}  // namespace weft::constraint
