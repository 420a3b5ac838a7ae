#include "model/tokenizer/pretokenizer.h"

#include <algorithm>

namespace weft {
namespace {

struct Char {
  char32_t code;
  uint32_t bytes;
  uint8_t char_class;

  bool Is(uint8_t classes) const { return (char_class & classes) != 0; }
};

bool IsLineEnd(char32_t c) { return c == '\r' || c == '\n'; }
bool IsAsciiLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsAsciiPunctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Positions in one piece of text. Reading at the end returns U+0000 with no class and no bytes,
// which no rule accepts.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Char At(size_t pos) const {
    if (pos >= text_.size()) return {0, 0, 0};
    const DecodedChar c = DecodeTrusted(text_.data() + pos);
    return {c.code, c.bytes, ClassOf(c.code)};
  }
  size_t size() const { return text_.size(); }
  std::string_view text() const { return text_; }

  // The end of the run of characters for which `fits` holds, starting at `pos`.
  template <typename Predicate>
  size_t RunEnd(size_t pos, Predicate fits) const {
    while (pos < text_.size()) {
      const Char c = At(pos);
      if (!fits(c)) break;
      pos += c.bytes;
    }
    return pos;
  }

 private:
  std::string_view text_;
};

// Splits `text` where `match(pos)` returns an end beyond pos; text not covered by a match stays in
// one piece up to the next match.
template <typename Match, typename Emit>
void CutAtMatches(std::string_view text, Match match, Emit emit) {
  size_t gap = 0;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t end = match(pos);
    if (end == pos) {
      pos += DecodeTrusted(text.data() + pos).bytes;
      continue;
    }
    if (gap < pos) emit(text.substr(gap, pos - gap));
    emit(text.substr(pos, end - pos));
    gap = pos = end;
  }
  if (gap < text.size()) emit(text.substr(gap));
}

size_t MatchRun(const Reader& reader, const RunRules& rules, size_t pos) {
  size_t at = pos;
  Char c = reader.At(at);
  if ((rules.space_prefix && c.Is(kSpace)) || (rules.blank_prefix && c.code == ' ')) {
    at += c.bytes;
    c = reader.At(at);
  }
  int count = 0;
  while (c.bytes > 0 && rules.set.Contains(c.code) && (rules.max == 0 || count < rules.max)) {
    at += c.bytes;
    c = reader.At(at);
    ++count;
  }
  return count >= rules.min ? at : pos;
}

// One match of the word alternation. Every method returns the end of what it takes at `pos`, or
// `pos` if it does not apply.
class WordScanner {
 public:
  WordScanner(const Reader& reader, const WordRules& rules) : reader_(reader), rules_(rules) {
    const bool letters_alone = rules.letters == WordRules::Letters::kLetters ||
                               rules.letters == WordRules::Letters::kJoined;
    word_classes_ = letters_alone ? kLetter : kLetter | kMark;
    no_punctuation_ = kSpace | kLetter | kNumber;
    if (rules.letters == WordRules::Letters::kAndMarks) no_punctuation_ |= kMark;
  }

  size_t Match(size_t pos) const {
    const Char c = reader_.At(pos);
    size_t end = pos;
    if (c.code == '\'' && (rules_.contractions == WordRules::Contractions::kLowerCase ||
                           rules_.contractions == WordRules::Contractions::kAnyCase)) {
      if ((end = Contraction(pos)) != pos) return end;
    }
    if (rules_.split_han && IsHan(c.code)) {
      return reader_.RunEnd(pos, [](const Char& x) { return IsHan(x.code); });
    }
    if (rules_.ascii_words && (end = AsciiWord(pos, c)) != pos) return end;
    if ((end = Word(pos, c)) != pos) return end;
    if ((end = Number(pos, c)) != pos) return end;
    if ((end = Punctuation(pos, c)) != pos) return end;
    return c.Is(kSpace) ? Spaces(pos) : pos;
  }

 private:
  bool IsWordChar(const Char& c) const {
    return c.Is(word_classes_) && !(rules_.split_han && IsHan(c.code));
  }

