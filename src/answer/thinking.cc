#include "answer/thinking.h"

#include <utility>

#include "answer/chat/past_thoughts.h"

namespace weft::serve {
namespace {

// A wish of the request under one name is not undone by the operator's under another.
bool IsDecided(std::string_view name, const ChatRequest& chat) {
  if (name == "thinking") return chat.variables.contains("enable_thinking");
  return chat.past_thoughts != PastThoughts::kDefault && IsPastThoughtsVariable(name);
}

}  // namespace

void SetMissing(std::string_view name, nlohmann::ordered_json value,
                nlohmann::ordered_json* variables) {
  if (!variables->contains(name)) (*variables)[std::string(name)] = std::move(value);
}

void SetThinking(const ThinkingDefaults& defaults, const ThoughtLimit& limit, ChatRequest* chat) {
  nlohmann::ordered_json& variables = chat->variables;
  if (limit.tokens >= 0) SetMissing("thinking_budget", limit.tokens, &variables);
  if (limit.tokens == 0) SetMissing("enable_thinking", false, &variables);
  for (const auto& [name, value] : defaults.variables.items()) {
    if (!IsDecided(name, *chat)) SetMissing(name, value, &variables);
  }
  if (chat->past_thoughts == PastThoughts::kDefault) {
    chat->past_thoughts = PastThoughtsIn(variables);
  }
  if (defaults.thinks) SetMissing("enable_thinking", *defaults.thinks, &variables);
}

}  // namespace weft::serve
