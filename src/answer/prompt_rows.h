// Prompts in which input embeddings stand in place of texts. The text holds a mark where they
// belong, which a chat template writes like any other text.
//
// Values of one request; one thread.
#ifndef WEFT_ANSWER_PROMPT_ROWS_H_
#define WEFT_ANSWER_PROMPT_ROWS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

// Input embeddings, and the mark that stands for them in the text that a template writes.
struct EmbeddedRows {
  std::string mark;
  std::vector<float> rows;
};

// The same with a mark that nobody can guess.
EmbeddedRows MarkRows(std::vector<float> rows);

// The rendered text as a prompt: tokens, and input embeddings where the marks are. An error if the
// template left one out or wrote it twice.
Status SetPrompt(const Model& model, std::string_view text, std::vector<EmbeddedRows> rows,
                 TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_ROWS_H_
