#include "cli/launch/agents.h"

#include <algorithm>

namespace weft::cli {
namespace {

// --- Claude Code --------------------------------------------------------------------------------

// It shortens a conversation 13,000 tokens before the window less the longest answer. Below this
// context that is before its first prompt ends: it would summarise without end.
constexpr int64_t kClaudeCompacts = 32000;
// From this context on its own limits for what tools return fit.
constexpr int64_t kClaudeLarge = 200000;

constexpr AgentVariable kClaudeVariables[] = {
    {"ANTHROPIC_BASE_URL", "@url@"},
    {"ANTHROPIC_AUTH_TOKEN", "@key@"},
    {"ANTHROPIC_API_KEY", nullptr},  // it would ask whether to use it
    {"ANTHROPIC_MODEL", "@model@"},
    {"ANTHROPIC_SMALL_FAST_MODEL", "@model@"},
    {"ANTHROPIC_DEFAULT_HAIKU_MODEL", "@model@"},
    {"ANTHROPIC_DEFAULT_SONNET_MODEL", "@model@"},
    {"ANTHROPIC_DEFAULT_OPUS_MODEL", "@model@"},
    {"ANTHROPIC_DEFAULT_FABLE_MODEL", "@model@"},
    {"CLAUDE_CODE_SUBAGENT_MODEL", "@model@"},
    {"CLAUDE_CODE_MAX_CONTEXT_TOKENS", "@context@"},
    {"CLAUDE_CODE_MAX_OUTPUT_TOKENS", "@output@"},
    {"CLAUDE_CODE_FILE_READ_MAX_OUTPUT_TOKENS", "@output@", kClaudeLarge},
    {"MAX_MCP_OUTPUT_TOKENS", "@output@", kClaudeLarge},
    {"BASH_MAX_OUTPUT_LENGTH", "@output_chars@", kClaudeLarge},
    {"DISABLE_AUTO_COMPACT", "1", kClaudeCompacts},
    {"CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE", "@context@", kClaudeCompacts},
    {"CLAUDE_CODE_AUTO_COMPACT_WINDOW", nullptr},
    {"API_TIMEOUT_MS", "@patience_ms@"},
    {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
    {"CLAUDE_CODE_ATTRIBUTION_HEADER", "0"},  // differs between requests, at the prompt's beginning
    {"CLAUDE_CODE_USE_BEDROCK", nullptr},
    {"CLAUDE_CODE_USE_VERTEX", nullptr},
    {"CLAUDE_CODE_USE_FOUNDRY", nullptr},
};
constexpr AgentSettings kClaudeSettings[] = {
    {"CLAUDE_CONFIG_DIR", "settings.json", ".claude/settings.json", "{\"env\": @env@}", true}};

// --- Codex --------------------------------------------------------------------------------------

constexpr AgentVariable kCodexVariables[] = {{"WEFT_API_KEY", "@key@"}};
constexpr const char* kCodexArguments[] = {
    "-c",
    "model_provider=\"weft\"",
    "-c",
    "model=@\"model\"@",
    "-c",
    ("model_providers.weft={name=\"Weft\", base_url=@\"openai_url\"@, wire_api=\"responses\", "
     "env_key=\"WEFT_API_KEY\", stream_idle_timeout_ms=@patience_ms@}"),
    "-c",
    "model_context_window=@context@",
    "-c",
    "model_auto_compact_token_limit=@compact@",
    "-c",
    "tool_output_token_limit=@output@",
    "-c",
    "web_search=\"disabled\"",
};
constexpr AgentSettings kCodexSettings[] = {{"CODEX_HOME", "config.toml", ".codex/config.toml",
                                             R"(model_provider = "weft"
model = @"model"@
model_context_window = @context@
model_auto_compact_token_limit = @compact@
tool_output_token_limit = @output@
web_search = "disabled"

[model_providers.weft]
name = "Weft"
base_url = @"openai_url"@
wire_api = "responses"
http_headers = { Authorization = @"bearer"@ }
stream_idle_timeout_ms = @patience_ms@
)",
                                             false}};

// --- opencode -----------------------------------------------------------------------------------

constexpr char kOpencodeConfig[] = R"({
  "model": @"weft_model"@,
  "small_model": @"weft_model"@,
  "autoupdate": false,
  "provider": {
    "weft": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Weft",
      "options": {"baseURL": @"openai_url"@, "apiKey": @"key"@, "timeout": false},
      "models": {
        @"model"@: {"limit": {"context": @context@, "output": @output@}}
      }
    }
  }
}
)";

