// The tools of Anthropic's API.
//
// Pure functions; any thread.
#ifndef WEFT_API_ANTHROPIC_TOOLS_H_
#define WEFT_API_ANTHROPIC_TOOLS_H_

#include <nlohmann/json.hpp>

#include "api/tool_catalog.h"
#include "base/status.h"

namespace weft::serve {

// A request's `tools`: functions, and tools that Anthropic defines and the client runs.
StatusOr<ToolCatalog> ReadAnthropicTools(const nlohmann::ordered_json& tools);

}  // namespace weft::serve

#endif  // WEFT_API_ANTHROPIC_TOOLS_H_
