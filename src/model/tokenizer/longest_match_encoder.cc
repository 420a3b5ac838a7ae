#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/text_encoder.h"

namespace weft {
namespace {

// RWKV's: the longest token that the text begins with, again and again. Tokens are any bytes.
class LongestMatchEncoder : public TextEncoder {
 public:
  explicit LongestMatchEncoder(const Vocabulary* vocabulary) : vocabulary_(*vocabulary) {
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      const std::string piece = vocabulary_.Piece(id);
      if (!piece.empty()) trie_.Insert(piece, id);
    }
  }

  void Encode(std::string_view text, bool at_start, EncodeScratch* scratch,
              std::vector<TokenId>* out) const override {
    while (!text.empty()) {
      const ByteTrie::Match match = trie_.LongestPrefix(text);
      const TokenId id = match.bytes > 0 ? match.value : vocabulary_.unknown;
      if (id != kNoToken) out->push_back(id);
      text.remove_prefix(std::max<size_t>(match.bytes, 1));
    }
  }

 private:
  const Vocabulary& vocabulary_;
  ByteTrie trie_;
};

}  // namespace

std::unique_ptr<const TextEncoder> MakeLongestMatchEncoder(const Vocabulary* vocabulary) {
  return std::make_unique<LongestMatchEncoder>(vocabulary);
}

}  // namespace weft
