#include "answer/prompt_maker.h"

#include <atomic>
#include <utility>

#include "answer/answer.h"
#include "answer/error_details.h"
#include "base/clock.h"
#include "model/tokenizer/tokenizer.h"

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

PromptMemory::Limits WithContextOf(const Model& model, PromptMemory::Limits limits) {
  limits.tokens = model.context_tokens();
  return limits;
}

}  // namespace

PromptMaker::PromptMaker(std::shared_ptr<const Model> model, std::shared_ptr<const ChatFormat> chat,
                         Options options)
    : model_(std::move(model)),
      chat_(std::move(chat)),
      restore_reasoning_(options.restore_reasoning),
      prompts_(model_->tokenizer(), WithContextOf(*model_, options.memory)),
      replies_(options.reply_memory_bytes) {}

StatusOr<ChatPrompt> PromptMaker::Render(const ChatRequest& chat) const {
  auto prompt = chat_->Render(chat);
  if (!prompt.ok()) return WithPlace(prompt.status());
  return prompt;
}

std::vector<int32_t> PromptMaker::Encode(std::string_view domain, std::string_view text,
                                         std::span<const TokenSpan> known) {
  return prompts_.Encode(domain, text, known);
}

StatusOr<KnownPrompt> PromptMaker::Make(std::string_view domain, ChatRequest chat,
                                        std::vector<EmbeddedRows> rows, int64_t row_width) {
  if (row_width == 0) row_width = model_->row_width();
  KnownPrompt known;
  for (const EmbeddedRows& entry : rows) {
    if (entry.is_picture) chat.pictures.push_back(entry.mark);
  }
  if (restore_reasoning_ && chat.pictures.size() == rows.size()) {
    ReplyMemory::Found found = replies_.Find(domain, chat.conversation);
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
    WEFT_ASSIGN_OR_RETURN(known.prompt, Render(chat));
    // Copied only if a second try may need them.
    WEFT_ASSIGN_OR_RETURN(
        const int64_t size,
        SetTokens(domain, chat.keep_hidden_reasoning ? rows : std::exchange(rows, {}), row_width,
                  &known));
    if (size < model_->context_tokens() || !std::exchange(chat.keep_hidden_reasoning, false)) break;
  }
  known.chat = std::move(chat);
  return known;
}

StatusOr<int64_t> PromptMaker::SetTokens(std::string_view domain, std::vector<EmbeddedRows> rows,
                                         int64_t row_width, KnownPrompt* known) {
  const ChatPrompt& prompt = known->prompt;
  if (rows.empty()) {
    known->tokens = Encode(domain, prompt.text, prompt.own);
    return static_cast<int64_t>(known->tokens.size());
  }
  WEFT_ASSIGN_OR_RETURN(auto parts,
                        PartsOfPrompt(*model_, prompt.text, prompt.own, std::move(rows)));
  TurnOptions turn;
  turn.parts = std::make_shared<const std::vector<PromptPart>>(std::move(parts));
  known->parts = turn.parts;
  return turn.PromptSize(row_width);
}

PromptRecord PromptMaker::Track(std::string_view domain, std::string text, const ChatRequest& chat,
                                ClientList list) {
  const auto items = std::make_shared<const PromptItems>(ItemsOf(chat));
  PromptTrail trail =
      MakeTrail(prompts_.Track(domain, text, items), items, chat, text, std::move(list));
  return {.text = std::move(text), .trail = std::make_shared<const PromptTrail>(std::move(trail))};
}

void PromptMaker::Remember(std::string_view domain, const PromptRecord& record,
                           std::span<const int32_t> prompt_tokens, std::span<const int32_t> reply) {
  if (record.text.empty()) return;
  prompts_.Remember(domain, record.text, prompt_tokens, reply,
                    record.trail != nullptr ? record.trail->items : nullptr);
}

std::function<void(SaidReply)> PromptMaker::RecorderOf(std::string_view domain,
                                                       const std::string& session,
                                                       const KnownPrompt& prompt) {
  if (!prompt.place) return nullptr;
  ReplyMemory::Record record{
      .domain = std::string(domain), .session = session, .place = *prompt.place};
  return [this, record = std::move(record),
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
        reply->text += model_->tokenizer()->Piece(token, /*render_special=*/true);
      }
    }
    record.reply = std::move(reply);
    replies_.Remember(record);
  };
}

}  // namespace weft::serve
