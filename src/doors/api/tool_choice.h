// Reads which tools an answer may call, and whether it must: tool_choice and similar fields.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_TOOL_CHOICE_H_
#define WEFT_DOORS_API_TOOL_CHOICE_H_

#include "answer/ask.h"
#include "doors/api/fields/support.h"
#include "doors/api/tool_catalog.h"

namespace weft::serve {

// tool_choice of chat completions and the Responses API ("auto", "none", "required", one tool,
// allowed_tools), and parallel_tool_calls.
ToolChoice ReadToolChoice(ApiFields* fields, const ToolCatalog& tools);
// tool_choice of Anthropic's messages: {"type": "auto" | "none" | "any" | "tool"}.
ToolChoice ReadAnthropicToolChoice(ApiFields* fields, const ToolCatalog& tools);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_TOOL_CHOICE_H_
