// The tools of Anthropic's API.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_ANTHROPIC_TOOLS_H_
#define WEFT_DOORS_API_ANTHROPIC_TOOLS_H_

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "doors/api/tool_catalog.h"

namespace weft::serve {

// A request's `tools`: functions, and tools that Anthropic defines and the client runs.
StatusOr<ToolCatalog> ReadAnthropicTools(const nlohmann::ordered_json& tools);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_ANTHROPIC_TOOLS_H_
