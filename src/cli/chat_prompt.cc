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
      encoder_{
          .encode = [this](std::string_view text, bool at_start) { return Encode(text, at_start); },
          .may_cut = [this](TokenId before,
                            std::string_view rest) { return MayCut(before, rest); }} {}

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

std::vector<TokenId> ChatPrompt::Encode(std::string_view text, bool at_start) const {
  const Tokenizer& tokenizer = *model_->tokenizer();
  std::vector<TokenId> tokens;
  const bool written = !bos_text_.empty() && text.starts_with(bos_text_);
  if (at_start && tokenizer.adds_bos() && !written) tokens.push_back(tokenizer.bos());
  const auto more = tokenizer.Encode(text, {.add_special = false, .parse_special = true});
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// SentencePiece vocabularies may put a space before text that begins or follows a
// control token, so for them a cut is possible beside control tokens alone.
bool ChatPrompt::MayCut(TokenId before, std::string_view rest) const {
  const Tokenizer& tokenizer = *model_->tokenizer();
  if (tokenizer.model_name() != "llama" || tokenizer.IsControl(before)) return true;
  constexpr size_t kLongestControlBytes = 256;
  const auto tokens = tokenizer.Encode(rest.substr(0, kLongestControlBytes),
                                       {.add_special = false, .parse_special = true});
  return !tokens.empty() && tokenizer.IsControl(tokens.front());
}

}  // namespace weft::cli
