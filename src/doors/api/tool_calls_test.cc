// Calls that a model writes in other shapes than its own format, as reported by every API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/server/routes.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MemoryResponder;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

// An answer as a client understands it.
struct Told {
  std::vector<std::string> calls;  // NAME ARGUMENTS
  std::string text;
  std::string finish;
};

constexpr char kFenced[] =
    "I look.\n\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bonn\"}}\n```";
constexpr char kOtherName[] =
    "```json\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Bonn\"}}\n```\n";

class ToolCallsTest : public testing::ApiTest {
 protected:
  static Json Chat(std::string_view say, bool stream, bool tools) {
    Json body = ApiTest::Chat(say, {{"stream", stream}});
    if (tools) body["tools"] = Json::array({WeatherTool()});
    return body;
  }

  static Told OpenAi(std::string_view say, bool stream, bool tools = true) {
    const auto response = Post("/v1/chat/completions", Chat(say, stream, tools));
    return stream ? OpenAiStream(response) : OpenAiAnswer(response);
  }
  static Told OpenAiAnswer(const MemoryResponder& response) {
    const Json choice = response.json()["choices"][0];
    Told told{.finish = choice["finish_reason"]};
    const Json& message = choice["message"];
    if (message["content"].is_string()) told.text = message["content"];
    for (const Json& call : message.value("tool_calls", Json::array())) {
      told.calls.push_back(std::string(call["function"]["name"]) + " " +
                           std::string(call["function"]["arguments"]));
    }
    return told;
  }
  static Told OpenAiStream(const MemoryResponder& response) {
    Told told;
    for (const SseEvent& event : response.Events()) {
      const Json data = event.json();
      if (!data.is_object() || data["choices"].empty()) continue;
      const Json& choice = data["choices"][0];
      if (choice["finish_reason"].is_string()) told.finish = choice["finish_reason"];
      const Json& delta = choice["delta"];
      if (delta.contains("content") && delta["content"].is_string()) {
        told.text += delta["content"];
      }
      for (const Json& call : delta.value("tool_calls", Json::array())) {
        const Json& function = call["function"];
        if (function.contains("name")) {
          told.calls.push_back(std::string(function["name"]) + " ");
          EXPECT_EQ(call["index"], told.calls.size() - 1);
        }
        told.calls.back() += function.value("arguments", "");
      }
    }
    return told;
  }

  static Told Anthropic(std::string_view say, bool stream) {
    const Json body = {
        {"model", "scripted"},
        {"max_tokens", 500},
        {"stream", stream},
        {"messages", Json::array({Say(say)})},
        {"tools", Json::array({{{"name", "get_weather"},
                                {"input_schema", WeatherTool()["function"]["parameters"]}}})}};
    const auto response = Post("/v1/messages", body);
    Told told;
    if (!stream) {
      const Json answer = response.json();
      told.finish = answer["stop_reason"];
      for (const Json& block : answer["content"]) {
        if (block["type"] == "text") told.text += block["text"];
        if (block["type"] == "tool_use") {
          told.calls.push_back(std::string(block["name"]) + " " + block["input"].dump());
        }
      }
      return told;
    }
    for (const SseEvent& event : response.Events()) {
      const Json data = event.json();
      if (event.name == "content_block_start" && data["content_block"]["type"] == "tool_use") {
        told.calls.push_back(std::string(data["content_block"]["name"]) + " ");
      } else if (event.name == "content_block_delta") {
        told.text += data["delta"].value("text", "");
        if (!told.calls.empty()) told.calls.back() += data["delta"].value("partial_json", "");
      } else if (event.name == "message_delta") {
        told.finish = data["delta"]["stop_reason"];
      }
    }
    return told;
  }

  static Told Responses(std::string_view say, bool stream) {
    Json tool = WeatherTool()["function"];
    tool["type"] = "function";
    const Json body = {{"input", Say(say)["content"]},
                       {"stream", stream},
                       {"tools", Json::array({std::move(tool)})}};
    const auto response = Post("/v1/responses", body);
    Json answer;
    if (stream) {
      for (const SseEvent& event : response.Events()) {
        if (event.name == "response.completed") answer = event.json()["response"];
      }
    } else {
      answer = response.json();
    }
    Told told{.finish = answer["status"]};
    for (const Json& item : answer["output"]) {
      if (item["type"] == "message") told.text += item["content"][0]["text"];
      if (item["type"] == "function_call") {
        told.calls.push_back(std::string(item["name"]) + " " + std::string(item["arguments"]));
      }
    }
    return told;
  }
};

