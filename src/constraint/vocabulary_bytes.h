// The token table of a model's tokenizer.
#ifndef WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
#define WEFT_CONSTRAINT_VOCABULARY_BYTES_H_

#include <memory>

#include "constraint/token_table.h"
#include "tokenizer/tokenizer.h"

namespace weft::constraint {

// Control tokens stand for nothing; those that end a generation end an answer.
std::shared_ptr<const TokenTable> TableOf(const Tokenizer& tokenizer);

}  // namespace weft::constraint

#endif  // WEFT_CONSTRAINT_VOCABULARY_BYTES_H_
