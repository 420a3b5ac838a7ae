// What the model itself wrote, and how it comes back.
//
// Clients send a conversation back with every request, and seldom as it was: they drop the
// reasoning, trim white space, write a call's arguments anew. A prompt made of that differs from
// the tokens that were computed. An OwnReply is the reply as it was computed; where a message of
// the conversation says the same, the prompt contains the reply instead (own_prompt.h).
//
// Values; an OwnReply is immutable once shared.
#ifndef WEFT_ANSWER_CHAT_OWN_REPLY_H_
#define WEFT_ANSWER_CHAT_OWN_REPLY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/conversation.h"
#include "base/tokens.h"

namespace weft {

// Identifies a text by its length, a hash of all but its last bytes, and these.
struct PromptEnd {
  size_t bytes = 0;
  uint64_t hash = 0;  // over the first bytes - tail.size()
  std::string tail;
};
PromptEnd EndOfPrompt(std::string_view text);
// XXH3 with 64 bits.
uint64_t HashOfPrompt(std::string_view text);

struct OwnReply {
  // As the client received it: what a parser found in `text`.
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  // As it was generated, without the token that ended it; `text` is what `tokens` spell. Both are
  // empty if the client saw less than what was generated.
  std::string text;
  std::vector<TokenId> tokens;
  PromptEnd prompt;  // the text that it continued
  // Identifies the conversation that it answers; see ReplyMemory.
  uint64_t conversation = 0;
  uint64_t id = 0;
};

// For one message of a request.
struct OwnWords {
  std::shared_ptr<const OwnReply> reply;  // null: the message is not known
  // The conversation before the message is the one that the reply answered, so that its prompt
  // should be the text before it.
  bool is_in_place = false;
};

// Whether the message is this reply, apart from reasoning that is missing, white space at the ends
// of texts, the order of calls with ids, and how their arguments are written.
bool SaysTheSame(const ChatMessage& message, const OwnReply& reply);

// `message`, which says the same, in the reply's own words: its reasoning, content, and calls. Ids
// and unknown fields stay the client's.
ChatMessage InOwnWords(const ChatMessage& message, const OwnReply& reply);

// Without white space at both ends.
std::string_view Trimmed(std::string_view text);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_OWN_REPLY_H_
