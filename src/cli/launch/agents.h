// The coding agents that weft launch knows, as data: how each is told its server, model and window.
//
// Texts hold places for the server's facts: @url@, @openai_url@ (with /v1), @key@, @model@,
// @context@ and @output@ (tokens of the context and of the longest answer), @compact@ (tokens after
// which a conversation is to be shortened), @output_chars@, @patience_ms@ and
// @patience_s@ (an hour, for a long prompt on a slow machine), @bearer@, @weft_model@ and
// @litellm_model@ (with a prefix), @dir@ (the folder of the files) and
// @env@ (the variables as a JSON object). @"name"@ is the same as a quoted string, which JSON, TOML
// and YAML read alike. Constants; any thread.
#ifndef WEFT_CLI_LAUNCH_AGENTS_H_
#define WEFT_CLI_LAUNCH_AGENTS_H_

#include <cstdint>
#include <span>
#include <string_view>

namespace weft::cli {

struct AgentVariable {
  const char* name;
  const char* value;          // null: the agent gets no such variable, whatever the user has set
  int64_t below_context = 0;  // only with a context smaller than this; 0: always
};

// A file that exists while the agent runs.
struct AgentFile {
  const char* name;
  const char* content;
};

// A file of the user's that the agent reads by itself, for --write.
struct AgentSettings {
  const char*
      folder_variable;    // names the folder that `path` is in; null or unset: the home folder
  const char* path;       // in the folder of the variable
  const char* home_path;  // in the home folder
  const char* content;
  bool merges;  // JSON: merged into a file that exists; otherwise such a file is left as it is
};

struct Agent {
  const char* name;              // "claude"
  const char* title;             // "Claude Code"
  const char* program;           // found on PATH
  const char* install;           // the command that installs it
  int64_t opening_tokens;        // about what its first prompt takes
  const char* avoids = nullptr;  // a model whose name contains this is called "weft" instead
  std::span<const AgentVariable> variables = {};
  std::span<const char* const> arguments = {};  // before the user's
  std::span<const AgentFile> files = {};
  std::span<const AgentSettings> settings = {};
  const char* start;  // the command that uses the written settings
};

std::span<const Agent> Agents();
// Null if there is none.
const Agent* FindAgent(std::string_view name);

}  // namespace weft::cli

#endif  // WEFT_CLI_LAUNCH_AGENTS_H_
