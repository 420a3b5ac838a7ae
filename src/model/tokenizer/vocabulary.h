// The tokens of a model file (text, kind, score), and the settings for encoding. Validated when
// loaded, immutable afterwards; may be read from any thread.
#ifndef WEFT_MODEL_TOKENIZER_VOCABULARY_H_
#define WEFT_MODEL_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/tokens.h"
#include "model/formats/model_file.h"
#include "model/tokenizer/chars_map.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/string_table.h"

namespace weft {

// U+2581, which stands for a space in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

enum class TokenizerKind {
  kSentencePiece,
  kBytePair,
  kWordPiece,
  kUnigram,          // PLaMo's: the tokens whose scores have the largest sum
  kLongestMatch,     // RWKV's: the longest token, again and again
  kSentenceUnigram,  // SentencePiece's unigram models: T5's, XLM-RoBERTa's
};

// Token attributes; several can hold. A token whose text is a known end marker counts as a control
// token, whatever the file calls it.
enum TokenAttr : uint8_t {
  kAttrUnknown = 1,
  kAttrUnused = 2,
  kAttrNormal = 4,
  kAttrControl = 8,
  kAttrUserDefined = 16,
  kAttrByte = 32,
  // When recognised in text, the token swallows the white space before or after it.
  kAttrStripLeft = 64,
  kAttrStripRight = 128,
};

class Vocabulary {
 public:
  static StatusOr<std::unique_ptr<const Vocabulary>> Load(const ModelFile& file);

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int size() const { return static_cast<int>(attrs_.size()); }
  bool Contains(TokenId id) const { return id >= 0 && id < size(); }

  // REQUIRES for these three: Contains(id).
  std::string_view text(TokenId id) const {
    return std::string_view(arena_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  uint8_t attrs(TokenId id) const { return attrs_[id]; }
  float score(TokenId id) const { return scores_[id]; }

  // kNoToken if no token has exactly this spelling.
  TokenId Find(std::string_view text) const { return table_.Find(text); }
  // The token <0xNN>, else the token that is that one byte, else kNoToken.
  TokenId ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }
  size_t max_token_bytes() const { return table_.max_length(); }

  // The token's bytes, whether or not they should be shown.
  std::string Piece(TokenId id) const;

  bool is_end_of_generation(TokenId id) const { return end_of_generation_[id]; }
  const std::vector<TokenId>& ends_of_generation() const { return ends_of_generation_; }

  std::string model_name;
  std::string pre_name;
  TokenizerKind kind = TokenizerKind::kSentencePiece;
  PreTokenizer::Spec pre;  // kBytePair only

  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
  TokenId unknown = kNoToken;
  TokenId separator = kNoToken;
  TokenId padding = kNoToken;

  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;
  bool add_space_prefix = false;
  bool clean_spaces = false;
  bool merge_spaces = false;  // kSentenceUnigram: runs of spaces are one, or none at the end
  CharsMap chars_map;         // kSentenceUnigram
  bool lowercase = true;      // kWordPiece
  bool strip_accents = true;  // kWordPiece

 private:
  Vocabulary() = default;

  Status LoadKind(const ModelFile& file);
  Status LoadTokens(const ModelFile& file);
  Status LoadScores(const ModelFile& file);
  Status LoadTypes(const ModelFile& file);
  Status LoadSpecialIds(const ModelFile& file);
  Status LoadEnds(const ModelFile& file);
  Status LoadCharsMap(const ModelFile& file);
  Status LoadFlags(const ModelFile& file);
  void FindByteTokens();
  void MarkKnownTexts();
  void MarkEndOfGeneration(TokenId fill_in_pad, TokenId fill_in_repo, TokenId fill_in_file);
  TokenId MarkControl(std::initializer_list<std::string_view> texts);
  TokenId MarkControl(std::span<const std::string_view> texts);
  void MarkStripping(const ModelFile& file);

  std::string arena_;              // all texts, one after another
  std::vector<uint32_t> offsets_;  // size() + 1
  std::vector<uint8_t> attrs_;
  std::vector<float> scores_;
  std::vector<bool> end_of_generation_;
  std::vector<TokenId> ends_of_generation_;  // the same ids, ascending
  StringTable table_;                        // views into arena_
  TokenId byte_tokens_[256] = {};
};

// The GPT-2 alphabet: every byte as one printable code point, and back (-1 for code points without
// a byte).
char32_t ByteLevelChar(uint8_t byte);
int ByteLevelByte(char32_t c);

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_VOCABULARY_H_
