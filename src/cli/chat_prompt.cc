#include "cli/chat_prompt.h"

#include <utility>

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

StatusOr<std::string> ChatPrompt::Render(std::string_view system,
                                         std::span<const ChatMessage> messages,
                                         bool for_answer) const {
  ChatRequest request{.add_generation_prompt = for_answer};
  if (!system.empty()) request.messages.push_back({{"role", "system"}, {"content", system}});
  for (const ChatMessage& message : messages) {
    request.messages.push_back(
        {{"role", message.from_model ? "assistant" : "user"}, {"content", message.text}});
  }
  WEFT_ASSIGN_OR_RETURN(weft::ChatPrompt prompt, format_->Render(request));
  return std::move(prompt.text);
}

std::string ChatPrompt::Piece(TokenId token) const {
  return model_->tokenizer()->Piece(token, /*render_special=*/true);
}

}  // namespace weft::cli
