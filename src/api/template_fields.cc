#include "api/template_fields.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/strings.h"
#include "chat/template_variables.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr char kKwargs[] = "chat_template_kwargs";

}  // namespace

void ReadTemplateKwargs(ApiFields* fields, ChatCall* call) {
  const ordered_json* const given = fields->Value(kKwargs);
  if (given == nullptr) return;
  if (!given->is_object()) return fields->Fail(kKwargs, "must be an object");
  if (const char* const name = ReservedVariableIn(*given)) {
    return fields->Unsupported(kKwargs, StrCat("cannot set ", name));
  }
  ordered_json& variables = call->chat.variables;
  variables = *given;
  call->chat.past_thoughts = PastThoughtsIn(variables);
  const auto it = variables.find("return_reasoning");
  if (it == variables.end()) return;
  if (!it->is_boolean())
    return fields->Fail(kKwargs, "has a return_reasoning that is not a boolean");
  call->show_reasoning = it->get<bool>();
  variables.erase("return_reasoning");
}

void SetReasoningEffort(std::string_view effort, ordered_json* variables) {
  if (effort == "none") {
    SetMissing("enable_thinking", false, variables);
  } else {
    SetMissing("reasoning_effort", effort, variables);
  }
}

void ReadThoughtLimit(ApiFields* fields, const ThinkingDefaults& defaults, ChatCall* call) {
  std::optional<int64_t> most;
  for (const char* const name :
       {"thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget"}) {
    const auto given = fields->Integer(name, -1, std::numeric_limits<int32_t>::max());
    if (given && most && *given != *most) {
      fields->Fail(name, "is another name for thinking_budget_tokens; use only one of them");
    }
    if (!most) most = given;
  }
  call->thought.tokens = most.value_or(defaults.limit.tokens);
  ReadThoughtMessage(fields, defaults, call);
  SetThinking(defaults, call->thought, &call->chat);
}

void ReadThoughtMessage(ApiFields* fields, const ThinkingDefaults& defaults, ChatCall* call) {
  constexpr char kName[] = "reasoning_budget_message";
  constexpr size_t kMostBytes = 4096;
  call->thought.message = fields->String(kName).value_or(defaults.limit.message);
  if (call->thought.message.size() > kMostBytes) {
    fields->Fail(kName, StrCat("is longer than ", kMostBytes, " bytes; one sentence is enough"));
  }
}

}  // namespace weft::serve
