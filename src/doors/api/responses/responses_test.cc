#include "doors/api/responses/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doors/api/responses/request.h"
#include "doors/api/responses/sealed_reasoning.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using testing::SseEvent;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

class ResponsesTest : public testing::ApiTest {
 protected:
  static Json Body(std::string_view say, const Json& more = Json::object()) {
    Json body = {{"input", Say(say)["content"]}};
    body.update(more);
    return body;
  }
  static Json Tools() {
    Json tool = WeatherTool()["function"];
    tool["type"] = "function";
    return {{"tools", Json::array({tool})}};
  }
};

TEST_F(ResponsesTest, ReasoningComesBackFromItsSealedForm) {
  constexpr char kSay[] = "<think>\nWhere is \"Bonn\"?\n</think>\n\nThere.";
  const Json include = {{"include", Json::array({"reasoning.encrypted_content"})},
                        {"store", false}};
  EXPECT_FALSE(Post(kResponses, Body(kSay)).json()["output"][0].contains("encrypted_content"));
  Json item = Post(kResponses, Body(kSay, include)).json()["output"][0];
  const std::string thought = item["content"][0]["text"];
  const std::string sealed = item["encrypted_content"];
  EXPECT_EQ(UnsealReasoning(sealed), thought);
  Json streamed = Body(kSay, include);
  streamed["stream"] = true;
  for (const SseEvent& event : Post(kResponses, streamed).Events()) {
    if (event.name != "response.output_item.done") continue;
    const Json done = event.json()["item"];
    EXPECT_EQ(done.value("encrypted_content", ""), done["type"] == "reasoning" ? sealed : "");
  }

  // As codex sends it back.
  const auto reasoning = [](const Json& given) {
    std::vector<std::string> warnings;
    ToolCatalog tools;
    const Json answer = {{"role", "assistant"}, {"content", "There."}};
    const auto read = ItemsToChatMessages(nullptr, Json::array({given, answer}), &tools, &warnings);
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(warnings, ::testing::IsEmpty());
    return read.ok() ? read->front().reasoning : "";
  };
  item.erase("content");
  EXPECT_EQ(reasoning(item), thought);
  item["content"] = Json::array();
  EXPECT_EQ(reasoning(item), thought);
  for (const std::string& foreign :
       {std::string("gAAAAABo"), sealed.substr(0, sealed.size() - 4), sealed + "AAAA",
        std::string("weft1."), std::string("weft1.*"), std::string()}) {
    item["encrypted_content"] = foreign;
    EXPECT_EQ(reasoning(item), "") << foreign;
  }
  item["encrypted_content"] = nullptr;
  EXPECT_EQ(reasoning(item), "");
}

TEST_F(ResponsesTest, WhatCannotBeIncludedIsTold) {
  const auto response =
      Post(kResponses, Body("x", {{"include", Json::array({"file_search_call.results"})}}));
  EXPECT_EQ(response.status(), 200);
  EXPECT_EQ(response.Header("X-Weft-Ignored"), "include.file_search_call.results");
}

TEST_F(ResponsesTest, AnswersWhole) {
  const auto response =
      Post(kResponses, Body("Hello.", {{"instructions", "be kind"}, {"store", true}}));
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json body = response.json();
  EXPECT_THAT(std::string(body["id"]), StartsWith("resp_"));
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["instructions"], "be kind");
  EXPECT_EQ(body["store"], false);  // nothing is stored
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["type"], "message");
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hello.");
  EXPECT_EQ(body["usage"]["output_tokens"], 7);
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["input_tokens"].get<int>() + 7);
  EXPECT_TRUE(body["error"].is_null());
}

TEST_F(ResponsesTest, ReasoningTextAndCallsAreItems) {
  const std::string say = std::string("<think>\nWhere?\n</think>\n\nLet me see.\n") + kWeatherCall;
  const Json body = Post(kResponses, Body(say, Tools())).json();
  ASSERT_EQ(body["output"].size(), 3u) << body;
  EXPECT_EQ(body["output"][0]["type"], "reasoning");
  EXPECT_EQ(body["output"][1]["type"], "message");
  const Json& call = body["output"][2];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_THAT(std::string(call["call_id"]), StartsWith("call_"));
  EXPECT_EQ(Json::parse(std::string(call["arguments"])), Json({{"city", "Bonn"}}));
  EXPECT_GT(body["usage"]["output_tokens_details"]["reasoning_tokens"], 0);

  Json input = Json::array({{{"role", "user"}, {"content", "hm"}}});
  for (const Json& item : body["output"]) input.push_back(item);
  input.push_back({{"type", "function_call_output"},
                   {"call_id", call["call_id"]},
                   {"output", "<<say>>rain<</say>>"}});
  Json more = Tools();
  more["input"] = input;
  const Json next = Post(kResponses, more).json();
  EXPECT_EQ(next["output"][0]["content"][0]["text"], "rain") << next;
}

