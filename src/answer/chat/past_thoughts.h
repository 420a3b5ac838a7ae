// Whether the model sees the reasoning of earlier turns again.
//
// Templates of reasoning models print the reasoning of messages before the last user message only
// if a variable says so, and call that variable by different names. Without it, each new user
// message changes the prompt from the first earlier thought on.
//
// Pure functions; any thread.
#ifndef WEFT_ANSWER_CHAT_PAST_THOUGHTS_H_
#define WEFT_ANSWER_CHAT_PAST_THOUGHTS_H_

#include <optional>
#include <span>
#include <string_view>

#include "nlohmann/json.hpp"

namespace weft {

enum class PastThoughts {
  kDefault,  // nobody asked: kept, where the template can
  kKeep,
  kClear,
};

// A template variable that decides it: with the value `keep` earlier reasoning is shown, with its
// opposite it is not.
struct PastThoughtsVariable {
  const char* name;
  bool keep;

  bool ValueFor(PastThoughts wish) const { return (wish != PastThoughts::kClear) == keep; }
};

// All names known: those of public templates, and llama-server's preserve_reasoning for any of
// them.
std::span<const PastThoughtsVariable> PastThoughtsVariables();
bool IsPastThoughtsVariable(std::string_view name);

// What `variables`, an object, ask for under any of the names, whichever the template knows. The
// first name of the list that has a boolean counts.
PastThoughts PastThoughtsIn(const nlohmann::ordered_json& variables);

// For /props and weft show: {"kept": whether they are shown by default, "variable": name or null,
// "keep": value, "clear": value}.
nlohmann::ordered_json PastThoughtsJson(bool kept,
                                        const std::optional<PastThoughtsVariable>& variable);

}  // namespace weft

#endif  // WEFT_ANSWER_CHAT_PAST_THOUGHTS_H_
