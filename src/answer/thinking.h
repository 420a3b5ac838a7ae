// How a model thinks before it answers, and what the chat template is told about it. Values and
// pure functions; any thread.
#ifndef WEFT_ANSWER_THINKING_H_
#define WEFT_ANSWER_THINKING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "answer/chat/chat_format.h"
#include "nlohmann/json.hpp"

namespace weft::serve {

struct ThoughtLimit {
  int64_t tokens = -1;  // a longer thought is ended; -1: no limit; 0: no thought
  // The thought's last words where it is ended, so that the model does not go on thinking in its
  // answer. May be empty.
  std::string message = {};
};

// For conversations that do not say.
struct ThinkingDefaults {
  // Whether templates that support it are told to think; unset: yes, except in APIs with another
  // default.
  std::optional<bool> thinks = {};
  ThoughtLimit limit = {};
  // Variables of the chat template, an object.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

// Sets a variable that is not set yet.
void SetMissing(std::string_view name, nlohmann::ordered_json value,
                nlohmann::ordered_json* variables);

// Fills in the variables and the past thoughts that a conversation leaves open: a limit of 0 turns
// thinking off if the template can; then the defaults count.
void SetThinking(const ThinkingDefaults& defaults, const ThoughtLimit& limit, ChatRequest* chat);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_THINKING_H_
