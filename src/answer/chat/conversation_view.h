// A conversation as one template sees it: in the roles, and with the calls, results and reasoning,
// that the template can show. What it cannot show is put into the text.
//
// Borrows everything that needs no other form. One thread.
#ifndef WEFT_ANSWER_CHAT_CONVERSATION_VIEW_H_
#define WEFT_ANSWER_CHAT_CONVERSATION_VIEW_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "answer/chat/conversation.h"
#include "answer/chat/template_traits.h"
#include "answer/reply/syntax.h"
#include "jinja/value.h"

namespace weft {

// A text of the conversation, or one made for the template.
struct ShownText {
  const std::string* given = nullptr;
  std::string made = {};

  std::string_view view() const { return given == nullptr ? made : *given; }
};

struct ShownCall {
  const ToolCall* call;
  std::string id;
  std::optional<std::string> arguments_text;  // for templates that want text
};

struct ShownMessage {
  Role role = Role::kUser;
  const ChatMessage* from = nullptr;  // null if made for the template
  ShownText text = {};
  bool null_content = false;
  const char* reasoning_name = nullptr;  // null: none is shown
  std::string_view function = {};  // whose result it is; empty: the client names it, or nobody does
  std::string call_id = {};        // likewise
  std::vector<ShownCall> calls = {};
};

class ConversationView {
 public:
  // `pictures`: texts that stand for pictures. All arguments must outlive the view. REQUIRES: there
  // is a message.
  ConversationView(std::span<const ChatMessage* const> messages, const ToolList& tools,
                   const TemplateTraits& traits, const ReplySyntax& syntax,
                   std::span<const std::string> pictures = {});

  // Sets `messages` and `tools`. The view must outlive the rendering.
  void AddTo(jinja::DictObject* variables, jinja::Meter* meter) const;

 private:
  jinja::Value Content(const ShownMessage& message, jinja::Meter* meter) const;
  jinja::Value Parts(std::string_view text, bool with_pictures, jinja::Meter* meter) const;
  jinja::Value Message(const ShownMessage& message, jinja::Meter* meter) const;

  const ToolList& tools_;
  const TemplateTraits& traits_;
  const std::span<const std::string> pictures_;
  std::vector<ShownMessage> messages_;
};

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CONVERSATION_VIEW_H_
