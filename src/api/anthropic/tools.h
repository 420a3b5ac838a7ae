// The tools of Anthropic's API.
//
// Functions of their arguments; any thread.
#ifndef WEFT_API_ANTHROPIC_TOOLS_H_
#define WEFT_API_ANTHROPIC_TOOLS_H_

#include <nlohmann/json.hpp>

#include "api/tool_catalog.h"
#include "base/status.h"

namespace weft::serve {

// `tools` of a request: functions, and those that Anthropic defines and the client runs.
StatusOr<ToolCatalog> ReadAnthropicTools(const nlohmann::ordered_json& tools);

}  // namespace weft::serve

#endif  // WEFT_API_ANTHROPIC_TOOLS_H_
