#include "cli/chat_prompt.h"

#include <utility>

#include "chat/template.h"
#include "nlohmann/json.hpp"
#include "tokenizer/tokenizer.h"

namespace weft::cli {

namespace {

using Json = nlohmann::ordered_json;

// ChatML, for files that bring no template.
constexpr std::string_view kFallbackTemplate =
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

}  // namespace

StatusOr<std::unique_ptr<ChatPrompt>> ChatPrompt::Create(std::shared_ptr<const Model> model) {
  std::string source(model->chat_template());
  const bool fallback = source.empty();
  if (fallback) source = kFallbackTemplate;
  auto parsed = ChatTemplate::Parse(std::move(source));
  if (!parsed.ok()) {
    return Annotate(parsed.status(), "the chat template of ", Printable(model->path(), 300), ": ");
  }
  return std::unique_ptr<ChatPrompt>(
      new ChatPrompt(std::move(model), *std::move(parsed), fallback));
}

ChatPrompt::ChatPrompt(std::shared_ptr<const Model> model,
                       std::shared_ptr<const ChatTemplate> chat_template, bool uses_fallback)
    : model_(std::move(model)),
      template_(std::move(chat_template)),
      uses_fallback_(uses_fallback),
      bos_text_(Piece(model_->tokenizer()->bos())),
      eos_text_(Piece(model_->tokenizer()->eos())),
      encoder_(MakePromptEncoder(model_->tokenizer())) {}

ChatPrompt::~ChatPrompt() = default;

StatusOr<std::string> ChatPrompt::Render(std::string_view system,
                                         std::span<const ChatMessage> messages,
                                         bool for_answer) const {
  Json list = Json::array();
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (const ChatMessage& message : messages) {
    list.push_back(
        {{"role", message.from_model ? "assistant" : "user"}, {"content", message.text}});
  }
  const Json context = {{"messages", std::move(list)},
                        {"add_generation_prompt", for_answer},
                        {"bos_token", bos_text_},
                        {"eos_token", eos_text_}};
  return template_->Render(context, RenderOptions());
}

std::string ChatPrompt::Piece(TokenId token) const {
  return model_->tokenizer()->Piece(token, /*render_special=*/true);
}

}  // namespace weft::cli
