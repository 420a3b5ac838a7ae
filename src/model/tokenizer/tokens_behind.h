// Tokens of a text that continues another one.
#ifndef WEFT_MODEL_TOKENIZER_TOKENS_BEHIND_H_
#define WEFT_MODEL_TOKENIZER_TOKENS_BEHIND_H_

#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace weft {

// Tokenizes `text` as the continuation of another text: without the space that some vocabularies
// add at the start of a text. `controls`: recognize control tokens in `text`. Empty if no tokens
// spell exactly that text.
std::vector<TokenId> TokensBehind(const Tokenizer& tokenizer, std::string_view text,
                                  bool controls = false);

}  // namespace weft

#endif  // WEFT_MODEL_TOKENIZER_TOKENS_BEHIND_H_
