// Whoever asks learns what was found of a prompt and why not more, in the form of each API, and
// never anything of another key's prompts.
#include "answer/cache_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using ::testing::Not;
using Json = nlohmann::ordered_json;

class CacheReportApiTest : public testing::ApiTest {
 protected:
  static Json User(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static Json Assistant(const std::string& text) {
    return {{"role", "assistant"}, {"content", text}};
  }
  // A chat of two turns under a system prompt with a date.
  static Json Dated(const std::string& day, const std::string& topic) {
    return {
        {"messages", Json::array({{{"role", "system"},
                                   {"content", "You help with " + topic + ".\nToday is 2026-11-" +
                                                   day + ".\nYou are brief."}},
                                  User("Tell me of the loom, at some length please."),
                                  Say("So it is.")})},
        {"cache_report", true}};
  }
  // As a tenant of the test's own, who has sent nothing yet.
  static MemoryResponder Ask(std::string_view path, const Json& body, HttpHeaders headers = {}) {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    return Post(path, body, std::move(headers), test->name());
  }
  static Json ReportOf(const MemoryResponder& response) {
    EXPECT_EQ(response.status(), 200) << response.body();
    return response.json()["usage"]["cache_report"];
  }
};

TEST_F(CacheReportApiTest, ChangedDateInTheSystemPrompt) {
  const Json first = ReportOf(Ask(kChat, Dated("27", "dates")));
  EXPECT_EQ(first["reason"], "first_prompt");
  EXPECT_FALSE(first.contains("difference"));
  const auto response = Ask(kChat, Dated("28", "dates"));
  const Json report = ReportOf(response);
  EXPECT_EQ(report["reason"], "system_changed");
  EXPECT_EQ(report["difference"]["item"], "system");
  EXPECT_EQ(report["difference"]["change"], "changed");
  EXPECT_EQ(report["difference"]["before"], "Today is 2026-11-27.");
  EXPECT_EQ(report["difference"]["now"], "Today is 2026-11-28.");
  EXPECT_EQ(report["difference"]["token"], report["common_tokens"]);
  EXPECT_EQ(report["found_tokens"].get<int>() + report["computed_tokens"].get<int>(),
            report["prompt_tokens"]);
  EXPECT_EQ(report["found_tokens"], report["common_tokens"]);
  EXPECT_THAT(report["sentence"], HasSubstr("a date in the system prompt changed"));
  EXPECT_THAT(response.Header("X-Weft-Cache"), HasSubstr("reason=system_changed"));
  // The same once more: all but the last token is there.
  const Json again = ReportOf(Ask(kChat, Dated("28", "dates")));
  EXPECT_EQ(again["reason"], "nothing_missed");
  EXPECT_EQ(again["computed_tokens"], 1);
}

TEST_F(CacheReportApiTest, OnlyWhoAsksIsTold) {
  Json body = Dated("27", "quiet");
  body.erase("cache_report");
  const auto response = Ask(kChat, body);
  EXPECT_FALSE(response.json()["usage"].contains("cache_report"));
  EXPECT_THAT(response.Header("X-Weft-Cache"), HasSubstr("found="));
  EXPECT_EQ(ReportOf(Ask(kChat, body, {{"X-Weft-Cache-Report", "1"}}))["reason"], "nothing_missed");
  body["cache_report"] = "yes";
  EXPECT_EQ(Ask(kChat, body).status(), 400);
}

TEST_F(CacheReportApiTest, WhatTheEngineDroppedWasEvicted) {
  Ask(kChat, Dated("27", "drops"));
  ASSERT_TRUE(host().engine().DropPrefixes().ok());
  const Json report = ReportOf(Ask(kChat, Dated("27", "drops")));
  EXPECT_EQ(report["reason"], "evicted");
  EXPECT_EQ(report["found_tokens"], 0);
  EXPECT_GT(report["common_tokens"], 20);
}

TEST_F(CacheReportApiTest, ReorderedTools) {
  const auto tool = [](const char* name) {
    Json made = WeatherTool();
    made["function"]["name"] = name;
    return made;
  };
  Json body = Dated("27", "tools");
  body["tools"] = {tool("read"), tool("write"), tool("list")};
  Ask(kChat, body);
  body["tools"] = {tool("read"), tool("list"), tool("write")};
  const Json report = ReportOf(Ask(kChat, body));
  EXPECT_EQ(report["reason"], "tools_reordered");
  EXPECT_EQ(report["difference"]["item"], "tools[1]");
  EXPECT_EQ(report["difference"]["name"], "list");
  body["chat_template_kwargs"] = {{"enable_thinking", false}};
  const Json variable = ReportOf(Ask(kChat, body));
  EXPECT_EQ(variable["reason"], "variable_changed");
  EXPECT_EQ(variable["difference"]["item"], "variables.enable_thinking");
}

TEST_F(CacheReportApiTest, StreamsTellItAtTheirEnd) {
  Json body = Dated("27", "streams");
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const auto events = Ask(kChat, body).Events();
  ASSERT_GE(events.size(), 2u);
  const Json last = events[events.size() - 2].json();
  EXPECT_EQ(last["usage"]["cache_report"]["reason"], "first_prompt");
}

// Results of tools are messages of their own for a template; a client counts its own.
TEST_F(CacheReportApiTest, AnthropicsMessagesAreCountedAsTheClientDoes) {
  const auto chat = [](const char* last) {
    const Json call = {
        {"type", "tool_use"}, {"id", "t1"}, {"name", "read"}, {"input", Json::object()}};
    const Json call2 = {
        {"type", "tool_use"}, {"id", "t2"}, {"name", "read"}, {"input", Json::object()}};
    const auto out = [](const char* id, const char* text) {
      return Json{{"type", "tool_result"}, {"tool_use_id", id}, {"content", text}};
    };
    return Json{{"system", "You read files, in the order of their names."},
                {"max_tokens", 8},
                {"cache_report", true},
                {"messages",
                 Json::array({User("Read both files."),
                              {{"role", "assistant"}, {"content", {call, call2}}},
                              {{"role", "user"}, {"content", {out("t1", "one"), out("t2", "two")}}},
                              Assistant("Both are read."),
                              User(last)})}};
  };
  Ask(kMessages, chat("Which is longer, the first or the second?"));
  const auto response = Ask(kMessages, chat("Which is shorter, the first or the second?"));
  const Json report = ReportOf(response);
  EXPECT_EQ(report["reason"], "messages_changed");
  EXPECT_EQ(report["difference"]["item"], "messages[4].content");
}

TEST_F(CacheReportApiTest, AnthropicsOwnForm) {
  Json body = {{"system", "You weave. Today is Monday."},
               {"max_tokens", 8},
               {"messages", Json::array({User("How does a loom work, in a few words?")})},
               {"diagnostics", {{"previous_message_id", nullptr}}}};
  const Json first = Ask(kMessages, body).json();
  EXPECT_TRUE(first.contains("diagnostics"));
  EXPECT_TRUE(first["diagnostics"].is_null());
  body["diagnostics"]["previous_message_id"] = "msg_1";
  EXPECT_TRUE(Ask(kMessages, body).json()["diagnostics"].is_null());
  body["system"] = "You weave. Today is Tuesday.";
  const Json reason = Ask(kMessages, body).json()["diagnostics"]["cache_miss_reason"];
  EXPECT_EQ(reason["type"], "system_changed");
  EXPECT_GT(reason["cache_missed_input_tokens"], 10);
  body["system"] = "You weave. Today is Friday.";
  body["stream"] = true;
  const auto events = Ask(kMessages, body).Events();
  EXPECT_EQ(events[0].json()["message"]["diagnostics"]["cache_miss_reason"]["type"],
            "system_changed");
  body["diagnostics"] = "all";
  EXPECT_EQ(Ask(kMessages, body).status(), 400);
}

TEST_F(CacheReportApiTest, OpenAisOwnForm) {
  Json body = {{"instructions", "You spin. Today is Monday."},
               {"max_output_tokens", 8},
               {"input", Json::array({User("How does a wheel work, in a few words?")})},
               {"prompt_cache_options", {{"comparison_response_id", "resp_1"}}},
               {"cache_report", true}};
  const char* const kResponses = "/v1/responses";
  EXPECT_EQ(Ask(kResponses, body).json()["prompt_cache_diagnostics"]["type"],
            "comparison_response_not_found");
  EXPECT_EQ(Ask(kResponses, body).json()["prompt_cache_diagnostics"]["type"], "cache_hit");
  body["input"][0] = User("How does a wheel work, in a few sentences?");
  const Json answer = Ask(kResponses, body).json();
  EXPECT_EQ(answer["prompt_cache_diagnostics"]["type"], "cache_miss");
  EXPECT_EQ(answer["prompt_cache_diagnostics"]["reason"], "input_changed");
  EXPECT_EQ(answer["usage"]["cache_report"]["difference"]["item"], "input[0].content");
}

TEST_F(CacheReportApiTest, OllamaAndRawPrompts) {
  const Json chat = {{"model", "scripted"},
                     {"stream", false},
                     {"cache_report", true},
                     {"options", {{"num_predict", 4}}},
                     {"messages", Json::array({User("What is a shuttle of a loom for?")})}};
  EXPECT_EQ(Ask("/api/chat", chat).json()["cache_report"]["reason"], "first_prompt");
  const Json raw = {{"prompt", "Once upon a time"}, {"max_tokens", 4}, {"cache_report", true}};
  EXPECT_EQ(ReportOf(Ask("/v1/completions", raw))["reason"], "not_compared");
  const Json llama = {{"prompt", "Once upon a time"}, {"n_predict", 4}, {"cache_report", true}};
  const Json report = Ask("/completion", llama).json()["cache_report"];
  EXPECT_EQ(report["reason"], "not_compared");
  EXPECT_GT(report["found_tokens"], 0);
}

TEST_F(CacheReportApiTest, SessionsAndTheLatestPromptOfAKey) {
  Json body = Dated("27", "sessions");
  body["session_id"] = "kitchen";
  Post(kChat, body, {}, "carol");
  body["messages"][0]["content"] = "Something else entirely, of which nobody knows.";
  body["session_id"] = "garden";
  Post(kChat, body, {}, "carol");
  const Json kitchen = Get("/v1/sessions/kitchen", "carol");
  const Json garden = Get("/v1/sessions/garden", "carol");
  EXPECT_EQ(kitchen["cache_report"]["reason"], "first_prompt");
  EXPECT_EQ(garden["cache_report"]["reason"], "system_changed");
  EXPECT_EQ(Get("/v1/cache/last", "carol")["cache_report"], garden["cache_report"]);
}

TEST_F(CacheReportApiTest, NothingOfAnotherKey) {
  Post(kChat, Dated("27", "secrets of alice"), {}, "alice");
  const auto response = Post(kChat, Dated("27", "matters of bob"), {}, "bob");
  EXPECT_EQ(ReportOf(response)["reason"], "first_prompt");
  EXPECT_THAT(response.body(), Not(HasSubstr("alice")));
  EXPECT_THAT(Get("/v1/cache/last", "bob").dump(), Not(HasSubstr("alice")));
}

}  // namespace
}  // namespace weft::serve
