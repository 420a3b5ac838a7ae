// Prompts in which the model's earlier replies stand as it wrote them, and the record of new ones.
//
// Any thread.
#ifndef WEFT_API_KNOWN_REPLIES_H_
#define WEFT_API_KNOWN_REPLIES_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/reply_stream.h"
#include "base/status.h"
#include "chat/chat_format.h"
#include "host/host.h"

namespace weft::serve {

struct KnownPrompt {
  ChatPrompt prompt;
  // What was rendered: the request, with known replies in place of the client's versions.
  ChatRequest chat;
  std::vector<int32_t> tokens;
  // Of the reply to it; absent if replies are not remembered.
  std::optional<ReplyMemory::Place> place;
};

// INVALID_ARGUMENT if the template refuses the conversation, or exceeds its limits with it.
StatusOr<ChatPrompt> RenderChat(Host& host, const ChatRequest& chat);
// Renders and encodes. Messages that say what the model said are given in the model's own words and
// tokens, unless the operator turned that off. In a conversation with tools they also keep
// reasoning that the template would drop, so that nothing after it has to be computed again; but
// not if the prompt only fits without it.
StatusOr<KnownPrompt> RenderKnown(Host& host, std::string_view domain, ChatRequest chat);

// Remembers replies to `prompt`, whose text must still be there. Empty if it is not to be done.
std::function<void(SaidReply)> RecorderOf(Host& host, std::string_view domain,
                                          const std::string& session, const KnownPrompt& prompt);

}  // namespace weft::serve

#endif  // WEFT_API_KNOWN_REPLIES_H_