  size_t Contraction(size_t pos) const {
    const bool any_case = rules_.contractions != WordRules::Contractions::kLowerCase;
    const auto letter = [&](size_t at) -> char32_t {
      const char32_t c = at < reader_.size() ? reader_.text()[at] : 0;
      return any_case && c >= 'A' && c <= 'Z' ? c + 32 : c;
    };
    const char32_t first = letter(pos + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return pos + 2;
    const char32_t second = letter(pos + 2);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l')) {
      return pos + 3;
    }
    return pos;
  }

  size_t AsciiWord(size_t pos, const Char& c) const {
    if (!IsAsciiPunctuation(c.code) || !IsAsciiLetter(reader_.At(pos + 1).code)) return pos;
    return reader_.RunEnd(pos + 1, [](const Char& x) { return IsAsciiLetter(x.code); });
  }

  bool MayLead(const Char& c) const {
    switch (rules_.lead) {
      case WordRules::Lead::kSpace:
        return c.code == ' ';
      case WordRules::Lead::kNotLetterNumber:
        return !IsLineEnd(c.code) && !c.Is(kLetter | kNumber);
      case WordRules::Lead::kNotLetterOrPunct:
        return !IsLineEnd(c.code) && !c.Is(kLetter | kPunctuation | kSymbol);
    }
    return false;
  }

  size_t Word(size_t pos, const Char& c) const {
    if (rules_.letters == WordRules::Letters::kCased) return CasedWord(pos, c);
    size_t start = pos;
    if (!IsWordChar(c)) {
      if (!MayLead(c)) return pos;
      start += c.bytes;
      if (!IsWordChar(reader_.At(start))) return pos;
    }
    if (rules_.letters == WordRules::Letters::kJoined) return JoinedWords(start);
    return reader_.RunEnd(start, [this](const Char& x) { return IsWordChar(x); });
  }

  // REQUIRES: a letter is at `start`.
  size_t JoinedWords(size_t start) const {
    size_t at = start;
    for (Char c = reader_.At(at); c.bytes > 0; c = reader_.At(at)) {
      if (c.code == ' ') {
        if (!reader_.At(at + 1).Is(kLetter)) break;
      } else if (!c.Is(kLetter | kMark)) {
        break;
      }
      at += c.bytes;
    }
    return at;
  }

  // A lead character may itself be a mark, and so part of the word: for either shape of the word,
  // try first with the lead taken.
  size_t CasedWord(size_t pos, const Char& c) const {
    const bool leads = MayLead(c);
    for (const bool may_end_upper : {false, true}) {
      if (leads) {
        const size_t start = pos + c.bytes;
        const size_t end = CasedLetters(start, may_end_upper);
        if (end != start) return WordTail(end);
      }
      if (IsWordChar(c)) {
        const size_t end = CasedLetters(pos, may_end_upper);
        if (end != pos) return WordTail(end);
      }
    }
    return pos;
  }

  // upper* lower+ or, with `may_end_upper`, upper+ lower*, where marks and letters without case
  // count as both.
  size_t CasedLetters(size_t start, bool may_end_upper) const {
    size_t at = start;
    size_t after_last_both = start;
    Char c = reader_.At(at);
    for (; c.bytes > 0 && IsWordChar(c) && !c.Is(kLower); c = reader_.At(at)) {
      at += c.bytes;
      if (!c.Is(kUpper)) after_last_both = at;
    }
    if (c.Is(kLower)) {
      return reader_.RunEnd(at, [this](const Char& x) { return IsWordChar(x) && !x.Is(kUpper); });
    }
    return may_end_upper ? at : after_last_both;
  }

  size_t WordTail(size_t pos) const {
    const bool wanted = rules_.contractions == WordRules::Contractions::kAfterWord;
    return wanted && reader_.At(pos).code == '\'' ? Contraction(pos) : pos;
  }

  size_t Number(size_t pos, const Char& c) const {
    if (rules_.max_digits < 0) return pos;
    size_t at = pos;
    Char digit = c;
    if (rules_.space_before_number && c.code == ' ') {
      at += c.bytes;
      digit = reader_.At(at);
    }
    if (!digit.Is(kNumber)) return pos;
    for (int n = 0; digit.Is(kNumber) && (rules_.max_digits == 0 || n < rules_.max_digits); ++n) {
      at += digit.bytes;
      digit = reader_.At(at);
    }
    return at;
  }

