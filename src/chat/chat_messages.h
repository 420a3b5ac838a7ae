// Messages as chat requests have them, checked and brought into the shape that a
// template takes.
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

// INVALID_ARGUMENT names the place: "messages[2].content: ...".
Status CheckMessages(const nlohmann::ordered_json& messages);
Status CheckTools(const nlohmann::ordered_json& tools);

// The text of a checked message's content, its parts with `separator` between; "" for null.
std::string ContentText(const nlohmann::ordered_json& content, std::string_view separator = "");

// The reasoning of a checked message, by whichever of its names: reasoning_content, reasoning,
// reasoning_text or thinking; "" where there is none.
std::string ReasoningText(const nlohmann::ordered_json& message);
// Takes all of them away.
void EraseReasoning(nlohmann::ordered_json* message);

// REQUIRES: both are checked.
nlohmann::ordered_json ShapeMessages(const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools,
                                     const TemplateTraits& traits, const ReplySyntax& syntax);

}  // namespace weft

#endif  // WEFT_CHAT_CHAT_MESSAGES_H_
