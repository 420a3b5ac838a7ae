// A conversation of weft chat as the model wants to read it: its chat format, and the
// tokens of what that renders.
//
// Immutable between calls of SetReasoning; then it may be used from any thread.
#ifndef WEFT_CLI_CHAT_PROMPT_H_
#define WEFT_CLI_CHAT_PROMPT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "chat/chat_context.h"
#include "cli/flags/reply_flags.h"
#include "nlohmann/json.hpp"
#include "weft/constraint.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft {
class ChatFormat;
}

namespace weft::cli {

// What one side said. Questions and answers take turns.
struct ChatMessage {
  bool from_model = false;
  std::string text;  // UTF-8
};

class ChatPrompt {
 public:
  // With the template of the model file, or ChatML where it has none.
  static StatusOr<std::unique_ptr<ChatPrompt>> Create(std::shared_ptr<const Model> model);
  ~ChatPrompt();

  // The text of a conversation; with `for_answer` it ends where the model goes on.
  // `system` may be empty. The error is the template's own, e.g. where it knows no system
  // message.
  StatusOr<std::string> Render(std::string_view system, std::span<const ChatMessage> messages,
                               bool for_answer) const;

  // Whether and how long answers begin with a thought, where the template and the model know
  // of it.
  void SetReasoning(const ReplyFlags& flags);
  // Has the thought of an answer to `prompt` end in time, and what comes behind it be what
  // `answer` describes.
  Status Restrict(std::string_view prompt, const std::optional<ConstraintSpec>& answer,
                  TurnOptions* options) const;
  // Has an answer end where the template ends one.
  void AddEnds(TurnOptions* options) const;

  const PromptEncoder& encoder() const { return encoder_; }
  // What a token reads in a rendered text, control tokens included.
  std::string Piece(TokenId token) const;
  // Whether the file has no template.
  bool uses_fallback() const { return model_->chat_template().empty(); }

 private:
  ChatPrompt(std::shared_ptr<const Model> model, std::shared_ptr<const ChatFormat> format);

  const std::shared_ptr<const Model> model_;
  const std::shared_ptr<const ChatFormat> format_;
  const PromptEncoder encoder_;
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();  // of the template
  int64_t thought_tokens_ = -1;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_PROMPT_H_
