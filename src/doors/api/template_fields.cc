#include "doors/api/template_fields.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer/chat/template_variables.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using nlohmann::ordered_json;

constexpr char kKwargs[] = "chat_template_kwargs";

std::optional<Continuation> ReadContinuation(ApiFields* fields) {
  constexpr char kName[] = "continue_final_message";
  const ordered_json* const value = fields->Value(kName);
  if (value == nullptr) return std::nullopt;
  if (*value == true) return Continuation::kAuto;
  if (*value == "content") return Continuation::kContent;
  if (*value == "reasoning_content") return Continuation::kReasoning;
  if (*value != false) {
    fields->Fail(kName, "must be true, false, \"content\" or \"reasoning_content\"");
  }
  return Continuation::kNone;
}

}  // namespace

void ReadTemplateKwargs(ApiFields* fields, Ask* ask) {
  const ordered_json* const given = fields->Value(kKwargs);
  if (given == nullptr) return;
  if (!given->is_object()) return fields->Fail(kKwargs, "must be an object");
  if (const char* const name = ReservedVariableIn(*given)) {
    return fields->Unsupported(kKwargs, StrCat("cannot set ", name));
  }
  ordered_json& variables = ask->chat.variables;
  variables = *given;
  ask->chat.past_thoughts = PastThoughtsIn(variables);
  const auto it = variables.find("return_reasoning");
  if (it == variables.end()) return;
  if (!it->is_boolean())
    return fields->Fail(kKwargs, "has a return_reasoning that is not a boolean");
  ask->show_reasoning = it->get<bool>();
  variables.erase("return_reasoning");
}

void SetReasoningEffort(std::string_view effort, ordered_json* variables) {
  if (effort == "none") {
    SetMissing("enable_thinking", false, variables);
  } else {
    SetMissing("reasoning_effort", effort, variables);
  }
}

void ReadThoughtLimit(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask) {
  std::optional<int64_t> most;
  for (const char* const name :
       {"thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget"}) {
    const auto given = fields->Integer(name, -1, std::numeric_limits<int32_t>::max());
    if (given && most && *given != *most) {
      fields->Fail(name, "is another name for thinking_budget_tokens; use only one of them");
    }
    if (!most) most = given;
  }
  ask->thought.tokens = most.value_or(defaults.limit.tokens);
  ReadThoughtMessage(fields, defaults, ask);
  SetThinking(defaults, ask->thought, &ask->chat);
}

void ReadThoughtMessage(ApiFields* fields, const ThinkingDefaults& defaults, Ask* ask) {
  constexpr char kName[] = "reasoning_budget_message";
  constexpr size_t kMaxBytes = 4096;
  ask->thought.message = fields->String(kName).value_or(defaults.limit.message);
  if (ask->thought.message.size() > kMaxBytes) {
    fields->Fail(kName, StrCat("is longer than ", kMaxBytes, " bytes; one sentence is enough"));
  }
}

void ReadEnding(ApiFields* fields, ChatRequest* chat) {
  const auto begin = fields->Bool("add_generation_prompt");
  const auto go_on = ReadContinuation(fields);
  const bool must_go_on = go_on.value_or(Continuation::kNone) != Continuation::kNone;
  if (begin.value_or(false) && must_go_on) {
    return fields->Fail("continue_final_message", "and add_generation_prompt cannot both be true");
  }
  const std::vector<ChatMessage>& messages = chat->conversation.messages;
  const bool is_begun = !messages.empty() && messages.back().role == Role::kAssistant &&
                        messages.back().calls.empty();
  if (must_go_on && !is_begun) {
    return fields->Fail("continue_final_message", "needs a final assistant message without calls");
  }
  chat->continuation = go_on.value_or(is_begun ? Continuation::kAuto : Continuation::kNone);
  chat->add_generation_prompt = begin.value_or(true);
  if (chat->continuation != Continuation::kNone && messages.size() > 1 &&
      messages[messages.size() - 2].role == Role::kAssistant) {
    fields->Fail("messages",
                 "ends with two assistant messages: merge them to have the result continued, or "
                 "set continue_final_message to false");
  }
}

}  // namespace weft::serve
