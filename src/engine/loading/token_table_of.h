// The token table of a model's tokenizer, for constraints.
#ifndef WEFT_ENGINE_LOADING_TOKEN_TABLE_OF_H_
#define WEFT_ENGINE_LOADING_TOKEN_TABLE_OF_H_

#include <memory>

#include "constraint/token_table.h"
#include "model/tokenizer/tokenizer.h"

namespace weft {

// Control tokens represent no text; those that end generation end an answer.
std::shared_ptr<const constraint::TokenTable> TokenTableOf(const Tokenizer& tokenizer);

}  // namespace weft

#endif  // WEFT_ENGINE_LOADING_TOKEN_TABLE_OF_H_
