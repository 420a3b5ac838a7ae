#include "model/tokenizer/pretokenizer_pattern.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"
#include "base/unicode.h"

namespace weft {
namespace {

// A character inside brackets. Escapes only what is special in some dialect, because JavaScript
// rejects other escapes.
void AppendInClass(char32_t c, std::string* out) {
  if (c < 128 &&
      std::string_view("^$\\.*+?()[]{}|/-").find(static_cast<char>(c)) != std::string_view::npos) {
    *out += '\\';
  }
  AppendUtf8(c, out);
}

void AppendRange(char32_t first, char32_t last, std::string* out) {
  AppendInClass(first, out);
  if (first == last) return;
  if (last > first + 1) *out += '-';
  AppendInClass(last, out);
}

// The code points from `begin` to `end` (exclusive) for which `fits` holds.
template <typename Predicate>
void AppendFitting(char32_t begin, char32_t end, Predicate fits, std::string* out) {
  for (char32_t c = begin; c < end; ++c) {
    if (!fits(c)) continue;
    const char32_t first = c;
    while (c + 1 < end && fits(c + 1)) ++c;
    AppendRange(first, c, out);
  }
}

// The contents of a character class's brackets.
std::string InClass(uint8_t classes) {
  std::string out;
  if ((classes & kLetter) != 0) out += "\\p{L}";
  if ((classes & kNumber) != 0) out += "\\p{N}";
  if ((classes & kPunctuation) != 0) out += "\\p{P}";
  if ((classes & kSymbol) != 0) out += "\\p{S}";
  if ((classes & kMark) != 0) out += "\\p{M}";
  return out;
}

std::string PatternOf(const CharSet& set) {
  std::string inside = InClass(set.classes());
  const auto extra = [&](char32_t c) {
    return set.Contains(c) && (ClassOf(c) & set.classes()) == 0;
  };
  AppendFitting(0, 128, extra, &inside);
  for (const auto& [first, last] : set.ranges()) {
    AppendFitting(
        std::max<char32_t>(first, 128), last + 1,
        [](char32_t c) { return (ClassOf(c) & kSpace) == 0; }, &inside);
  }
  return StrCat("[", inside, "]");
}

std::string Repeated(const std::string& what, int min, int max) {
  if (max == 0) return min == 1 ? what + "+" : StrCat(what, "{", min, ",}");
  if (min == max) return min == 1 ? what : StrCat(what, "{", min, "}");
  return StrCat(what, "{", min, ",", max, "}");
}

std::string PatternOf(const RunRules& rules) {
  const std::string_view prefix = rules.space_prefix ? "\\s?" : rules.blank_prefix ? " ?" : "";
  return StrCat(prefix, Repeated(PatternOf(rules.set), rules.min, rules.max));
}

// Builds the alternation of WordRules, in its order.
class WordPattern {
 public:
  explicit WordPattern(const WordRules& rules) : rules_(rules) {}

  std::string Build() {
    using Contractions = WordRules::Contractions;
    if (rules_.contractions == Contractions::kLowerCase) Add("'s|'t|'re|'ve|'m|'ll|'d");
    if (rules_.contractions == Contractions::kAnyCase) Add(kAnyCaseContraction);
    if (rules_.split_han) Add(StrCat(Han(), "+"));
    if (rules_.ascii_words) Add("[!-\\/:-@\\[-`\\{-~][A-Za-z]+");
    AddWords();
    AddNumbers();
    AddPunctuation();
    if (rules_.line_ends == WordRules::LineEnds::kAfterSpace) Add("\\s*[\\r\\n]+");
    if (rules_.line_ends == WordRules::LineEnds::kEach) Add("[\\r\\n]");
    if (rules_.space_blocks) {
      for (int n = 512; n >= 4; n /= 2) Add(StrCat("\\s{", n, "}(?!\\S)"));
      Add("\\s{1,2}(?!\\S)|\\s");
    } else {
      Add("\\s+(?!\\S)");
      Add("\\s+");
    }
    return alternation_;
  }

 private:
  static constexpr std::string_view kAnyCaseContraction =
      "'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL]";

  void Add(std::string_view alternative) {
    if (!alternation_.empty()) alternation_ += '|';
    alternation_ += alternative;
  }

