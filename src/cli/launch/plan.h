// What starting an agent takes, from its row in the table and the server's facts: variables,
// arguments and files. Pure functions; any thread.
#ifndef WEFT_CLI_LAUNCH_PLAN_H_
#define WEFT_CLI_LAUNCH_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/launch/agents.h"
#include "nlohmann/json.hpp"

namespace weft::cli {

// A server that is ready.
struct ServerFacts {
  std::string url;  // "http://127.0.0.1:8080"
  std::string key;  // empty: none
  std::string model;
  int64_t context_tokens = 0;
};

// The longest answer that an agent should ask for: an eighth of the context, more in a small one.
int64_t MaxOutputTokens(int64_t context_tokens);

struct LaunchPlan {
  std::string program;
  std::vector<std::string> arguments;
  // In the table's order; without a value: the agent gets no such variable.
  std::vector<std::pair<std::string, std::optional<std::string>>> variables;
  std::vector<std::pair<std::string, std::string>> files;  // name in the plan's folder, content
};

// A file of the user's for --write.
struct SettingsFile {
  std::string path;
  std::string content;
  bool merges = false;
};

// `folder`: where the plan's files will be. `user_arguments` follow the agent's own.
LaunchPlan MakePlan(const Agent& agent, const ServerFacts& server, std::string_view folder,
                    const std::vector<std::string>& user_arguments);

// `variable`: the user's environment; null if not set.
std::vector<SettingsFile> MakeSettings(const Agent& agent, const ServerFacts& server,
                                       const char* (*variable)(const char* name));

// A text of the table with the server's facts, such as Agent::start.
std::string WithFacts(std::string_view text, const Agent& agent, const ServerFacts& server);

// Shell commands that do what the plan says.
std::string ShellText(const Agent& agent, const ServerFacts& server,
                      const std::vector<std::string>& user_arguments);
nlohmann::json PlanJson(const Agent& agent, const ServerFacts& server, const LaunchPlan& plan);

}  // namespace weft::cli

#endif  // WEFT_CLI_LAUNCH_PLAN_H_
