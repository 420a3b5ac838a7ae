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

// Whether the rows can be placed as the part says.
Status CheckForm(const Model& model, const PromptPart& part, int64_t n_rows) {
  const RowForm& form = part.form;
  if (form.stands_alone()) return OkStatus();
  if (form.grid_rows < 0 || form.grid_columns < 0 || n_rows == 0 ||
      (form.grid_rows > 0 && n_rows / form.grid_rows != form.grid_columns) ||
      (form.grid_rows > 0 && n_rows % form.grid_rows != 0)) {
    return InvalidArgument("the prompt has ", n_rows, " input embeddings on a grid of ",
                           form.grid_rows, " by ", form.grid_columns);
  }
  return model.CheckTakesForm(form);
}

Status TooLarge(int64_t n_rows, int64_t max_step_tokens) {
  return OutOfRange("a picture of ", n_rows, " embeddings, which are computed in one step, is ",
                    "larger than steps of ", max_step_tokens, " tokens");
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
    WEFT_RETURN_IF_ERROR(CheckForm(model, part, std::ssize(part.rows) / width));
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
  for (const PromptPart& part : PartsOf(options)) {
    if (!part.form.mutual) continue;
    const int64_t n_mutual = std::ssize(part.rows) / model.row_width();
    if (n_mutual > limits.max_step_tokens) return TooLarge(n_mutual, limits.max_step_tokens);
  }
  const int64_t bytes = RowTable::BytesOf(n_rows, model.row_width());
  if (bytes <= limits.max_row_bytes) return OkStatus();
  return OutOfRange("the ", n_rows, " vectors of the conversation take ",
                    HumanBytes(static_cast<uint64_t>(bytes)), ", more than the ",
                    HumanBytes(static_cast<uint64_t>(limits.max_row_bytes)),
                    " that a session may hold");
}

Status CheckRuns(const History& tokens, int64_t max_step_tokens) {
  for (const TokenRun& run : tokens.MutualIn(0, std::ssize(tokens))) {
    const int64_t n_rows = run.end - run.begin;
    if (n_rows > max_step_tokens) return TooLarge(n_rows, max_step_tokens);
  }
  return OkStatus();
}

History MovePrompt(const Model& model, TurnOptions* options, RowTable* rows) {
  const auto width = static_cast<size_t>(model.row_width());
  History prompt(std::move(options->tokens));
  options->tokens.clear();
  for (const PromptPart& part : PartsOf(*options)) {
    prompt.Append(part.tokens);
    if (!part.form.stands_alone()) {
      const int64_t n_rows = std::ssize(part.rows) / model.row_width();
      for (RowRef& row : rows->KeepSpan(part.rows, n_rows, part.form)) prompt.Add(std::move(row));
      continue;
    }
    for (std::span<const float> left(part.rows); !left.empty(); left = left.subspan(width)) {
      prompt.Add(rows->Keep(left.first(width)));
    }
  }
  options->parts = nullptr;
  return prompt;
}

}  // namespace weft
