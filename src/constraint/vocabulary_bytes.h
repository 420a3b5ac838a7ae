// The token table of a model's tokenizer.
#ifndef WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
#define WEFT_CONSTRAINT_VOCABULARY_BYTES_H_

#include <memory>
#include <string_view>
#include <vector>

#include "constraint/token_table.h"
#include "tokenizer/tokenizer.h"

namespace weft::constraint {

// Control tokens stand for nothing; those that end a generation end an answer.
std::shared_ptr<const TokenTable> TableOf(const Tokenizer& tokenizer);

// The tokens of a text that goes on behind another one: without the space that some vocabularies
// put before a text that begins. `controls`: what reads as a control token is one. Empty where no
// tokens are exactly that text.
std::vector<TokenId> TokensBehind(const Tokenizer& tokenizer, std::string_view text,
                                  bool controls = false);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
