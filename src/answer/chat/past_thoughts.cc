#include "answer/chat/past_thoughts.h"

#include <algorithm>

namespace weft {

std::span<const PastThoughtsVariable> PastThoughtsVariables() {
  static constexpr PastThoughtsVariable kVariables[] = {
      {"preserve_thinking", true},           // Qwen 3.6 and later, Kimi K2.6, LFM2.5
      {"clear_thinking", false},             // GLM 4.7 and later
      {"truncate_history_thinking", false},  // Nemotron 3
      {"drop_thinking", false},              // DeepSeek V4
      {"keep_past_thinking", true},          // LFM2.5, before
      {"keep_all_reasoning", true},          // MiMo V2.5
      {"preserve_reasoning", true},
  };
  return kVariables;
}

bool IsPastThoughtsVariable(std::string_view name) {
  return std::ranges::any_of(PastThoughtsVariables(), [&](const PastThoughtsVariable& variable) {
    return variable.name == name;
  });
}

PastThoughts PastThoughtsIn(const nlohmann::ordered_json& variables) {
  for (const PastThoughtsVariable& variable : PastThoughtsVariables()) {
    const auto it = variables.find(variable.name);
    if (it == variables.end() || !it->is_boolean()) continue;
    return it->get<bool>() == variable.keep ? PastThoughts::kKeep : PastThoughts::kClear;
  }
  return PastThoughts::kDefault;
}

nlohmann::ordered_json PastThoughtsJson(bool kept,
                                        const std::optional<PastThoughtsVariable>& variable) {
  if (!variable) return {{"kept", kept}, {"variable", nullptr}};
  return {{"kept", kept},
          {"variable", variable->name},
          {"keep", variable->ValueFor(PastThoughts::kKeep)},
          {"clear", variable->ValueFor(PastThoughts::kClear)}};
}

}  // namespace weft
