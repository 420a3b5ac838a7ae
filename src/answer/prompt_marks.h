// Prefixes of a conversation that its client marked, because it means to come back to them.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_PROMPT_MARKS_H_
#define WEFT_ANSWER_PROMPT_MARKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "answer/chat/chat_format.h"
#include "weft/options.h"

namespace weft::serve {

class PromptMaker;

struct PromptMark {
  static constexpr size_t kAll = SIZE_MAX;
  size_t n_messages = kAll;  // counted after the tools; kAll: the whole prompt
  size_t n_bytes = kAll;     // counted in the text of the last of these messages
  std::chrono::seconds keep_for{0};
};

// Finds the marks among the turn's tokens, which are those of the whole conversation. Where a mark
// lies inside, the conversation is rendered once more up to there: for the first one, which new
// conversations share, and the last. `n_prompt`: the prompt's length.
void PlaceMarks(PromptMaker& prompts, std::string_view domain, const ChatRequest& chat,
                std::span<const PromptMark> marks, int64_t n_prompt, TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_PROMPT_MARKS_H_
