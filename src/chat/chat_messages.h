// Checks the messages of chat requests and converts them to the form that a template takes.
//
// Pure functions; any thread.
#ifndef WEFT_CHAT_CHAT_MESSAGES_H_
#define WEFT_CHAT_CHAT_MESSAGES_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "chat/template_traits.h"
#include "nlohmann/json.hpp"
#include "reply/syntax.h"

namespace weft {

// INVALID_ARGUMENT names the position: "messages[2].content: ...".
Status CheckMessages(const nlohmann::ordered_json& messages);
Status CheckTools(const nlohmann::ordered_json& tools);

// The text of a checked message's content, its parts joined with `separator`; "" for null.
std::string ContentText(const nlohmann::ordered_json& content, std::string_view separator = "");

// The reasoning of a checked message, under any of its names: reasoning_content, reasoning,
// reasoning_text or thinking; "" if there is none.
std::string ReasoningText(const nlohmann::ordered_json& message);
// Removes the reasoning under all of its names.
void EraseReasoning(nlohmann::ordered_json* message);

// REQUIRES: both have been checked.
nlohmann::ordered_json ShapeMessages(const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools,
                                     const TemplateTraits& traits, const ReplySyntax& syntax);

}  // namespace weft

#endif  // WEFT_CHAT_CHAT_MESSAGES_H_
