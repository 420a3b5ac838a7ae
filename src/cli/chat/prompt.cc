#include "cli/chat/prompt.h"

#include <utility>

#include "answer/answer_ends.h"
#include "answer/masks/constraint_mask.h"
#include "answer/reply_mask.h"
#include "answer/thinking.h"
#include "chat/chat_format.h"
#include "tokenizer/tokenizer.h"

namespace weft::cli {

StatusOr<std::unique_ptr<ChatPrompt>> ChatPrompt::Create(std::shared_ptr<const Model> model) {
  auto format = ChatFormat::Create(std::string(model->chat_template()), model->tokenizer());
  if (!format.ok()) {
    return Annotate(format.status(), "the chat template of ", Printable(model->path(), 300), ": ");
  }
  return std::unique_ptr<ChatPrompt>(new ChatPrompt(std::move(model), *std::move(format)));
}

ChatPrompt::ChatPrompt(std::shared_ptr<const Model> model, std::shared_ptr<const ChatFormat> format)
    : model_(std::move(model)),
      format_(std::move(format)),
      encoder_(MakePromptEncoder(model_->tokenizer())) {}

ChatPrompt::~ChatPrompt() = default;

StatusOr<weft::ChatPrompt> ChatPrompt::Render(const std::string& system,
                                              std::vector<ChatMessage> messages,
                                              bool for_answer) const {
  if (!system.empty()) {
    messages.insert(messages.begin(), {.role = Role::kSystem, .parts = {system}});
  }
  const ChatRequest request{.conversation = {.messages = std::move(messages)},
                            .add_generation_prompt = for_answer,
                            .variables = variables_,
                            .past_thoughts = past_thoughts_};
  return format_->Render(request);
}

void ChatPrompt::SetReasoning(const ReplyFlags& flags) {
  serve::ThinkingDefaults thinking = ThinkingOf(flags);
  ChatRequest chat;
  serve::SetThinking(thinking, thinking.limit, &chat);
  variables_ = std::move(chat.variables);
  past_thoughts_ = chat.past_thoughts;
  thought_ = std::move(thinking.limit);
}

Status ChatPrompt::Restrict(const weft::ChatPrompt& prompt,
                            const std::optional<ConstraintSpec>& answer,
                            TurnOptions* options) const {
  WEFT_ASSIGN_OR_RETURN(
      options->token_mask,
      serve::MaskOfReply(*model_, format_.get(), prompt.reasoning_is_open, thought_, answer));
  return OkStatus();
}

void ChatPrompt::AddEnds(TurnOptions* options) const {
  const AnswerEnds& ends = format_->ends();
  options->stop_strings.insert(options->stop_strings.end(), ends.texts.begin(), ends.texts.end());
  serve::AddEndTokens(ends.tokens, options);
}

std::string ChatPrompt::Piece(TokenId token) const {
  return model_->tokenizer()->Piece(token, /*render_special=*/true);
}

}  // namespace weft::cli
