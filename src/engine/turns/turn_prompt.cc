#include "engine/turns/turn_prompt.h"

#include <cmath>
#include <utility>

#include "compute/backend.h"

namespace weft {
namespace {

std::span<const PromptPart> PartsOf(const TurnOptions& options) {
  if (options.parts == nullptr) return {};
  return *options.parts;
}

}  // namespace

Status ValidateTokens(const std::vector<TokenId>& tokens, int64_t n_vocab, const char* kind) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= n_vocab) {
      return InvalidArgument(kind, " ", token, " is outside the vocabulary of ", n_vocab);
    }
  }
  return OkStatus();
}

Status CheckRowsFit(const Model& model, const TurnOptions& options) {
  const int64_t width = model.row_width();
  for (const PromptPart& part : PartsOf(options)) {
    if (part.rows.empty()) continue;
    WEFT_RETURN_IF_ERROR(model.CheckTakesRows());
    if (std::ssize(part.rows) % width != 0) {
      return InvalidArgument("the prompt has a part of ", part.rows.size(),
                             " numbers; input embeddings have ", width, " each");
    }
  }
  return OkStatus();
}

Status CheckPrompt(const Model& model, const TurnOptions& options) {
  WEFT_RETURN_IF_ERROR(ValidateTokens(options.tokens, model.n_vocab(), "token"));
  int64_t before = 0;  // rows
  for (const PromptPart& part : PartsOf(options)) {
    WEFT_RETURN_IF_ERROR(ValidateTokens(part.tokens, model.n_vocab(), "token"));
    for (size_t i = 0; i < part.rows.size(); ++i) {
      if (std::isfinite(part.rows[i])) continue;
      return InvalidArgument("vector ", before + static_cast<int64_t>(i) / model.row_width(),
                             " of the prompt has a number that is not finite");
    }
    before += std::ssize(part.rows) / model.row_width();
  }
  return OkStatus();
}

Status CheckSessionRows(const Model& model, const EngineOptions& limits, const TurnOptions& options,
                        int64_t n_rows) {
  if (n_rows == 0) return OkStatus();
  if (options.prompt_logprobs) {
    return InvalidArgument("log-probabilities of a prompt with input embeddings: these have none");
  }
  const int64_t bytes = RowTable::BytesOf(n_rows, model.row_width());
  if (bytes <= limits.max_row_bytes) return OkStatus();
  return OutOfRange("the ", n_rows, " vectors of the conversation take ",
                    HumanBytes(static_cast<uint64_t>(bytes)), ", more than the ",
                    HumanBytes(static_cast<uint64_t>(limits.max_row_bytes)),
                    " that a session may hold");
}

History MovePrompt(const Model& model, TurnOptions* options, RowTable* rows) {
  const auto width = static_cast<size_t>(model.row_width());
  History prompt(std::move(options->tokens));
  options->tokens.clear();
  for (const PromptPart& part : PartsOf(*options)) {
    prompt.Append(part.tokens);
    for (std::span<const float> left(part.rows); !left.empty(); left = left.subspan(width)) {
      prompt.Add(rows->Keep(left.first(width)));
    }
  }
  options->parts = nullptr;
  return prompt;
}

}  // namespace weft