  static const std::string& Han() {
    static const std::string han = [] {
      std::string inside;
      AppendFitting(
          0x80, kMaxCodePoint + 1, [](char32_t c) { return IsHan(c); }, &inside);
      return StrCat("[", inside, "]");
    }();
    return han;
  }

  // A letter of a word: one of `inside`, and not an ideograph if those are split off.
  std::string Letter(std::string_view inside) const {
    if (!rules_.split_han) return StrCat("[", inside, "]");
    return StrCat("(?:(?!", Han(), ")[", inside, "])");
  }

  std::string_view Lead() const {
    switch (rules_.lead) {
      case WordRules::Lead::kSpace:
        return " ?";
      case WordRules::Lead::kNotLetterNumber:
        return "[^\\r\\n\\p{L}\\p{N}]?";
      case WordRules::Lead::kNotLetterOrPunct:
        return "[^\\r\\n\\p{L}\\p{P}\\p{S}]?";
    }
    return "";
  }

  void AddWords() {
    const std::string_view lead = Lead();
    if (rules_.letters == WordRules::Letters::kJoined) {
      // One loop: a loop of loops takes exponential time in some engines.
      Add(StrCat(lead, "\\p{L}(?:[\\p{L}\\p{M}]| (?=\\p{L}))*"));
      return;
    }
    if (rules_.letters != WordRules::Letters::kCased) {
      const bool marks = rules_.letters == WordRules::Letters::kAndMarks;
      Add(StrCat(lead, Letter(marks ? "\\p{L}\\p{M}" : "\\p{L}"), "+"));
      return;
    }
    const std::string upper = Letter("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}");
    const std::string lower = Letter("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}");
    const bool tail = rules_.contractions == WordRules::Contractions::kAfterWord;
    const std::string suffix = tail ? StrCat("(?:", kAnyCaseContraction, ")?") : "";
    Add(StrCat(lead, upper, "*", lower, "+", suffix));
    Add(StrCat(lead, upper, "+", lower, "*", suffix));
  }

  void AddNumbers() {
    if (rules_.max_digits < 0) return;
    Add(StrCat(rules_.space_before_number ? " ?" : "", Repeated("\\p{N}", 1, rules_.max_digits)));
  }

  void AddPunctuation() {
    const bool marks = rules_.letters == WordRules::Letters::kAndMarks;
    const std::string punctuation = rules_.punctuation != 0
                                        ? StrCat("[", InClass(rules_.punctuation), "]")
                                        : StrCat("[^\\s\\p{L}\\p{N}", marks ? "\\p{M}" : "", "]");
    std::string_view tail;
    if (rules_.tail == WordRules::PunctuationTail::kLineEnds) tail = "[\\r\\n]*";
    if (rules_.tail == WordRules::PunctuationTail::kLineEndsAndSlash) tail = "[\\r\\n\\/]*";
    if (rules_.tail == WordRules::PunctuationTail::kOneLineEndOrSlash) tail = "[\\r\\n\\/]?";
    Add(StrCat(" ?", punctuation, "+", tail));
  }

  const WordRules& rules_;
  std::string alternation_;
};

std::string PatternOf(const PreTokenizer::Stage& stage) {
  using Kind = PreTokenizer::Stage::Kind;
  switch (stage.kind) {
    case Kind::kRuns:
      return PatternOf(stage.runs);
    case Kind::kWords:
      return WordPattern(stage.words).Build();
    case Kind::kTrailingSpace:
      return "\\s+(?![\\s\\S])";
    case Kind::kLines:
      return "[^\\n]+|\\n+";
    case Kind::kDigitsFromRight:
      return "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))";
    case Kind::kIndents:
      return "[\\t\\n]| {4}| {2}";
    case Kind::kAsciiDigitsAtBound:
      return "[0-9]{1,3}(?=(?:[0-9]{3})*(?![\\p{L}\\p{M}\\p{N}_]))";
  }
  return "";
}

}  // namespace

std::vector<std::string> PatternsOf(const PreTokenizer& pre_tokenizer) {
  std::vector<std::string> patterns;
  for (const PreTokenizer::Stage& stage : pre_tokenizer.stages()) {
    patterns.push_back(PatternOf(stage));
  }
  return patterns;
}

}  // namespace weft
