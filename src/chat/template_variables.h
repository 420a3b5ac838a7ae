// Variables that real templates read besides messages and tools and that requests may omit: the
// date, whether to think, the tools as text.
//
// Pure functions; any thread.
#ifndef WEFT_CHAT_TEMPLATE_VARIABLES_H_
#define WEFT_CHAT_TEMPLATE_VARIABLES_H_

#include <cstdint>

#include "chat/template.h"
#include "nlohmann/json.hpp"

namespace weft {

// Adds the variables that the template mentions and `context` lacks. `tools` may be null; `now` is
// the local wall clock in seconds since 1970.
void AddTemplateVariables(const ChatTemplate& chat_template, const nlohmann::ordered_json& tools,
                          int64_t now, nlohmann::ordered_json* context);

}  // namespace weft

#endif  // WEFT_CHAT_TEMPLATE_VARIABLES_H_
