// Reads conversations in the form of OpenAI's chat completions, which clients of Ollama's and
// llama-server's APIs send too.
//
// Errors are INVALID_ARGUMENT and begin with the place: "messages[2].content: ...". Pure functions;
// any thread.
#ifndef WEFT_ANSWER_CHAT_OPENAI_FORM_H_
#define WEFT_ANSWER_CHAT_OPENAI_FORM_H_

#include <memory>
#include <string>
#include <vector>

#include "answer/chat/conversation.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace weft {

// [{"role", "content": a text, null, or parts of type text, "reasoning_content", "tool_calls",
// "tool_call_id", "name"}]. There must be a message. Reasoning has several names: clients return it
// under the one that their last server used.
StatusOr<std::vector<ChatMessage>> ReadOpenAiMessages(const nlohmann::ordered_json& messages);
StatusOr<ChatMessage> ReadOpenAiMessage(const nlohmann::ordered_json& message,
                                        const std::string& place);

// [{"type": "function", "function": {"name", "description", "parameters"}}]; null: none.
StatusOr<ToolList> ReadOpenAiTools(const nlohmann::ordered_json& tools);
StatusOr<std::shared_ptr<const Tool>> ReadOpenAiTool(nlohmann::ordered_json tool,
                                                     const std::string& place);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_OPENAI_FORM_H_
