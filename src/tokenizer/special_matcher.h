// Finds special tokens written out in a text.
//
// Where candidates overlap the longest wins, wherever it stands, and of equally
// long ones the leftmost; the rest of the text is then searched for shorter ones.
// Tokens that strip take the white space beside them along. Linear in the text,
// times the longest special token at worst. Immutable; any thread.
#ifndef WEFT_TOKENIZER_SPECIAL_MATCHER_H_
#define WEFT_TOKENIZER_SPECIAL_MATCHER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/tokens.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/vocabulary.h"

namespace weft {

class SpecialMatcher {
 public:
  // With `control` all special tokens are searched for; without, only those that
  // the vocabulary's maker added as ordinary text (user-defined tokens).
  SpecialMatcher(const Vocabulary& vocabulary, bool control);

  // A stretch of the text: plain, or a token that stands there.
  struct Fragment {
    std::string_view text;
    TokenId token = kNoToken;
  };
  // Plain stretches are never empty; stripped white space is in none.
  std::vector<Fragment> Cut(std::string_view text) const;

 private:
  struct Found {
    size_t begin;
    size_t end;
    TokenId token;
  };
  std::vector<Found> FindAll(std::string_view text) const;

  const Vocabulary& vocabulary_;
  ByteTrie trie_;
};

}  // namespace weft

#endif  // WEFT_TOKENIZER_SPECIAL_MATCHER_H_