// Where its first prompt leaves no room for an answer it would shorten that and ask without end.
constexpr int64_t kOpencodeCompacts = 12000;

constexpr AgentVariable kOpencodeVariables[] = {
    {"OPENCODE_CONFIG_CONTENT", kOpencodeConfig},
    {"OPENCODE_DISABLE_AUTOCOMPACT", "1", kOpencodeCompacts},
};
constexpr AgentSettings kOpencodeSettings[] = {{"XDG_CONFIG_HOME", "opencode/opencode.json",
                                                ".config/opencode/opencode.json", kOpencodeConfig,
                                                true}};

// --- qwen-code ----------------------------------------------------------------------------------

constexpr char kQwenConfig[] = R"({
  "model": {
    "name": @"model"@,
    "generationConfig": {"contextWindowSize": @context@, "timeout": @patience_ms@}
  },
  "security": {
    "auth": {"selectedType": "openai", "baseUrl": @"openai_url"@, "apiKey": @"key"@}
  },
  "privacy": {"usageStatisticsEnabled": false}
}
)";

constexpr AgentVariable kQwenVariables[] = {
    {"QWEN_CODE_SYSTEM_SETTINGS_PATH", "@dir@/settings.json"},
    {"QWEN_CODE_MAX_OUTPUT_TOKENS", "@output@"},
    {"OPENAI_BASE_URL", "@openai_url@"},
    {"OPENAI_API_KEY", "@key@"},
    {"OPENAI_MODEL", "@model@"},
};
constexpr AgentFile kQwenFiles[] = {{"settings.json", kQwenConfig}};
constexpr AgentSettings kQwenSettings[] = {
    {"QWEN_HOME", "settings.json", ".qwen/settings.json", kQwenConfig, true}};

// --- pi -----------------------------------------------------------------------------------------

constexpr char kPiModels[] = R"({
  "providers": {
    "weft": {
      "name": "Weft",
      "baseUrl": @"openai_url"@,
      "api": "openai-completions",
      "apiKey": @"key"@,
      "models": [{
        "id": @"model"@,
        "name": @"model"@,
        "reasoning": false,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": @context@,
        "maxTokens": @output@
      }]
    }
  }
}
)";
constexpr AgentVariable kPiVariables[] = {{"PI_SKIP_VERSION_CHECK", "1"}, {"PI_TELEMETRY", "0"}};
// An extension beside the user's own: their sessions, keys and settings stay in use.
constexpr AgentFile kPiFiles[] = {{"models.json", kPiModels},
                                  {"weft.js", R"(import { readFileSync } from "node:fs";

export default function (pi) {
  const models = JSON.parse(readFileSync(new URL("models.json", import.meta.url), "utf8"));
  pi.registerProvider("weft", models.providers.weft);
}
)"}};
constexpr const char* kPiArguments[] = {"-e",   "@dir@/weft.js", "--provider",
                                        "weft", "--model",       "@model@"};
constexpr AgentSettings kPiSettings[] = {
    {"PI_CODING_AGENT_DIR", "models.json", ".pi/agent/models.json", kPiModels, true}};

// --- aider --------------------------------------------------------------------------------------

constexpr char kAiderModels[] = R"({
  @"litellm_model"@: {
    "litellm_provider": "openai",
    "mode": "chat",
    "max_input_tokens": @context@,
    "max_output_tokens": @output@,
    "max_tokens": @output@,
    "input_cost_per_token": 0,
    "output_cost_per_token": 0
  }
}
)";