TEST_F(ResponsesTest, StreamsEventsInTheirOrder) {
  Json more = Tools();
  more["stream"] = true;
  const std::string say = std::string("<think>\nW\n</think>\n\nS\n") + kWeatherCall;
  const auto response = Post(kResponses, Body(say, more));
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_TRUE(response.ended());
  std::vector<std::string> outline;
  int64_t sequence = 0;
  Json last;
  std::string joined_arguments;
  for (const SseEvent& event : response.Events()) {
    last = event.json();
    EXPECT_EQ(last["type"], event.name);
    EXPECT_EQ(last["sequence_number"], sequence++);
    if (event.name == "response.function_call_arguments.delta") {
      joined_arguments += std::string(last["delta"]);
      EXPECT_EQ(last["output_index"], 2);
    }
    const std::string name = event.name.substr(std::string("response.").size());
    if (outline.empty() || outline.back() != name) outline.push_back(name);
  }
  EXPECT_THAT(outline,
              ElementsAre("created", "in_progress",  //
                          "output_item.added", "content_part.added", "reasoning_text.delta",
                          "reasoning_text.done", "content_part.done", "output_item.done",  //
                          "output_item.added", "content_part.added", "output_text.delta",
                          "output_text.done", "content_part.done", "output_item.done",  //
                          "output_item.added", "function_call_arguments.delta",
                          "function_call_arguments.done", "output_item.done",  //
                          "completed"));
  EXPECT_EQ(last["response"]["status"], "completed");
  EXPECT_EQ(last["response"]["output"].size(), 3u);
  EXPECT_EQ(last["response"]["output"][2]["arguments"], joined_arguments);
}

TEST_F(ResponsesTest, WhatIsCutIsIncomplete) {
  const Json body = Post(kResponses, Body("abcdef", {{"max_output_tokens", 3}})).json();
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "incomplete");
  const auto events =
      Post(kResponses, Body("abcdef", {{"max_output_tokens", 3}, {"stream", true}})).Events();
  EXPECT_EQ(events.back().name, "response.incomplete");
}

TEST_F(ResponsesTest, LogprobsWhereTheyAreIncluded) {
  const Json more = {{"include", Json::array({"message.output_text.logprobs"})},
                     {"top_logprobs", 2}};
  const Json part = Post(kResponses, Body("abc", more)).json()["output"][0]["content"][0];
  ASSERT_EQ(part["logprobs"].size(), 3u) << part;
  EXPECT_EQ(part["logprobs"][2]["token"], "c");
  EXPECT_EQ(part["logprobs"][2]["top_logprobs"].size(), 2u);
}

TEST_F(ResponsesTest, ErrorsNameTheField) {
  const std::pair<Json, const char*> cases[] = {
      {Json::object(), "input"},
      {Body("x", {{"previous_response_id", "resp_1"}}), "previous_response_id"},
      {Body("x", {{"background", true}}), "background"},
      {Body("x", {{"truncation", "auto"}}), "truncation"},
      {Body("x", {{"tool_choice", "required"}}), "tool_choice"},
      {Body("x", {{"tools", Json::array({{{"type", "web_search"}}})}}), "tools"},
      {Body("x", {{"text", {{"format", {{"type", "json_schema"}}}}}}), "text.format"},
      {Body("x",
            {{"text", {{"format", {{"type", "json_schema"}, {"schema", {{"type", "nothing"}}}}}}}}),
       "text.format.schema"},
      {Body("x", {{"max_output_tokens", 0}}), "max_output_tokens"}};
  for (const auto& [body, param] : cases) {
    const auto response = Post(kResponses, body);
    EXPECT_EQ(response.status(), 400) << body;
    EXPECT_EQ(response.json()["error"]["param"], param) << response.body();
  }
}

// llama-server's additions to OpenAI's fields.
TEST_F(ResponsesTest, ProgressAndTimingsComeWhereTheyAreAskedFor) {
  const Json more = {{"stream", true}, {"return_progress", true}, {"timings_per_token", true}};
  const auto events = Post(kResponses, Body("Hello", more)).Events();
  EXPECT_EQ(events[0].name, "response.created");
  std::vector<Json> progress;
  int64_t sequence = 0;
  for (const SseEvent& event : events) {
    const Json data = event.json();
    EXPECT_EQ(data["sequence_number"], sequence++);
    if (data.contains("prompt_progress")) {
      EXPECT_EQ(event.name, "response.in_progress");
      progress.push_back(data["prompt_progress"]);
    }
    EXPECT_EQ(data.contains("timings"), data.contains("prompt_progress") ||
                                            event.name == "response.output_text.delta" ||
                                            event.name == "response.completed")
        << event.name;
  }
  ASSERT_GE(progress.size(), 2u);
  EXPECT_EQ(progress.back()["processed"], progress.back()["total"]);
  EXPECT_EQ(events.back().json()["timings"]["predicted_n"], 6);
  for (const SseEvent& event : Post(kResponses, Body("Hello", {{"stream", true}})).Events()) {
    EXPECT_FALSE(event.json().contains("prompt_progress"));
    EXPECT_EQ(event.json().contains("timings"), event.name == "response.completed");
  }
}

TEST_F(ResponsesTest, AFailureInTheMiddleIsAnEventAndTheEnd) {
  const auto events = Post(kResponses, Body("ab<<fail>>", {{"stream", true}})).Events();
  EXPECT_EQ(events[events.size() - 2].name, "error");
  EXPECT_EQ(events.back().name, "response.failed");
  EXPECT_EQ(events.back().json()["response"]["status"], "failed");
  EXPECT_EQ(Post(kResponses, Body("ab<<fail>>")).status(), 400);
  ExpectIdle();
}

TEST_F(ResponsesTest, CountsTokens) {
  const Json body = Body("x");
  const Json count = Post("/v1/responses/input_tokens", body).json()["input_tokens"];
  EXPECT_EQ(count, Post(kResponses, body).json()["usage"]["input_tokens"]);
  EXPECT_EQ(count, Post("/responses/input_tokens", body).json()["input_tokens"]);
}

}  // namespace
}  // namespace weft::serve
