// Variables that real templates read besides messages and tools and that requests may omit: the
// date, whether to think, the tools as text.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_CHAT_TEMPLATE_VARIABLES_H_
#define WEFT_ANSWER_CHAT_TEMPLATE_VARIABLES_H_

#include <cstdint>

#include "answer/chat/conversation.h"
#include "jinja/template.h"
#include "nlohmann/json.hpp"

namespace weft {

// The variables that the template mentions and `given`, an object, lacks. `now` is the local wall
// clock in seconds since 1970.
nlohmann::ordered_json MissingVariables(const ChatTemplate& chat_template,
                                        const nlohmann::ordered_json& given, const ToolList& tools,
                                        int64_t now);

// The first variable in `given`, an object, that only the server sets; null if there is none.
const char* ReservedVariableIn(const nlohmann::ordered_json& given);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_TEMPLATE_VARIABLES_H_
