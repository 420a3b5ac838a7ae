// Conversations whose clients change what the model said, through every API: the next prompt
// computes only the new part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "doors/api/sessions/routes.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kKnownThought[] = "I have to look at the weather of that city first";
// Written as no template would write it.
constexpr char kReply[] =
    "<think>\nI have to look at the weather of that city first\n</think>\n\nI look. \n"
    "<tool_call>\n{ \"name\":\"get_weather\", \"arguments\":{\"city\" : \"Bonn\"} }\n</tool_call>";

struct ReplyCost {
  int64_t prompt = 0, cached = 0, completion = 0;
};

class KnownRepliesTest : public testing::ApiTest {
 protected:
  static Json Tool() { return WeatherTool(); }

  static Json OpenAiBody(Json messages) {
    return {
        {"messages", std::move(messages)}, {"tools", Json::array({Tool()})}, {"max_tokens", 400}};
  }
  static ReplyCost CostOf(const Json& usage) {
    return {.prompt = usage["prompt_tokens"],
            .cached = usage["prompt_tokens_details"]["cached_tokens"],
            .completion = usage["completion_tokens"]};
  }

  // The first turn over OpenAI's chat completions; `question` makes each test's conversation its
  // own.
  static Json First(const std::string& question, ReplyCost* cost, std::string domain = "") {
    Json messages = Json::array({{{"role", "user"}, {"content", question}}});
    messages.push_back(Say(kReply));
    const auto response = Post("/v1/chat/completions", OpenAiBody(messages), {}, std::move(domain));
    EXPECT_EQ(response.status(), 200) << response.body();
    const Json answer = response.json();
    *cost = CostOf(answer["usage"]);
    Json message = answer["choices"][0]["message"];
    EXPECT_EQ(message["reasoning_content"], kKnownThought);
    EXPECT_EQ(message["tool_calls"].size(), 1u);
    messages.push_back(std::move(message));
    return messages;
  }

  static Json& Answered(Json& messages) { return messages[2]; }

  static ReplyCost Second(Json messages, std::string domain = "") {
    const Json& call = messages.back()["tool_calls"][0];
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", call["id"]},
                        {"content", "It rains. <<say>>Take an umbrella.<</say>>"}});
    const auto response = Post("/v1/chat/completions", OpenAiBody(messages), {}, std::move(domain));
    EXPECT_EQ(response.status(), 200) << response.body();
    return CostOf(response.json()["usage"]);
  }

  // All that was computed in the first turn is found: its end token may not be.
  static void ExpectAllFound(const ReplyCost& first, const ReplyCost& second) {
    EXPECT_GE(second.cached, first.prompt + first.completion - 1);
  }
};

TEST_F(KnownRepliesTest, ReasoningThatIsDroppedIsPutBack) {
  ReplyCost first;
  Json messages = First("About dropping.", &first);
  Answered(messages).erase("reasoning_content");
  ExpectAllFound(first, Second(messages));
}

TEST_F(KnownRepliesTest, AClientThatKeepsItComputesAsMuch) {
  ReplyCost first;
  Json messages = First("About keeping.", &first);
  const ReplyCost kept = Second(messages);
  Answered(messages).erase("reasoning_content");
  const ReplyCost dropped = Second(messages);
  ExpectAllFound(first, kept);
  EXPECT_EQ(kept.prompt, dropped.prompt);
}

TEST_F(KnownRepliesTest, CallsThatAreWrittenAnewAreTheSame) {
  for (const char* const arguments : {"{\"city\":\"Bonn\"}", "{ \"city\" : \"Bo\\u006en\" }"}) {
    for (const Json& content : {Json("I look."), Json("\nI look.\n\n")}) {
      ReplyCost first;
      Json messages = First(std::string("About ") + arguments + content.dump(), &first);
      Answered(messages).erase("reasoning_content");
      Answered(messages)["content"] = content;
      Answered(messages)["tool_calls"][0]["function"]["arguments"] = arguments;
      ExpectAllFound(first, Second(messages));
    }
  }
}

TEST_F(KnownRepliesTest, WhatWasNotSaidIsLeftAsItIs) {
  ReplyCost first;
  Json messages = First("About other words.", &first);
  Answered(messages).erase("reasoning_content");
  Answered(messages)["content"] = "I look it up.";
  const ReplyCost second = Second(messages);
  EXPECT_LT(second.cached, first.prompt + first.completion - 1);
}

TEST_F(KnownRepliesTest, AnotherKeysReplyIsNotKnown) {
  ReplyCost first;
  Json messages = First("About keys.", &first, "alice");
  Answered(messages).erase("reasoning_content");
  const ReplyCost own = Second(messages, "alice"), other = Second(messages, "bob");
  ExpectAllFound(first, own);
  EXPECT_LT(other.prompt, own.prompt) << "bob sees alice's reasoning";
}

