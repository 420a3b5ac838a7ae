#include "engine/loading/token_table_of.h"

#include <string>
#include <utility>
#include <vector>

namespace weft {

std::shared_ptr<const constraint::TokenTable> TokenTableOf(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  std::vector<std::pair<TokenId, std::string>> controls;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsControl(id)) {
      controls.emplace_back(id, tokenizer.Piece(id, /*render_special=*/true));
    } else {
      bytes[static_cast<size_t>(id)] = tokenizer.Piece(id, /*render_special=*/false);
    }
  }
  return std::make_shared<const constraint::TokenTable>(
      std::move(bytes), tokenizer.EndsOfGeneration(), std::move(controls));
}

}  // namespace weft
