#include "constraint/vocabulary_bytes.h"

#include <string>
#include <utility>
#include <vector>

namespace weft::constraint {

std::shared_ptr<const TokenTable> TableOf(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id))
      bytes[static_cast<size_t>(id)] = tokenizer.Piece(id, /*render_special=*/false);
  }
  return std::make_shared<const TokenTable>(std::move(bytes), tokenizer.EndsOfGeneration());
}

}  // namespace weft::constraint
