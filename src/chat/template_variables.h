// The variables that templates of the field read beside messages and tools, and that a request
// need not give: the date, whether to think, the tools as one text.
//
// Pure functions; any thread.
#ifndef WEFT_CHAT_TEMPLATE_VARIABLES_H_
#define WEFT_CHAT_TEMPLATE_VARIABLES_H_

#include <cstdint>

#include "chat/template.h"
#include "nlohmann/json.hpp"

namespace weft {

// Adds those that the template mentions and `context` has not. `tools` may be null; `now` is the
// local wall clock in seconds since 1970.
void AddTemplateVariables(const ChatTemplate& chat_template, const nlohmann::ordered_json& tools,
                          int64_t now, nlohmann::ordered_json* context);

}  // namespace weft

#endif  // WEFT_CHAT_TEMPLATE_VARIABLES_H_
