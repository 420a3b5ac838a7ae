#include "cli/launch/plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// With every character that JSON or a shell would misread.
constexpr char kOddModel[] = "a\"b'c\\d $x";

ServerFacts Server(int64_t context, std::string model = "qwen", std::string key = "") {
  return {.url = "http://127.0.0.1:8080",
          .key = std::move(key),
          .model = std::move(model),
          .context_tokens = context};
}

LaunchPlan Plan(const char* agent, const ServerFacts& server) {
  return MakePlan(*FindAgent(agent), server, "/tmp/x", {"-p", "hi"});
}

std::optional<std::string> Value(const LaunchPlan& plan, std::string_view name) {
  for (const auto& [known, value] : plan.variables) {
    if (known == name) return value;
  }
  return "(left as it is)";
}

TEST(PlanTest, AnAnswerIsAnEighthOfTheContextAndMoreInASmallOne) {
  EXPECT_EQ(MaxOutputTokens(1), 1);
  EXPECT_EQ(MaxOutputTokens(4096), 1024);
  EXPECT_EQ(MaxOutputTokens(16384), 4096);
  EXPECT_EQ(MaxOutputTokens(32768), 4096);
  EXPECT_EQ(MaxOutputTokens(131072), 16384);
  EXPECT_EQ(MaxOutputTokens(1 << 20), 32000);
}

TEST(PlanTest, ClaudeGetsTheWindowThroughVariables) {
  const LaunchPlan plan = Plan("claude", Server(32768, "qwen", "secret"));
  EXPECT_EQ(plan.program, "claude");
  EXPECT_THAT(plan.arguments, ElementsAre("-p", "hi"));
  EXPECT_TRUE(plan.files.empty());
  EXPECT_EQ(Value(plan, "ANTHROPIC_BASE_URL"), "http://127.0.0.1:8080");
  EXPECT_EQ(Value(plan, "ANTHROPIC_AUTH_TOKEN"), "secret");
  EXPECT_EQ(Value(plan, "ANTHROPIC_API_KEY"), std::nullopt);
  EXPECT_EQ(Value(plan, "ANTHROPIC_MODEL"), "qwen");
  EXPECT_EQ(Value(plan, "CLAUDE_CODE_MAX_CONTEXT_TOKENS"), "32768");
  EXPECT_EQ(Value(plan, "CLAUDE_CODE_MAX_OUTPUT_TOKENS"), "4096");
  EXPECT_EQ(Value(plan, "BASH_MAX_OUTPUT_LENGTH"), "12288");
  EXPECT_EQ(Value(plan, "DISABLE_AUTO_COMPACT"), "(left as it is)");
}

TEST(PlanTest, ClaudeDoesNotSummariseWhereItsFirstPromptWouldNotFitBeforeThat) {
  const LaunchPlan plan = Plan("claude", Server(16384));
  EXPECT_EQ(Value(plan, "DISABLE_AUTO_COMPACT"), "1");
  EXPECT_EQ(Value(plan, "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE"), "16384");
  const LaunchPlan large = Plan("claude", Server(262144));
  EXPECT_EQ(Value(large, "MAX_MCP_OUTPUT_TOKENS"), "(left as it is)");
}

TEST(PlanTest, ClaudeHeedsTheWindowOnlyOfAModelThatIsNoClaude) {
  const LaunchPlan plan = Plan("claude", Server(32768, "My-Claude-3"));
  EXPECT_EQ(Value(plan, "ANTHROPIC_MODEL"), "weft");
  EXPECT_EQ(Value(plan, "CLAUDE_CODE_SUBAGENT_MODEL"), "weft");
}

TEST(PlanTest, CodexGetsArgumentsBeforeTheUsers) {
  const LaunchPlan plan = Plan("codex", Server(32768));
  EXPECT_THAT(
      plan.arguments,
      ElementsAre("-c", "model_provider=\"weft\"", "-c", "model=\"qwen\"", "-c",
                  "model_providers.weft={name=\"Weft\", base_url=\"http://127.0.0.1:8080/v1\", "
                  "wire_api=\"responses\", env_key=\"WEFT_API_KEY\", "
                  "stream_idle_timeout_ms=3600000}",
                  "-c", "model_context_window=32768", "-c", "model_auto_compact_token_limit=28672",
                  "-c", "tool_output_token_limit=4096", "-c", "web_search=\"disabled\"", "-p",
                  "hi"));
  EXPECT_EQ(Value(plan, "WEFT_API_KEY"), "none");
}

TEST(PlanTest, OpencodeGetsItsConfigurationInAVariable) {
  const auto config = nlohmann::json::parse(
      Value(Plan("opencode", Server(8192, kOddModel)), "OPENCODE_CONFIG_CONTENT").value());
  EXPECT_EQ(config["model"], std::string("weft/") + kOddModel);
  const auto& provider = config["provider"]["weft"];
  EXPECT_EQ(provider["npm"], "@ai-sdk/openai-compatible");
  EXPECT_EQ(provider["options"]["baseURL"], "http://127.0.0.1:8080/v1");
  EXPECT_EQ(provider["models"][kOddModel]["limit"],
            nlohmann::json({{"context", 8192}, {"output", 2048}}));
  EXPECT_EQ(Value(Plan("opencode", Server(8192)), "OPENCODE_DISABLE_AUTOCOMPACT"), "1");
  EXPECT_EQ(Value(Plan("opencode", Server(32768)), "OPENCODE_DISABLE_AUTOCOMPACT"),
            "(left as it is)");
}

