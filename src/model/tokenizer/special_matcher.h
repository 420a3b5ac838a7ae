// Finds special tokens written out in a text.
//
// Where candidates overlap, the longest wins wherever it is, and the leftmost among equally long
// ones; the remaining text is then searched for shorter ones. Tokens that strip also take adjacent
// white space. Linear in the text, times the longest special token in the worst case. Immutable;
// any thread.
#ifndef WEFT_MODEL_TOKENIZER_SPECIAL_MATCHER_H_
#define WEFT_MODEL_TOKENIZER_SPECIAL_MATCHER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/tokens.h"
#include "model/tokenizer/byte_trie.h"
#include "model/tokenizer/vocabulary.h"

namespace weft {

class SpecialMatcher {
 public:
  // With `control`, searches for all special tokens; without, only for those that the vocabulary's
  // author added as ordinary text (user-defined tokens).
  SpecialMatcher(const Vocabulary& vocabulary, bool control);

  // A part of the text: plain, or a token.
  struct Fragment {
    std::string_view text;
    TokenId token = kNoToken;
  };
  // Plain parts are never empty; stripped white space is in none.
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

#endif  // WEFT_MODEL_TOKENIZER_SPECIAL_MATCHER_H_
