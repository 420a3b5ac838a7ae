// Prompts in which input embeddings stand in place of texts. The text holds a mark where they
// belong, which a chat template writes like any other text.
//
// Values of one request; one thread.
#ifndef WEFT_ANSWER_PROMPT_ROWS_H_
#define WEFT_ANSWER_PROMPT_ROWS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/chat_context.h"
#include "base/status.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

// Input embeddings, with the texts between and around them, and the mark that stands for all of it
// in the text that a template writes.
struct EmbeddedRows {
  struct Part {
    std::string text;
    std::vector<float> rows;  // after the text; may be empty
    RowForm form = {};
  };
  std::string mark;
  std::vector<Part> parts = {};
  bool is_picture = false;  // the mark is always the same for the same embeddings
};

// Only embeddings, with a mark that nobody can guess.
EmbeddedRows MarkRows(std::vector<float> rows);

// The rendered text as a prompt: tokens, and input embeddings where the marks are. `known`: the
// tokens of parts of the text. An error if the template left a mark out or wrote it twice.
StatusOr<std::vector<PromptPart>> PartsOfPrompt(const Model& model, std::string_view text,
                                                std::span<const TokenSpan> known,
                                                std::vector<EmbeddedRows> rows);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_ROWS_H_