  bool IsPunctuation(const Char& c) const {
    if (rules_.punctuation != 0) return c.Is(rules_.punctuation);
    return c.bytes > 0 && !c.Is(no_punctuation_);
  }

  size_t Punctuation(size_t pos, const Char& c) const {
    const size_t start = c.code == ' ' ? pos + 1 : pos;
    const size_t end = reader_.RunEnd(start, [this](const Char& x) { return IsPunctuation(x); });
    if (end == start) return pos;
    if (rules_.tail == WordRules::PunctuationTail::kNone) return end;
    const bool slash = rules_.tail != WordRules::PunctuationTail::kLineEnds;
    const auto in_tail = [slash](const Char& x) {
      return IsLineEnd(x.code) || (slash && x.code == '/');
    };
    if (rules_.tail == WordRules::PunctuationTail::kOneLineEndOrSlash) {
      return in_tail(reader_.At(end)) ? end + 1 : end;
    }
    return reader_.RunEnd(end, in_tail);
  }

  // \s*[\r\n]+ ends after the last line end of the run. \s+(?!\S) leaves the last space to what
  // follows, unless there is only one or nothing follows.
  size_t Spaces(size_t pos) const {
    if (rules_.space_blocks) return SpaceBlock(pos);
    if (rules_.line_ends == WordRules::LineEnds::kEach && IsLineEnd(reader_.At(pos).code)) {
      return pos + 1;
    }
    size_t at = pos;
    size_t last = pos;
    size_t after_line_end = pos;
    for (Char c = reader_.At(at); c.Is(kSpace); c = reader_.At(at)) {
      last = at;
      at += c.bytes;
      if (IsLineEnd(c.code)) after_line_end = at;
    }
    const bool to_line_end = rules_.line_ends == WordRules::LineEnds::kAfterSpace;
    if (to_line_end && after_line_end != pos) return after_line_end;
    return at == reader_.size() || last == pos ? at : last;
  }

  // A run up to its last line end, else the largest block that leaves a space to what follows. The
  // run is counted once: reading it again for every block would take quadratic time.
  size_t SpaceBlock(size_t pos) const {
    if (pos < spaces_begin_ || pos >= spaces_end_) {
      spaces_begin_ = pos;
      spaces_left_ = 0;
      after_line_end_ = pos;
      size_t at = pos;
      for (Char c = reader_.At(at); c.Is(kSpace); c = reader_.At(at)) {
        at += c.bytes;
        ++spaces_left_;
        if (IsLineEnd(c.code)) after_line_end_ = at;
      }
      spaces_end_ = at;
    }
    const bool at_end = spaces_end_ == reader_.size();
    if (after_line_end_ > pos) {
      for (size_t at = pos; at < after_line_end_; at += reader_.At(at).bytes) --spaces_left_;
      return after_line_end_;
    }
    const size_t usable = spaces_left_ - (at_end ? 0 : 1);
    size_t block = 512;
    while (block > std::max<size_t>(usable, 1)) block /= 2;
    size_t at = pos;
    for (size_t i = 0; i < block; ++i) at += reader_.At(at).bytes;
    spaces_left_ -= block;
    return at;
  }

  const Reader& reader_;
  const WordRules& rules_;
  uint8_t word_classes_;
  uint8_t no_punctuation_;
  // The run of spaces that SpaceBlock read last: where it is, how much is left, and where its
  // last line end is.
  mutable size_t spaces_begin_ = 0, spaces_end_ = 0, spaces_left_ = 0, after_line_end_ = 0;
};

size_t MatchIndent(std::string_view text, size_t pos) {
  if (text[pos] == '\t' || text[pos] == '\n') return pos + 1;
  for (const std::string_view blanks : {"    ", "  "}) {
    if (text.substr(pos).starts_with(blanks)) return pos + blanks.size();
  }
  return pos;
}

