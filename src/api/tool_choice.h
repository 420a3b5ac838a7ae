// Which tools an answer may call, and whether it must: tool_choice and its like.
//
// Functions of their arguments; any thread.
#ifndef WEFT_API_TOOL_CHOICE_H_
#define WEFT_API_TOOL_CHOICE_H_

#include <string>
#include <vector>

#include "api/support.h"
#include "api/tool_catalog.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ToolChoice {
  bool calls_allowed = true;  // else the markup of a call stays text
  bool must_call = false;
  bool strict = false;       // a tool says that calls of it must fit its schema
  bool single_call = false;  // not several in one answer
  // The functions that may be called, as the model knows them; empty: all that are offered.
  std::vector<std::string> only;
};

// tool_choice of chat completions and of the Responses API ("auto", "none", "required", one tool,
// allowed_tools), and parallel_tool_calls.
ToolChoice ReadToolChoice(ApiFields* fields, const ToolCatalog& tools);
// tool_choice of Anthropic's messages: {"type": "auto" | "none" | "any" | "tool"}.
ToolChoice ReadAnthropicToolChoice(ApiFields* fields, const ToolCatalog& tools);

// Of the tools of a request those that may be called.
nlohmann::ordered_json Callable(const nlohmann::ordered_json& tools, const ToolChoice& choice);

}  // namespace weft::serve

#endif  // WEFT_API_TOOL_CHOICE_H_
