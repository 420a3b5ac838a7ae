// The fields of a request that become variables of the chat template: chat_template_kwargs, which
// every API takes, how much to think, and whether earlier thoughts stay; and how the reply begins.
//
// chat_template_kwargs count most, then the request's other fields, then the operator's settings.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_TEMPLATE_FIELDS_H_
#define WEFT_DOORS_API_TEMPLATE_FIELDS_H_

#include <string_view>

#include "answer/ask.h"
#include "answer/thinking.h"
#include "doors/api/fields/support.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

// Reads chat_template_kwargs. Call before other fields set variables.
void ReadTemplateKwargs(ApiFields* fields, Ask* ask);

// The thinking effort, unless it is set; "none" turns thinking off.
void SetReasoningEffort(std::string_view effort, nlohmann::ordered_json* variables);

// Reads the limit on thinking, in tokens, under llama-server's names, and calls SetThinking
// (answer/thinking.h), which comes after all other variables of the request.
void ReadThoughtLimit(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask);
// Only the thought's last words, for APIs that have their own field for its length.
void ReadThoughtMessage(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask);

// Whether the reply starts afresh or continues the last message: continue_final_message (a boolean,
// "content" or "reasoning_content") and add_generation_prompt. As in llama-server, if the last
// message is the assistant's it is continued unless continue_final_message is false.
void ReadEnding(ApiFields* fields, ChatRequest* chat);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_TEMPLATE_FIELDS_H_