constexpr AgentVariable kAiderVariables[] = {
    {"OPENAI_API_BASE", "@openai_url@"},
    {"OPENAI_API_KEY", "@key@"},
};
constexpr AgentFile kAiderFiles[] = {{"models.json", kAiderModels}};
constexpr const char* kAiderArguments[] = {
    "--model",         "@litellm_model@",       "--weak-model",
    "@litellm_model@", "--model-metadata-file", "@dir@/models.json",
    "--timeout",       "@patience_s@",          "--no-check-update"};
constexpr AgentSettings kAiderSettings[] = {
    {nullptr, nullptr, ".aider.model.metadata.json", kAiderModels, true},
    {nullptr, nullptr, ".aider.conf.yml",
     "model: @\"litellm_model\"@\nweak-model: @\"litellm_model\"@\n"
     "openai-api-base: @\"openai_url\"@\nopenai-api-key: @\"key\"@\ntimeout: @patience_s@\n",
     false}};

// --- Continue -----------------------------------------------------------------------------------

constexpr char kCnConfig[] = R"(name: Weft
version: 1.0.0
schema: v1
models:
  - name: @"model"@
    provider: openai
    model: @"model"@
    apiBase: @"openai_url"@
    apiKey: @"key"@
    roles: [chat, edit, apply, summarize]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: @context@
      maxTokens: @output@
)";

constexpr AgentFile kCnFiles[] = {{"config.yaml", kCnConfig}};
constexpr const char* kCnArguments[] = {"--config", "@dir@/config.yaml"};
constexpr AgentSettings kCnSettings[] = {
    {"CONTINUE_GLOBAL_DIR", "config.yaml", ".continue/config.yaml", kCnConfig, false}};

constexpr Agent kAgents[] = {
    {.name = "claude",
     .title = "Claude Code",
     .program = "claude",
     .install = "npm install -g @anthropic-ai/claude-code",
     .opening_tokens = 12000,
     .avoids = "claude",
     .variables = kClaudeVariables,
     .settings = kClaudeSettings,
     .start = "claude"},
    {.name = "codex",
     .title = "Codex",
     .program = "codex",
     .install = "npm install -g @openai/codex",
     .opening_tokens = 8600,
     .variables = kCodexVariables,
     .arguments = kCodexArguments,
     .settings = kCodexSettings,
     .start = "codex"},
    {.name = "opencode",
     .title = "opencode",
     .program = "opencode",
     .install = "npm install -g opencode-ai",
     .opening_tokens = 7300,
     .variables = kOpencodeVariables,
     .settings = kOpencodeSettings,
     .start = "opencode"},
    {.name = "qwen",
     .title = "qwen-code",
     .program = "qwen",
     .install = "npm install -g @qwen-code/qwen-code",
     .opening_tokens = 18000,
     .variables = kQwenVariables,
     .files = kQwenFiles,
     .settings = kQwenSettings,
     .start = "qwen"},
    {.name = "pi",
     .title = "pi",
     .program = "pi",
     .install = "npm install -g @earendil-works/pi-coding-agent",
     .opening_tokens = 1300,
     .variables = kPiVariables,
     .arguments = kPiArguments,
     .files = kPiFiles,
     .settings = kPiSettings,
     .start = "pi --provider weft --model @model@"},
    {.name = "aider",
     .title = "aider",
     .program = "aider",
     .install = "pip install aider-chat",
     .opening_tokens = 1000,
     .variables = kAiderVariables,
     .arguments = kAiderArguments,
     .files = kAiderFiles,
     .settings = kAiderSettings,
     .start = "aider"},
    {.name = "cn",
     .title = "Continue",
     .program = "cn",
     .install = "npm install -g @continuedev/cli",
     .opening_tokens = 2300,
     .arguments = kCnArguments,
     .files = kCnFiles,
     .settings = kCnSettings,
     .start = "cn"},
};

}  // namespace

std::span<const Agent> Agents() { return kAgents; }

const Agent* FindAgent(std::string_view name) {
  const auto found = std::find_if(std::begin(kAgents), std::end(kAgents),
                                  [name](const Agent& agent) { return agent.name == name; });
  return found == std::end(kAgents) ? nullptr : &*found;
}

}  // namespace weft::cli
