#include "answer/prompt_rows.h"

#include <memory>
#include <utility>

#include "answer/chat/chat_context.h"
#include "answer/error_details.h"
#include "base/new_id.h"
#include "base/strings.h"

namespace weft::serve {

EmbeddedRows MarkRows(std::vector<float> rows) {
  return {.mark = StrCat(NewId("<embeddings-"), ">"), .rows = std::move(rows)};
}

Status SetPrompt(const Model& model, std::string_view text, std::vector<EmbeddedRows> rows,
                 TurnOptions* turn) {
  const auto encoder = MakePromptEncoder(model.tokenizer(), model.context_tokens());
  bool at_start = true;
  const auto encode = [&](std::string_view piece) {
    auto tokens = piece.empty() ? std::vector<int32_t>() : encoder.encode(piece, at_start);
    at_start = at_start && piece.empty();
    return tokens;
  };
  std::vector<PromptPart> parts;
  for (EmbeddedRows& entry : rows) {
    const size_t at = text.find(entry.mark);
    if (at == text.npos || text.find(entry.mark, at + 1) != text.npos) {
      return WithParam(InvalidArgument("messages: the chat template does not write vectors once "
                                       "and in their order"),
                       "messages");
    }
    parts.push_back({.tokens = encode(text.substr(0, at)), .rows = std::move(entry.rows)});
    at_start = false;
    text.remove_prefix(at + entry.mark.size());
  }
  parts.push_back({.tokens = encode(text)});
  turn->tokens = {};
  turn->parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts));
  return OkStatus();
}

}  // namespace weft::serve