TEST(PlanTest, QwenAndAiderGetAFileInThePlansFolder) {
  const LaunchPlan qwen = Plan("qwen", Server(65536, kOddModel));
  EXPECT_EQ(Value(qwen, "QWEN_CODE_SYSTEM_SETTINGS_PATH"), "/tmp/x/settings.json");
  EXPECT_EQ(Value(qwen, "QWEN_CODE_MAX_OUTPUT_TOKENS"), "8192");
  ASSERT_EQ(qwen.files.size(), 1u);
  EXPECT_EQ(qwen.files[0].first, "settings.json");
  const auto settings = nlohmann::json::parse(qwen.files[0].second);
  EXPECT_EQ(settings["model"]["name"], kOddModel);
  EXPECT_EQ(settings["model"]["generationConfig"]["contextWindowSize"], 65536);

  const LaunchPlan aider = Plan("aider", Server(8192));
  EXPECT_THAT(aider.arguments, ElementsAre("--model", "openai/qwen", "--weak-model", "openai/qwen",
                                           "--model-metadata-file", "/tmp/x/models.json",
                                           "--timeout", "3600", "--no-check-update", "-p", "hi"));
  const auto models = nlohmann::json::parse(aider.files[0].second);
  EXPECT_EQ(models["openai/qwen"]["max_input_tokens"], 8192);
  EXPECT_EQ(models["openai/qwen"]["max_output_tokens"], 2048);
}

TEST(PlanTest, PiAndContinueGetAFileByAnArgument) {
  const LaunchPlan pi = Plan("pi", Server(8192));
  EXPECT_THAT(pi.arguments, ElementsAre("-e", "/tmp/x/weft.js", "--provider", "weft", "--model",
                                        "qwen", "-p", "hi"));
  ASSERT_EQ(pi.files.size(), 2u);
  EXPECT_EQ(pi.files[1].first, "weft.js");
  const auto models = nlohmann::json::parse(pi.files[0].second);
  EXPECT_EQ(models["providers"]["weft"]["models"][0]["contextWindow"], 8192);

  const LaunchPlan cn = Plan("cn", Server(8192, kOddModel));
  EXPECT_THAT(cn.arguments, ElementsAre("--config", "/tmp/x/config.yaml", "-p", "hi"));
  EXPECT_THAT(cn.files[0].second, HasSubstr("model: \"a\\\"b'c\\\\d $x\"\n"));
  EXPECT_THAT(cn.files[0].second, HasSubstr("contextLength: 8192\n"));
}

TEST(PlanTest, NoPlaceIsLeftEmpty) {
  for (const Agent& agent : Agents()) {
    const ServerFacts server = Server(32768);
    const LaunchPlan plan = MakePlan(agent, server, "/tmp/x", {});
    std::string all = PlanJson(agent, server, plan).dump() + WithFacts(agent.start, agent, server);
    for (const SettingsFile& file :
         MakeSettings(agent, server, [](const char*) -> const char* { return "/home/u"; })) {
      all += file.path + file.content;
      EXPECT_EQ(nlohmann::json::parse(file.content, nullptr, false).is_object(), file.merges)
          << file.path;
    }
    // The only @ that is text.
    for (size_t at; (at = all.find("@ai-sdk")) != all.npos;) all.erase(at, 1);
    EXPECT_THAT(all, Not(HasSubstr("@"))) << agent.name;
    EXPECT_THAT(all, HasSubstr("32768")) << agent.name;
  }
}

TEST(PlanTest, SettingsGoWhereTheAgentReadsThem) {
  const auto claude =
      MakeSettings(*FindAgent("claude"), Server(32768), [](const char* name) -> const char* {
        return std::string_view(name) == "HOME" ? "/home/u" : nullptr;
      });
  ASSERT_EQ(claude.size(), 1u);
  EXPECT_EQ(claude[0].path, "/home/u/.claude/settings.json");
  const auto env = nlohmann::json::parse(claude[0].content)["env"];
  EXPECT_EQ(env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], "32768");
  EXPECT_FALSE(env.contains("ANTHROPIC_API_KEY"));

  const auto codex = MakeSettings(*FindAgent("codex"), Server(32768),
                                  [](const char*) -> const char* { return "/elsewhere"; });
  EXPECT_EQ(codex[0].path, "/elsewhere/config.toml");
  EXPECT_FALSE(codex[0].merges);
}

TEST(PlanTest, AShellReadsWhatIsPrinted) {
  const std::string text = ShellText(*FindAgent("qwen"), Server(8192, "it's"), {"-p", "a 'b'"});
  EXPECT_THAT(text, HasSubstr("dir=$(mktemp -d)\ncat > \"$dir\"/settings.json <<'END_OF_FILE'\n"));
  EXPECT_THAT(text,
              HasSubstr("export QWEN_CODE_SYSTEM_SETTINGS_PATH=''\"$dir\"'/settings.json'\n"));
  EXPECT_THAT(text, HasSubstr("export OPENAI_MODEL='it'\\''s'\n"));
  EXPECT_THAT(text, HasSubstr("\nqwen '-p' 'a '\\''b'\\'''\n"));
  EXPECT_THAT(ShellText(*FindAgent("claude"), Server(8192), {}),
              HasSubstr("\nunset ANTHROPIC_API_KEY\n"));
}

}  // namespace
}  // namespace weft::cli