template <typename Emit>
void CutTrailingSpace(std::string_view text, Emit emit) {
  size_t start = text.size();
  while (start > 0) {
    size_t before = start - 1;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    if ((ClassOf(DecodeTrusted(text.data() + before).code) & kSpace) == 0) break;
    start = before;
  }
  if (start > 0) emit(text.substr(0, start));
  if (start < text.size()) emit(text.substr(start));
}

template <typename Emit>
void CutLines(std::string_view text, Emit emit) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = text[pos] == '\n' ? text.find_first_not_of('\n', pos) : text.find('\n', pos);
    emit(text.substr(pos, end == std::string_view::npos ? end : end - pos));
    pos = std::min(end, text.size());
  }
}

// Emits `number` in groups of three characters from its end.
template <typename Emit>
void EmitGroupsFromRight(std::string_view number, size_t n_chars, Emit emit) {
  size_t in_group = n_chars % 3 == 0 ? 3 : n_chars % 3;
  size_t start = 0;
  size_t pos = 0;
  while (pos < number.size()) {
    pos += DecodeTrusted(number.data() + pos).bytes;
    if (--in_group > 0) continue;
    emit(number.substr(start, pos - start));
    start = pos;
    in_group = 3;
  }
}

template <typename Emit>
void CutNumbersFromRight(std::string_view text, bool ascii_at_bound, Emit emit) {
  const Reader reader(text);
  const auto is_digit = [&](const Char& c) {
    return ascii_at_bound ? c.code >= '0' && c.code <= '9' : c.Is(kNumber);
  };
  size_t gap = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t n_chars = 0;
    size_t end = pos;
    Char c = reader.At(end);
    for (; c.bytes > 0 && is_digit(c); c = reader.At(end), ++n_chars) end += c.bytes;
    const bool in_word = c.Is(kLetter | kMark | kNumber) || (c.bytes > 0 && c.code == '_');
    if (n_chars == 0) {
      pos += c.bytes;
    } else if (ascii_at_bound && in_word) {
      pos = end;
    } else {
      if (gap < pos) emit(text.substr(gap, pos - gap));
      EmitGroupsFromRight(text.substr(pos, end - pos), n_chars, emit);
      gap = pos = end;
    }
  }
  if (gap < text.size()) emit(text.substr(gap));
}

}  // namespace

CharSet::CharSet(uint8_t classes, std::string_view ascii, Ranges ranges)
    : classes_(classes), ranges_(std::move(ranges)) {
  for (char32_t c = 0; c < 128; ++c) {
    ascii_[c] = (ClassOf(c) & classes) != 0 || InRanges(c);
  }
  for (const char c : ascii) ascii_[static_cast<unsigned char>(c)] = true;
}

bool CharSet::InRanges(char32_t c) const {
  const auto it = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                   [](char32_t x, const auto& range) { return x < range.first; });
  return it != ranges_.begin() && c <= std::prev(it)->second;
}

void PreTokenizer::Split(std::string_view text, WordSink sink, void* context) const {
  if (!text.empty()) RunStage(0, text, sink, context);
}

void PreTokenizer::RunStage(size_t index, std::string_view text, WordSink sink,
                            void* context) const {
  if (index == stages_.size()) return sink(context, text);
  const Stage& stage = stages_[index];
  const auto emit = [&](std::string_view piece) { RunStage(index + 1, piece, sink, context); };
  const Reader reader(text);
  switch (stage.kind) {
    case Stage::Kind::kRuns:
      return CutAtMatches(
          text, [&](size_t pos) { return MatchRun(reader, stage.runs, pos); }, emit);
    case Stage::Kind::kWords: {
      const WordScanner scanner(reader, stage.words);
      return CutAtMatches(
          text, [&](size_t pos) { return scanner.Match(pos); }, emit);
    }
    case Stage::Kind::kTrailingSpace:
      return CutTrailingSpace(text, emit);
    case Stage::Kind::kLines:
      return CutLines(text, emit);
    case Stage::Kind::kDigitsFromRight:
      return CutNumbersFromRight(text, false, emit);
    case Stage::Kind::kAsciiDigitsAtBound:
      return CutNumbersFromRight(text, true, emit);
    case Stage::Kind::kIndents:
      return CutAtMatches(
          text, [&](size_t pos) { return MatchIndent(text, pos); }, emit);
  }
}

}  // namespace weft
