#include "engine/turns/turn_use.h"

#include "compute/backend.h"
#include "compute/text_head.h"
#include "engine/sampling/text_stream.h"
#include "engine/turns/turn_prompt.h"

namespace weft {

Status CheckUse(const Model& model, const TurnOptions& options) {
  const ModelUses uses = model.uses();
  if (!options.vector) {
    if (uses.text) return OkStatus();
    return InvalidArgument("this model writes no text: it is for ", model.purpose());
  }
  if (!uses.vectors && !uses.scores) {
    return InvalidArgument("this model gives no vectors of texts (embeddings): it is for ",
                           model.purpose());
  }
  if (options.max_tokens != 0 || options.n_choices != 1 || options.prompt_logprobs ||
      options.on_prompt_logits) {
    return InvalidArgument(
        "a turn for a vector generates nothing: it needs max_tokens 0, one choice, and no logits "
        "of its prompt");
  }
  return OkStatus();
}

Status CheckEnds(const TurnOptions& options, int64_t n_vocab) {
  if (options.max_tokens < -1) return InvalidArgument("max_tokens must be >= -1");
  if (options.min_tokens < 0) return InvalidArgument("min_tokens must be >= 0");
  if (options.max_tokens >= 0 && options.min_tokens > options.max_tokens) {
    return InvalidArgument("min_tokens of ", options.min_tokens, " is more than max_tokens of ",
                           options.max_tokens);
  }
  if (options.stop_tokens.size() > kMaxStopTokens) {
    return InvalidArgument("too many stop tokens: ", options.stop_tokens.size(), ", at most ",
                           kMaxStopTokens);
  }
  WEFT_RETURN_IF_ERROR(ValidateTokens(options.stop_tokens, n_vocab, "stop token"));
  return ValidateStopStrings(options.stop_strings);
}

Status CheckMarks(const Model& model, const TurnOptions& options) {
  constexpr std::chrono::hours kMaxKept{7 * 24};
  const std::vector<PrefixMark>& marks = options.prefix_marks;
  if (marks.size() > kMaxPrefixMarks) {
    return InvalidArgument("too many prefix marks: ", marks.size(), ", at most ", kMaxPrefixMarks);
  }
  const int64_t n_tokens = options.PromptSize(model.row_width());
  for (const PrefixMark& mark : marks) {
    if (mark.n_tokens < 1 || mark.n_tokens > n_tokens) {
      return InvalidArgument("a prefix mark must be between 1 and the ", n_tokens,
                             " tokens of the prompt");
    }
    if (mark.keep_for.count() < 0 || mark.keep_for > kMaxKept) {
      return InvalidArgument("a marked prefix is kept for up to a week");
    }
  }
  return OkStatus();
}

Status CheckChunks(const std::vector<int64_t>& chunks) {
  if (chunks.size() > kMaxPromptChunks) {
    return InvalidArgument("too many prompt chunks: ", chunks.size(), ", at most ",
                           kMaxPromptChunks);
  }
  for (const int64_t chunk : chunks) {
    if (chunk < 1) return InvalidArgument("a prompt chunk must hold at least 1 token");
  }
  return OkStatus();
}

Status CheckWholeText(const Model& model, int64_t n_tokens, int64_t max_step_tokens) {
  if (n_tokens <= max_step_tokens || !NeedsWholeTexts(model.spec())) return OkStatus();
  return OutOfRange("the text of ", n_tokens, " tokens is longer than a step of ", max_step_tokens,
                    ", and this model needs all of a text in one; send it in parts");
}

bool PoolsAllRows(const Model& model, const TurnOptions& options) {
  return options.vector && model.text_head()->pooling() != Pooling::kLast;
}

}  // namespace weft
