// A conversation, whichever API, file or terminal it came from: its messages, and the tools that
// the model may call.
//
// Whoever receives a conversation in another form converts it to this one, once, where it enters.
// From there on it is only referred to: a template sees a view of it
// (answer/chat/conversation_view.h).
//
// Values; tools are immutable and shared.
#ifndef WEFT_ANSWER_CHAT_CONVERSATION_H_
#define WEFT_ANSWER_CHAT_CONVERSATION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace weft {

enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };

// "system", "developer", "user", "assistant", "tool".
std::string_view NameOf(Role role);
std::optional<Role> RoleNamed(std::string_view name);

// Members of a client's JSON that only its template understands. They reach the template unchanged,
// in the client's order; those that are typed members here are null, which keeps their place. Null
// if a client sent nothing of the kind.
using TemplateFields = nlohmann::ordered_json;

// A call of a function by the model.
struct ToolCall {
  std::string id;    // may be empty
  std::string name;  // the function's; not empty
  // An object; or a string, if the model wrote something else.
  nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
  TemplateFields fields = {}, function_fields = {};
};

struct ChatMessage {
  Role role = Role::kUser;
  // Texts. An answer's parts were one text; those of any other message are separate items, such as
  // files.
  std::vector<std::string> parts = {};
  std::string reasoning = {};  // kAssistant only, as are calls
  std::vector<ToolCall> calls = {};
  std::string call_id = {};  // kTool only: the call that this is the result of; may be empty
  TemplateFields fields = {};
};

// The parts joined: an answer's to one text, those of other messages with line breaks.
std::string TextOf(const ChatMessage& message);

// The arguments of a call as text: parsed if they are an object in JSON, none if the text is blank,
// otherwise the text itself.
nlohmann::ordered_json CallArguments(std::string_view text);

// A function that the model may call.
struct Tool {
  std::string name;  // not empty
  // As a template shows it: {"type": "function", "function": {"name", "description", "parameters",
  // ...}} in the client's order. Its function is an object with a name.
  nlohmann::ordered_json definition;

  const nlohmann::ordered_json& function() const { return *definition.find("function"); }
  // A JSON Schema, an object; null if there is none.
  const nlohmann::ordered_json* parameters() const;
};

using ToolList = std::vector<std::shared_ptr<const Tool>>;

struct Conversation {
  std::vector<ChatMessage> messages;
  ToolList tools;
};

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CONVERSATION_H_
