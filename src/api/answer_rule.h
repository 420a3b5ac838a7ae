// What a request says its answer must be, by all the names that APIs have for it.
//
// Functions of their arguments; any thread.
#ifndef WEFT_API_ANSWER_RULE_H_
#define WEFT_API_ANSWER_RULE_H_

#include <optional>
#include <string>
#include <string_view>

#include "api/support.h"
#include "base/status.h"
#include "constraint/constraint.h"
#include "nlohmann/json.hpp"
#include "weft/constraint.h"
#include "weft/model.h"
#include "weft/options.h"

namespace weft::serve {

struct AnswerRule {
  ConstraintSpec spec;
  std::string field;  // that says it, for errors
};

// response_format, json_schema and grammar of llama-server, guided_* and structured_outputs of
// vLLM, regex and ebnf of SGLang. One of them at most; and none beside what would break it
// (ignore_eos, min_tokens), for which `turn` is looked at.
std::optional<AnswerRule> ReadAnswerRule(ApiFields* fields, const TurnOptions& turn);

// The same at doors whose own field is another one, which `answer` is from.
void AddAnswerRule(ApiFields* fields, const TurnOptions& turn, std::optional<AnswerRule>* answer);

// {"type": "text" | "json_object" | "json_schema", ...}: the form that OpenAI's chat completions
// ("json_schema": {"schema"}), its Responses and Anthropic's messages ("schema") have.
std::optional<AnswerRule> ReadFormat(ApiFields* fields, const char* name);

// A schema as an object, or as a text that is one.
std::optional<AnswerRule> SchemaRule(const nlohmann::ordered_json& schema, std::string field);
// Any JSON object.
AnswerRule ObjectRule(std::string field);

// Fails where the turn has what a constraint cannot go with.
void CheckGoesWith(const TurnOptions& turn, ApiFields* fields);

// Reads the rule of a text that is completed, and holds the turn to it.
void ReadTextRule(ApiFields* fields, const Model& model, TurnOptions* turn);

// Where an answer begins that goes on behind `begun`. Errors name the rule's field.
StatusOr<constraint::ConstraintState> BeginAnswer(const Model& model, const AnswerRule& rule,
                                                  std::string_view begun);

}  // namespace weft::serve

#endif  // WEFT_API_ANSWER_RULE_H_
