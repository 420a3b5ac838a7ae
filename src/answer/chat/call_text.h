// Tools and calls as text, for templates that do not show them. The tools are described in the
// system message, one JSON object per line between <tools> and </tools>, with an example of a call:
//
//   <tool_call>
//   {"name": "NAME", "arguments": {"first_argument": "text", "second_argument": 2}}
//   </tool_call>
//
// Results become user messages between <tool_response> and </tool_response>.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_CHAT_CALL_TEXT_H_
#define WEFT_ANSWER_CHAT_CALL_TEXT_H_

#include <span>
#include <string>

#include "answer/chat/conversation.h"
#include "answer/reply/syntax.h"
#include "nlohmann/json.hpp"

namespace weft {

// With a space after commas and colons, as templates and models write it.
std::string JsonText(const nlohmann::ordered_json& value);
// The description of the tools for the model.
std::string ToolsText(const ToolList& tools, const ReplySyntax& syntax);
// Calls in the form that the parser of `syntax` reads.
std::string CallsText(std::span<const ToolCall> calls, const ReplySyntax& syntax);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_CALL_TEXT_H_