TEST_F(KnownRepliesTest, CountsAreThoseOfThePrompt) {
  ReplyCost first;
  Json messages = First("About counts.", &first);
  Answered(messages).erase("reasoning_content");
  messages.push_back({{"role", "tool"},
                      {"tool_call_id", messages.back()["tool_calls"][0]["id"]},
                      {"content", "It rains. <<say>>Good.<</say>>"}});
  const auto count = Post("/v1/chat/completions/input_tokens", OpenAiBody(messages));
  const auto answer = Post("/v1/chat/completions", OpenAiBody(messages));
  EXPECT_EQ(count.json()["input_tokens"], answer.json()["usage"]["prompt_tokens"]);
}

TEST_F(KnownRepliesTest, AnthropicsThoughtsToo) {
  const Json tool = {
      {"name", "get_weather"},
      {"input_schema", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}};
  Json body = {{"messages", Json::array({Say(kReply)})},
               {"tools", Json::array({tool})},
               {"thinking", {{"type", "adaptive"}}},
               {"max_tokens", 400}};
  const Json first = Post("/v1/messages", body).json();
  ASSERT_EQ(first["stop_reason"], "tool_use") << first;
  const auto total = [](const Json& usage) {
    return int64_t{usage["input_tokens"]} + int64_t{usage["cache_read_input_tokens"]} +
           int64_t{usage["cache_creation_input_tokens"]};
  };
  const int64_t computed = total(first["usage"]) + int64_t{first["usage"]["output_tokens"]};
  Json content = first["content"];
  ASSERT_EQ(content[0]["type"], "thinking");
  content.erase(0);
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  const Json result = {{"type", "tool_result"},
                       {"tool_use_id", content.back()["id"]},
                       {"content", "It rains. <<say>>Good.<</say>>"}};
  body["messages"].push_back({{"role", "user"}, {"content", Json::array({result})}});
  const Json second = Post("/v1/messages", body).json();
  EXPECT_GE(int64_t{second["usage"]["cache_read_input_tokens"]}, computed - 1) << second;
}

TEST_F(KnownRepliesTest, ResponsesWithoutTheirReasoningToo) {
  Json tool = Tool()["function"];
  tool["type"] = "function";
  Json input = Json::array({Say(kReply)});
  const auto body = [&] {
    return Json{{"input", input}, {"tools", Json::array({tool})}, {"max_output_tokens", 400}};
  };
  const Json first = Post("/v1/responses", body()).json();
  const int64_t computed =
      int64_t{first["usage"]["input_tokens"]} + int64_t{first["usage"]["output_tokens"]};
  std::string call_id;
  for (const Json& item : first["output"]) {
    if (item["type"] == "reasoning") continue;
    if (item["type"] == "function_call") call_id = item["call_id"];
    input.push_back(item);
  }
  ASSERT_FALSE(call_id.empty()) << first;
  input.push_back({{"type", "function_call_output"},
                   {"call_id", call_id},
                   {"output", "It rains. <<say>>Good.<</say>>"}});
  const Json second = Post("/v1/responses", body()).json();
  EXPECT_GE(int64_t{second["usage"]["input_tokens_details"]["cached_tokens"]}, computed - 1)
      << second["usage"];
}

TEST_F(KnownRepliesTest, OllamasClientsHaveNoIds) {
  Json messages = Json::array({Say(kReply)});
  const auto body = [&] {
    return Json{{"model", "scripted"}, {"messages", messages}, {"tools", Json::array({Tool()})},
                {"stream", false},     {"think", true},        {"options", {{"num_predict", 400}}}};
  };
  const Json first = Post("/api/chat", body()).json();
  ASSERT_EQ(first["message"]["tool_calls"].size(), 1u) << first;
  Json message = first["message"];
  message.erase("thinking");
  for (Json& call : message["tool_calls"]) call.erase("id");
  messages.push_back(message);
  messages.push_back({{"role", "tool"}, {"content", "It rains. <<say>>Good.<</say>>"}});
  const Json second = Post("/api/chat", body()).json();
  const int64_t computed = int64_t{first["prompt_eval_count"]} + int64_t{first["eval_count"]};
  EXPECT_GE(int64_t{second["prompt_eval_count"]}, computed - 1) << second;
}

class KeptRepliesTest : public KnownRepliesTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", testing::kScriptedContext,
              {.server = {.hold_calls = false, .restore_reasoning = false}});
  }
};

TEST_F(KeptRepliesTest, TurnedOffNothingIsPutBack) {
  ReplyCost first;
  Json messages = First("About nothing.", &first);
  Answered(messages).erase("reasoning_content");
  const ReplyCost second = Second(messages);
  EXPECT_LT(second.cached, first.prompt + first.completion - 1);
  EXPECT_EQ(host().answerer().prompts().replies().size(), 0u);
}

}  // namespace
}  // namespace weft::serve
