#include "api/known_replies.h"

#include <atomic>
#include <memory>
#include <utility>

#include "api/fields/support.h"
#include "base/clock.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

Status WithPlace(const Status& status) {
  // If a template exceeds its limits, it would do so again on a retry.
  if (status.code() == StatusCode::kResourceExhausted) return InvalidArgument(Message(status));
  if (status.code() != StatusCode::kInvalidArgument) return status;
  const std::string_view message = Message(status);
  return message.starts_with("messages") ? AtPlace(status) : status;
}

// Different in every process, too: replies outlive them.
uint64_t NewReplyId() {
  static std::atomic<uint64_t> next{static_cast<uint64_t>(WallClockMicros()) << 12};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

StatusOr<ChatPrompt> RenderChat(Host& host, const ChatRequest& chat) {
  auto prompt = host.chat().Render(chat);
  if (!prompt.ok()) return WithPlace(prompt.status());
  return prompt;
}

StatusOr<KnownPrompt> RenderKnown(Host& host, std::string_view domain, ChatRequest chat) {
  KnownPrompt known;
  if (host.defaults().server.restore_reasoning) {
    ReplyMemory::Found found = host.replies().Find(domain, chat.conversation);
    chat.own = std::move(found.own);
    chat.keep_hidden_reasoning = !chat.own.empty() && !chat.conversation.tools.empty() &&
                                 chat.past_thoughts != PastThoughts::kClear;
    known.place = found.place;
  }
  for (size_t i = 0; i < chat.own.size(); ++i) {
    ChatMessage& message = chat.conversation.messages[i];
    if (chat.own[i].reply != nullptr) message = InOwnWords(message, *chat.own[i].reply);
  }
  while (true) {
    WEFT_ASSIGN_OR_RETURN(known.prompt, RenderChat(host, chat));
    known.tokens = host.EncodeChat(domain, known.prompt.text, known.prompt.own);
    const bool fits = static_cast<int64_t>(known.tokens.size()) < host.model().context_tokens();
    if (fits || !std::exchange(chat.keep_hidden_reasoning, false)) break;
  }
  known.chat = std::move(chat);
  return known;
}

std::function<void(SaidReply)> RecorderOf(Host& host, std::string_view domain,
                                          const std::string& session, const KnownPrompt& prompt) {
  if (!prompt.place) return nullptr;
  ReplyMemory::Record record{
      .domain = std::string(domain), .session = session, .place = *prompt.place};
  return [&host, record = std::move(record),
          end = EndOfPrompt(prompt.prompt.text)](SaidReply said) mutable {
    auto reply = std::make_shared<OwnReply>(OwnReply{.reasoning = std::move(said.reasoning),
                                                     .content = std::move(said.content),
                                                     .calls = std::move(said.calls),
                                                     .prompt = end,
                                                     .conversation = record.place.conversation,
                                                     .id = NewReplyId()});
    if (said.is_whole) {
      reply->tokens = std::move(said.tokens);
      for (const TokenId token : reply->tokens) {
        reply->text += host.model().tokenizer()->Piece(token, /*render_special=*/true);
      }
    }
    record.reply = std::move(reply);
    host.replies().Remember(record);
  };
}

}  // namespace weft::serve
