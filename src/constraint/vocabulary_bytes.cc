#include "constraint/vocabulary_bytes.h"

#include <string>
#include <utility>
#include <vector>

namespace weft::constraint {

std::shared_ptr<const TokenTable> TableOf(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  std::vector<std::pair<TokenId, std::string>> controls;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsControl(id)) {
      controls.emplace_back(id, tokenizer.Piece(id, /*render_special=*/true));
    } else {
      bytes[static_cast<size_t>(id)] = tokenizer.Piece(id, /*render_special=*/false);
    }
  }
  return std::make_shared<const TokenTable>(std::move(bytes), tokenizer.EndsOfGeneration(),
                                            std::move(controls));
}

std::vector<TokenId> TokensBehind(const Tokenizer& tokenizer, std::string_view text,
                                  bool controls) {
  const auto piece = [&](TokenId token) { return tokenizer.Piece(token, controls); };
  const auto joined = [&](const std::vector<TokenId>& tokens) {
    std::string bytes;
    for (const TokenId token : tokens) bytes += piece(token);
    return bytes;
  };
  const auto encoded = [&](std::string_view behind) {
    return tokenizer.Encode(behind, {.add_special = false, .parse_special = controls});
  };
  std::vector<TokenId> tokens = encoded(text);
  if (joined(tokens) == text) return tokens;
  tokens = encoded("\n" + std::string(text));
  size_t bytes = joined(tokens).size();
  auto first = tokens.begin();
  while (first != tokens.end() && bytes > text.size()) bytes -= piece(*first++).size();
  tokens.erase(tokens.begin(), first);
  if (joined(tokens) != text) tokens.clear();
  return tokens;
}

}  // namespace weft::constraint