TEST_F(ToolCallsTest, AFencedCallIsACallForEveryClient) {
  for (const bool stream : {false, true}) {
    const Told openai = OpenAi(kFenced, stream);
    EXPECT_THAT(openai.calls, ElementsAre("get_weather {\"city\": \"Bonn\"}"));
    EXPECT_EQ(openai.text, "I look.");
    EXPECT_EQ(openai.finish, "tool_calls");
    const Told anthropic = Anthropic(kFenced, stream);
    ASSERT_EQ(anthropic.calls.size(), 1U);
    EXPECT_TRUE(anthropic.calls[0].starts_with("get_weather {\"city\"")) << anthropic.calls[0];
    EXPECT_EQ(anthropic.text, "I look.");
    EXPECT_EQ(anthropic.finish, "tool_use");
    const Told responses = Responses(kFenced, stream);
    EXPECT_THAT(responses.calls, ElementsAre("get_weather {\"city\": \"Bonn\"}"));
    EXPECT_EQ(responses.text, "I look.");
  }
  ExpectIdle();
}

TEST_F(ToolCallsTest, WhatIsNoCallStaysAsItIs) {
  for (const bool stream : {false, true}) {
    for (const Told& told : {OpenAi(kOtherName, stream), Anthropic(kOtherName, stream),
                             Responses(kOtherName, stream)}) {
      EXPECT_THAT(told.calls, IsEmpty());
      EXPECT_EQ(told.text, kOtherName);
    }
    const Told untold = OpenAi(kFenced, stream, /*tools=*/false);
    EXPECT_THAT(untold.calls, IsEmpty());
    EXPECT_EQ(untold.text, kFenced);
    EXPECT_EQ(untold.finish, "stop");
  }
  Json body = Chat(kFenced, /*stream=*/false, /*tools=*/true);
  body["tool_choice"] = "none";
  EXPECT_EQ(OpenAiAnswer(Post("/v1/chat/completions", body)).text, kFenced);
}

TEST_F(ToolCallsTest, OneCallWhereNoMoreAreWanted) {
  const std::string two = std::string(kFenced) + "\n" + kFenced;
  EXPECT_EQ(OpenAi(two, false).calls.size(), 2U);
  Json body = Chat(two, /*stream=*/false, /*tools=*/true);
  body["parallel_tool_calls"] = false;
  const Told told = OpenAiAnswer(Post("/v1/chat/completions", body));
  EXPECT_EQ(told.calls.size(), 1U);
  EXPECT_EQ(told.finish, "tool_calls");
}

class StrictCallsHost : public testing::ScriptedHost {
 public:
  explicit StrictCallsHost(Host& inner) : ScriptedHost(inner, Strict().policy()) {}
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  static RequestDefaults Strict() {
    return {.server = {.lenient_tool_calls = false, .hold_calls = false}};
  }

  const RequestDefaults defaults_ = Strict();
};

TEST_F(ToolCallsTest, AStrictServerTakesTheModelsOwnFormatAlone) {
  StrictCallsHost strict(host());
  for (Host* const server : {static_cast<Host*>(&strict), static_cast<Host*>(&host())}) {
    const bool is_strict = server == &strict;
    Router router;
    RegisterOpenAiApi(router, *server);
    RegisterServerApi(router, *server);
    const auto ask = [&](const char* method, const std::vector<std::string>& path,
                         const Json& body) {
      HttpRequest request;
      request.method = method;
      request.body = body.dump();
      MemoryResponder responder;
      testing::RunHandler(*router.Find(method, path).route, request, responder);
      return responder;
    };
    const Told fenced = OpenAiAnswer(
        ask("POST", {"v1", "chat", "completions"}, Chat(kFenced, /*stream=*/false, true)));
    EXPECT_EQ(fenced.calls.size(), is_strict ? 0U : 1U);
    EXPECT_EQ(fenced.text, is_strict ? kFenced : "I look.");
    const std::string own =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>";
    EXPECT_EQ(OpenAiAnswer(ask("POST", {"v1", "chat", "completions"}, Chat(own, false, true)))
                  .calls.size(),
              1U);
    EXPECT_EQ(ask("GET", {"props"}, Json()).json()["tool_calls"], is_strict ? "strict" : "lenient");
  }
}

// The vocabulary's token for the beginning of a text, which does not end one.
TEST_F(ToolCallsTest, ControlTokensNeverReachAClient) {
  const Tokenizer& tokenizer = *host().model().tokenizer();
  const std::string control = tokenizer.Piece(tokenizer.bos(), /*render_special=*/true);
  ASSERT_FALSE(control.empty());
  for (const bool stream : {false, true}) {
    for (const bool tools : {false, true}) {
      const Told told = OpenAi(StrCat("a", control, "b ", control, control, "c"), stream, tools);
      EXPECT_EQ(told.text, "ab c");
    }
    EXPECT_THAT(OpenAi(StrCat(control, kFenced, control), stream).calls,
                ElementsAre("get_weather {\"city\": \"Bonn\"}"));
  }
  // A client may use one as a stop string, and otherwise never sees one.
  Json body = Chat("a" + control + "b" + control + control + "c", false, false);
  body["stop"] = Json::array({control + control});
  EXPECT_EQ(OpenAiAnswer(Post("/v1/chat/completions", body)).text, "ab");
}

}  // namespace
}  // namespace weft::serve
