// Which tools an answer may call, and whether it must: tool_choice and similar fields.
//
// Pure functions; any thread.
#ifndef WEFT_API_TOOL_CHOICE_H_
#define WEFT_API_TOOL_CHOICE_H_

#include <map>
#include <string>
#include <vector>

#include "api/fields/support.h"
#include "api/tool_catalog.h"
#include "chat/conversation.h"

namespace weft::serve {

struct ToolChoice {
  bool calls_allowed = true;  // false: call markup stays text
  bool must_call = false;
  bool strict = false;       // some tool requires its calls to fit its schema
  bool single_call = false;  // at most one call per answer
  // The grammars of texts that functions take, by the names the model knows.
  std::map<std::string, std::string> grammars = {};
  // The functions that may be called, by the names the model knows; empty: all offered ones.
  std::vector<std::string> only;
};

// tool_choice of chat completions and the Responses API ("auto", "none", "required", one tool,
// allowed_tools), and parallel_tool_calls.
ToolChoice ReadToolChoice(ApiFields* fields, const ToolCatalog& tools);
// tool_choice of Anthropic's messages: {"type": "auto" | "none" | "any" | "tool"}.
ToolChoice ReadAnthropicToolChoice(ApiFields* fields, const ToolCatalog& tools);

// The subset of a request's tools that may be called.
ToolList Callable(const ToolList& tools, const ToolChoice& choice);

}  // namespace weft::serve

#endif  // WEFT_API_TOOL_CHOICE_H_
