#include "model/tokenizer/tokens_behind.h"

#include <string>

namespace weft {

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

}  // namespace weft
