// Splits text into the words that byte-pair merging works on, by the rules named in
// tokenizer.ggml.pre.
//
// These rules are published as regular expressions, several of which take quadratic time in a
// backtracking engine (\s+(?!\S) over a megabyte of spaces). They belong to a few families, so each
// family is one scanner with options that reads every character a bounded number of times.
//
// A PreTokenizer is immutable and may be used from any thread.
#ifndef WEFT_MODEL_TOKENIZER_PRETOKENIZER_H_
#define WEFT_MODEL_TOKENIZER_PRETOKENIZER_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/unicode.h"

namespace weft {

// A set of code points: ASCII by a bitmap, the rest by class or range.
class CharSet {
 public:
  using Ranges = std::vector<std::pair<char32_t, char32_t>>;

  CharSet() = default;
  // All code points in one of `classes`, the characters of `ascii`, and those in `ranges`
  // (ascending) that are not white space.
  CharSet(uint8_t classes, std::string_view ascii, Ranges ranges = {});

  uint8_t classes() const { return classes_; }
  const Ranges& ranges() const { return ranges_; }

  bool Contains(char32_t c) const {
    if (c < 128) return ascii_[c];
    const uint8_t char_class = ClassOf(c);
    return (char_class & classes_) != 0 ||
           (!ranges_.empty() && (char_class & kSpace) == 0 && InRanges(c));
  }

 private:
  bool InRanges(char32_t c) const;

  bool ascii_[128] = {};
  uint8_t classes_ = 0;
  Ranges ranges_;
};

// Matches runs of one set; everything in between is left whole.
struct RunRules {
  CharSet set;
  // A white-space character before the run belongs to it: \s?[set]+
  bool space_prefix = false;
  // The same for a space character only:  ?[set]+
  bool blank_prefix = false;
  // [set]{min,max}; max 0 means unbounded.
  int min = 1;
  int max = 0;
};

// The alternation that most vocabularies use; the first match wins:
//   contractions | words | numbers | punctuation | line ends | spaces
struct WordRules {
  enum class Contractions {
    kNone,
    kLowerCase,  // 's|'t|'re|'ve|'m|'ll|'d
    kAnyCase,
    kAfterWord,  // any case, as the tail of a word
  };
  // What may precede the letters of a word.
  enum class Lead {
    kSpace,             // ' '
    kNotLetterNumber,   // [^\r\n\p{L}\p{N}]
    kNotLetterOrPunct,  // [^\r\n\p{L}\p{P}\p{S}]
  };
  enum class Letters {
    kLetters,   // \p{L}+
    kAndMarks,  // [\p{L}\p{M}]+
    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, otherwise the same with + and *:
    // words end before an upper-case letter.
    kCased,
    // (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+: words joined by single spaces.
    kJoined,
  };
  enum class PunctuationTail { kNone, kLineEnds, kLineEndsAndSlash, kOneLineEndOrSlash };
  enum class LineEnds {
    kNone,
    kAfterSpace,  // \s*[\r\n]+
    kEach,        // [\r\n]
  };

  Contractions contractions = Contractions::kAnyCase;
  Lead lead = Lead::kNotLetterNumber;
  Letters letters = Letters::kLetters;
  // Most digits in a number; 0: any; -1: numbers are not an alternative.
  int max_digits = 3;
  bool space_before_number = false;
  // The punctuation alternative: a fixed class or, if 0, everything that is not a space, letter,
  // number or (with kAndMarks) mark.
  uint8_t punctuation = 0;
  PunctuationTail tail = PunctuationTail::kLineEnds;
  LineEnds line_ends = LineEnds::kAfterSpace;
  // Runs of spaces in blocks: \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s
  bool space_blocks = false;
  // One ASCII punctuation character before ASCII letters: [!-~&&punct][A-Za-z]+
  bool ascii_words = false;
  // Runs of Han are separate words, and other words contain no Han.
  bool split_han = false;
};

class PreTokenizer {
 public:
  // The meaning of a tokenizer.ggml.pre name.
  struct Spec {
    std::shared_ptr<const PreTokenizer> splitter;
    bool ignore_merges = false;  // a word that is a token is never merged from parts
    bool add_bos = false;        // unless the file says otherwise
    bool add_separator = false;  // likewise
    bool clean_spaces = true;    // detokenizing removes spaces before punctuation
    // The text is merged directly, with U+2581 for spaces and <0xNN> tokens for characters without
    // a token, instead of byte by byte in the GPT-2 alphabet.
    bool raw_text = false;
    // A run of line feeds that is a token is taken whole.
    bool whole_newlines = false;
    // For a vocabulary without spaces: they part words and are left out. The words are merged
    // directly, as with raw_text.
    bool drops_spaces = false;
    // Whether characters are merged as they are.
    bool merges_text() const { return raw_text || drops_spaces; }
  };
  // False if the name is unknown.
  static bool Find(std::string_view name, Spec* spec);

  using WordSink = void (*)(void* context, std::string_view word);
  // Calls `sink` with every word of `text` in order; joined, they are the text. REQUIRES: `text`
  // came from RepairUtf8.
  void Split(std::string_view text, WordSink sink, void* context) const;

  // The stages of a rule set, applied in turn, each to the pieces of the previous one.
  struct Stage {
    enum class Kind {
      kRuns,
      kWords,
      kTrailingSpace,       // \s+$
      kLines,               // [^\n]+|\n+
      kDigitsFromRight,     // numbers in groups of three from the right
      kAsciiDigitsAtBound,  // \d{1,3}(?=(?:\d{3})*\b)
      kIndents,             // [\t\n]|    |  : a tab, a line feed, four spaces or two
    };
    Kind kind = Kind::kWords;
    RunRules runs;
    WordRules words;
  };
  explicit PreTokenizer(std::vector<Stage> stages) : stages_(std::move(stages)) {}

  const std::vector<Stage>& stages() const { return stages_; }

 private:
  void RunStage(size_t index, std::string_view text, WordSink sink, void* context) const;

  std::vector<Stage> stages_;
};

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_PRETOKENIZER_H_
