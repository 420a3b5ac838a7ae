// The token table of a model's tokenizer.
#ifndef WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
#define WEFT_CONSTRAINT_VOCABULARY_BYTES_H_

#include <memory>
#include <string_view>
#include <vector>

#include "constraint/token_table.h"
#include "tokenizer/tokenizer.h"

namespace weft::constraint {

// Control tokens represent no text; those that end generation end an answer.
std::shared_ptr<const TokenTable> TableOf(const Tokenizer& tokenizer);

// Tokenizes `text` as the continuation of another text: without the space that some vocabularies
// add at the start of a text. `controls`: recognize control tokens in `text`. Empty if no tokens
// spell exactly that text.
std::vector<TokenId> TokensBehind(const Tokenizer& tokenizer, std::string_view text,
                                  bool controls = false);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
