// The required form of an answer, as requests give it under the names used by the various APIs.
//
// Pure functions; any thread.
#ifndef WEFT_DOORS_API_FIELDS_ANSWER_RULE_H_
#define WEFT_DOORS_API_FIELDS_ANSWER_RULE_H_

#include <optional>
#include <string>
#include <string_view>

#include "answer/ask.h"
#include "doors/api/fields/support.h"
#include "nlohmann/json.hpp"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

// Reads response_format, llama-server's json_schema and grammar, vLLM's guided_* and
// structured_outputs, SGLang's regex and ebnf. At most one of them is allowed, and none together
// with options that would break it (ignore_eos, min_tokens), which are looked up in `turn`.
std::optional<AnswerRule> ReadAnswerRule(ApiFields* fields, const TurnOptions& turn);

// The same for APIs with a field of their own, from which `answer` was read.
void AddAnswerRule(ApiFields* fields, const TurnOptions& turn, std::optional<AnswerRule>* answer);

// {"type": "text" | "json_object" | "json_schema", ...}: as in OpenAI's chat completions
// ("json_schema": {"schema"}), and in its Responses and Anthropic's messages ("schema").
std::optional<AnswerRule> ReadFormat(ApiFields* fields, const char* name);

// A schema given as an object or as JSON text.
std::optional<AnswerRule> SchemaRule(const nlohmann::ordered_json& schema, std::string field);
// Any JSON object.
AnswerRule ObjectRule(std::string field);

// Fails if the turn has options that conflict with a constraint.
void CheckGoesWith(const TurnOptions& turn, ApiFields* fields);

// Reads the tenant's rule for a text completion and constrains the turn to it.
void ReadTextRule(ApiFields* fields, const Model& model, std::string_view tenant,
                  TurnOptions* turn);

}  // namespace weft::serve

#endif  // WEFT_DOORS_API_FIELDS_ANSWER_RULE_H_
