#include "base/unicode.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

// BERT's: text is normalised and split at spaces and around punctuation and Chinese characters; a
// word becomes the longest tokens it can be split into from the left, or the unknown token. Tokens
// that start a word begin with a space mark.
class WordPieceEncoder : public TextEncoder {
 public:
  explicit WordPieceEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    for (TokenId id = 0; id < vocabulary_.size(); ++id) trie_.Insert(vocabulary_.text(id), id);
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    std::string& word = scratch->escaped;
    word = kSpaceMark;
    const auto finish_word = [&] {
      if (word.size() > kSpaceMark.size()) EncodeWord(word, out);
      word = kSpaceMark;
    };
    while (!text.empty()) {
      const DecodedChar decoded = DecodeLenient(text);
      text.remove_prefix(decoded.bytes);
      const char32_t c = vocabulary_.strip_accents ? CanonicalBase(decoded.code) : decoded.code;
      const uint8_t char_class = ClassOf(c);
      if ((char_class & kSpace) != 0) {
        finish_word();
        continue;
      }
      if (c == 0 || c == kReplacementChar || IsControlChar(c)) continue;
      if (vocabulary_.strip_accents && (char_class & kMark) != 0) continue;
      const bool alone = (char_class & kPunctuation) != 0 ||
                         (c < 0x7F && (char_class & kSymbol) != 0) || IsChinese(c);
      if (alone) finish_word();
      AppendUtf8(vocabulary_.lowercase ? ToLower(c) : c, &word);
      if (alone) finish_word();
    }
    finish_word();
  }

 private:
  // The blocks listed in the original, including its gap in extension E.
  static bool IsChinese(char32_t c) {
    return IsHan(c) && !(c >= 0x2B820 && c <= 0x2B91F) && !(c >= 0x2CEB0 && c <= 0x2EBEF);
  }

  void EncodeWord(std::string_view word, std::vector<TokenId>* out) const {
    const size_t before = out->size();
    while (!word.empty()) {
      const ByteTrie::Match match = trie_.LongestPrefix(word);
      if (match.bytes == 0) break;
      out->push_back(match.value);
      word.remove_prefix(match.bytes);
    }
    if (word.empty()) return;
    out->resize(before);
    if (vocabulary_.unknown != kNoToken) out->push_back(vocabulary_.unknown);
  }

  const Vocabulary& vocabulary_;
  ByteTrie trie_;
};

}  // namespace

std::unique_ptr<const TextEncoder> MakeWordPieceEncoder(const Vocabulary* vocabulary) {
  return std::make_unique<WordPieceEncoder>(vocabulary);
}

}  // namespace weft
