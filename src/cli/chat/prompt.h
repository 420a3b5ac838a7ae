// Prepares a weft chat conversation for the model: its chat format, and the tokens of the rendered
// text.
//
// Immutable between calls of SetReasoning; then safe for use from any thread.
#ifndef WEFT_CLI_CHAT_PROMPT_H_
#define WEFT_CLI_CHAT_PROMPT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer/thinking.h"
#include "base/status.h"
#include "chat/chat_context.h"
#include "chat/chat_format.h"
#include "chat/conversation.h"
#include "chat/past_thoughts.h"
#include "cli/flags/reply_flags.h"
#include "nlohmann/json.hpp"
#include "weft/constraint.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::cli {

class ChatPrompt {
 public:
  // Uses the model file's template, or ChatML if it has none.
  static StatusOr<std::unique_ptr<ChatPrompt>> Create(std::shared_ptr<const Model> model);
  ~ChatPrompt();

  // The prompt of a conversation; with `for_answer` it ends where the model continues. `system` may
  // be empty. Errors come from the template, e.g. if it accepts no system message.
  StatusOr<weft::ChatPrompt> Render(const std::string& system, std::vector<ChatMessage> messages,
                                    bool for_answer) const;

  // Whether and for how long answers begin with a thought, if the template and the model support
  // it; and the template's variables.
  void SetReasoning(const ReplyFlags& flags);
  // Limits the thought in the answer to `prompt`, and constrains what follows it to `answer`.
  Status Restrict(const weft::ChatPrompt& prompt, const std::optional<ConstraintSpec>& answer,
                  TurnOptions* options) const;
  // Makes an answer end where the template ends it.
  void AddEnds(TurnOptions* options) const;

  const PromptEncoder& encoder() const { return encoder_; }
  // A token's text in rendered text, including control tokens.
  std::string Piece(TokenId token) const;
  // Whether the file lacks a template.
  bool uses_fallback() const { return model_->chat_template().empty(); }

 private:
  ChatPrompt(std::shared_ptr<const Model> model, std::shared_ptr<const ChatFormat> format);

  const std::shared_ptr<const Model> model_;
  const std::shared_ptr<const ChatFormat> format_;
  const PromptEncoder encoder_;
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();  // for the template
  PastThoughts past_thoughts_ = PastThoughts::kDefault;
  serve::ThoughtLimit thought_;
};

}  // namespace weft::cli

#endif  // WEFT_CLI_CHAT_PROMPT_H_
