// Options about replies: how long they think, the chat template's variables, and the handling of a
// full context.
#ifndef WEFT_CLI_FLAGS_REPLY_FLAGS_H_
#define WEFT_CLI_FLAGS_REPLY_FLAGS_H_

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "answer/thinking.h"
#include "nlohmann/json.hpp"

namespace weft::cli {

struct ReplyFlags {
  std::string reasoning = "auto";
  int64_t reasoning_budget = -1;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // for the chat template
  std::string reasoning_budget_message = {};
};

void AddReplyFlags(CLI::App* app, ReplyFlags* flags);
// For commands that render conversations. `flags` must outlive the parsing.
void AddTemplateVariableFlags(CLI::App* app, ReplyFlags* flags);
serve::ThinkingDefaults ThinkingOf(const ReplyFlags& flags);

}  // namespace weft::cli

#endif  // WEFT_CLI_FLAGS_REPLY_FLAGS_H_
