#include "doors/api/anthropic/request.h"
#include "doors/api/anthropic/routes.h"
#include "doors/api/anthropic/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryResponder;
using testing::SseEvent;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

class AnthropicTest : public testing::ApiTest {
 protected:
  static Json Body(std::string_view say, const Json& more = Json::object()) {
    Json body = Chat(say, {{"model", "scripted"}, {"max_tokens", 500}});
    body.update(more);
    return body;
  }
  static Json Tools() {
    return {{"tools", Json::array({{{"name", "get_weather"},
                                    {"description", "The weather"},
                                    {"input_schema",
                                     {{"type", "object"},
                                      {"properties", {{"city", {{"type", "string"}}}}}}}}})}};
  }
  // One word per event: its type and, for blocks, their index and kind.
  static std::vector<std::string> Outline(const std::vector<SseEvent>& events) {
    std::vector<std::string> outline;
    for (const SseEvent& event : events) {
      const Json data = event.json();
      EXPECT_EQ(data["type"], event.name);
      std::string word = event.name;
      if (data.contains("index")) word += " " + data["index"].dump();
      if (data.contains("content_block")) word += " " + std::string(data["content_block"]["type"]);
      if (word.starts_with("content_block_delta")) {
        word += " " + std::string(data["delta"]["type"]);
      }
      if (outline.empty() || outline.back() != word) outline.push_back(word);
    }
    return outline;
  }
};

TEST_F(AnthropicTest, AnswersWhole) {
  const auto response = Post(kMessages, Body("Hello."));
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json body = response.json();
  EXPECT_THAT(std::string(body["id"]), StartsWith("msg_"));
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["role"], "assistant");
  EXPECT_EQ(body["content"].dump(), R"([{"type":"text","text":"Hello."}])");
  EXPECT_EQ(body["stop_reason"], "end_turn");
  EXPECT_TRUE(body["stop_sequence"].is_null());
  EXPECT_EQ(body["usage"]["output_tokens"], 7);
  EXPECT_FALSE(body.contains("timings"));
  const Json again = Post(kMessages, Body("Hello.")).json()["usage"];
  EXPECT_GT(again["cache_read_input_tokens"], 0);
  EXPECT_EQ(again["cache_read_input_tokens"].get<int>() +
                again["cache_creation_input_tokens"].get<int>() + again["input_tokens"].get<int>(),
            Post("/v1/messages/count_tokens", Body("Hello.")).json()["input_tokens"].get<int>());
}

TEST_F(AnthropicTest, BlocksInTheirOrder) {
  Json more = Tools();
  more["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  const std::string say = std::string("<think>\nWhere?\n</think>\n\nLet me see.\n") + kWeatherCall +
                          "\n" + kWeatherCall;
  const Json body = Post(kMessages, Body(say, more)).json();
  ASSERT_EQ(body["content"].size(), 4u) << body;
  EXPECT_EQ(body["content"][0]["type"], "thinking");
  EXPECT_EQ(body["content"][0]["signature"], "weft");
  EXPECT_EQ(body["content"][1]["type"], "text");
  EXPECT_EQ(body["content"][3]["input"], Json({{"city", "Bonn"}}));
  EXPECT_THAT(std::string(body["content"][2]["id"]), StartsWith("toolu_"));
  EXPECT_EQ(body["stop_reason"], "tool_use");
}

TEST_F(AnthropicTest, StreamsBlocksOneAfterTheOther) {
  Json more = Tools();
  more["stream"] = true;
  more["thinking"] = {{"type", "adaptive"}};
  const std::string say = std::string("<think>\nWhere?\n</think>\n\nLet me see.\n") + kWeatherCall +
                          "\n" + kWeatherCall;
  const auto response = Post(kMessages, Body(say, more));
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_TRUE(response.ended());
  const auto events = response.Events();
  EXPECT_THAT(
      Outline(events),
      ElementsAre("message_start", "ping", "content_block_start 0 thinking",
                  "content_block_delta 0 thinking_delta", "content_block_delta 0 signature_delta",
                  "content_block_stop 0", "content_block_start 1 text",
                  "content_block_delta 1 text_delta", "content_block_stop 1",
                  "content_block_start 2 tool_use", "content_block_delta 2 input_json_delta",
                  "content_block_stop 2", "content_block_start 3 tool_use",
                  "content_block_delta 3 input_json_delta", "content_block_stop 3", "message_delta",
                  "message_stop"));
  std::string arguments;
  for (const SseEvent& event : events) {
    const Json data = event.json();
    if (event.name == "content_block_start" && data["index"] == 2) {
      EXPECT_EQ(data["content_block"]["input"].dump(), "{}");
    }
    if (event.name == "content_block_delta" && data["delta"].contains("signature")) {
      EXPECT_EQ(data["delta"]["signature"], "weft") << "clients drop thinking that has none";
    }
    if (event.name == "content_block_delta" && data["index"] == 2) {
      arguments += std::string(data["delta"]["partial_json"]);
    }
  }
  EXPECT_EQ(Json::parse(arguments), Json({{"city", "Bonn"}}));
  const Json start = events[0].json()["message"];
  EXPECT_EQ(start["content"].size(), 0u);
  EXPECT_TRUE(start["stop_reason"].is_null());
  EXPECT_EQ(start["usage"]["output_tokens"], 0);
  const Json end = events[events.size() - 2].json();
  EXPECT_EQ(end["delta"]["stop_reason"], "tool_use");
  EXPECT_GT(end["usage"]["output_tokens"], 10);
}

TEST_F(AnthropicTest, BlankTextBesideOtherBlocksIsNoBlock) {
  const Json body = Post(kMessages, Body(std::string("\n\n") + kWeatherCall, Tools())).json();
  ASSERT_EQ(body["content"].size(), 1u) << body;
  EXPECT_EQ(body["content"][0]["type"], "tool_use");
  Json more = Tools();
  more["stream"] = true;
  EXPECT_EQ(Outline(Post(kMessages, Body(std::string("\n\n") + kWeatherCall, more)).Events())[2],
            "content_block_start 0 tool_use");
}

TEST_F(AnthropicTest, StopsAsAsked) {
  const Json stopped =
      Post(kMessages, Body("abcdef", {{"stop_sequences", Json::array({"de"})}})).json();
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "de");
  EXPECT_EQ(stopped["content"][0]["text"], "abc");
  const Json cut = Post(kMessages, Body("abcdef", {{"max_tokens", 2}})).json();
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
}

TEST_F(AnthropicTest, ThinkingIsOffWhereNothingIsSaid) {
  const auto count = [&](const Json& more) {
    return Post("/v1/messages/count_tokens", Body("x", more)).json()["input_tokens"].get<int>();
  };
  const int on = count({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}});
  const int off = count({{"thinking", {{"type", "disabled"}}}});
  EXPECT_GT(off, on);  // the template closes the thinking itself
  EXPECT_EQ(count(Json::object()), off);
}

TEST_F(AnthropicTest, AToolTurnResumesWarm) {
  Json more = Tools();
  more["thinking"] = {
      {"type", "adaptive"}};  // otherwise the template only shows it in the last turn
  Json body = Body(std::string("Well.\n") + kWeatherCall, more);
  const Json first = Post(kMessages, body).json();
  body["messages"].push_back({{"role", "assistant"}, {"content", first["content"]}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"},
                                 {"tool_use_id", first["content"].back()["id"]},
                                 {"content", "<<say>>It rains.<</say>>"}}})}});
  const Json second = Post(kMessages, body).json();
  EXPECT_EQ(second["content"][0]["text"], "It rains.") << second;
  EXPECT_GT(second["usage"]["cache_read_input_tokens"].get<int>(),
            first["usage"]["cache_creation_input_tokens"].get<int>() +
                first["usage"]["cache_read_input_tokens"].get<int>());
}

TEST_F(AnthropicTest, ToolsThatASearchFoundAreTold) {
  const auto answer_to = [](const Json& found) {
    Json body = Body("x", Tools());
    body["messages"].push_back({{"role", "assistant"},
                                {"content", Json::array({{{"type", "tool_use"},
                                                          {"id", "toolu_1"},
                                                          {"name", "weather"},
                                                          {"input", Json::object()}}})}});
    body["messages"].push_back({{"role", "user"},
                                {"content", Json::array({{{"type", "tool_result"},
                                                          {"tool_use_id", "toolu_1"},
                                                          {"content", found}}})}});
    std::vector<std::string> warnings;
    auto tools = ReadAnthropicTools(
        Json::array({{{"name", "Read"}, {"defer_loading", true}}, {{"name", "Edit"}}}));
    const auto read = ToChatMessages(nullptr, body["messages"], &*tools, &warnings);
    EXPECT_THAT(warnings, ::testing::IsEmpty());
    EXPECT_EQ(Post(kMessages, body).status(), read.ok() ? 200 : 400);
    return read.ok() ? read->back().parts.at(0) : std::string(Message(read.status()));
  };
  const Json read = {{"type", "tool_reference"}, {"tool_name", "Read"}};
  const Json edit = {{"type", "tool_reference"}, {"tool_name", "Edit"}};
  EXPECT_EQ(answer_to(Json::array({{{"type", "text"}, {"text", "Found"}}, read, edit})),
            "Found\nThe tool Read can be called now.\nThe tool Edit can be called now.");
  EXPECT_THAT(answer_to(Json::array({{{"type", "tool_reference"}}, read})),
              HasSubstr("content[0]"));
}

// The text of the last message before the model.
std::string LastText(const Json& blocks, std::vector<std::string>* warnings) {
  ToolCatalog tools;
  const auto read = ToChatMessages(nullptr, Json::array({{{"role", "user"}, {"content", blocks}}}),
                                   &tools, warnings);
  return read.ok() ? TextOf(read->back()) : std::string(Message(read.status()));
}

std::string ResultText(const Json& blocks, std::vector<std::string>* warnings) {
  return LastText(
      Json::array({{{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", blocks}}}),
      warnings);
}

constexpr char kDocument[] =
    "<document>\n<title>Trees</title>\n<context>From the garden</context>\n<content>\n"
    "Oaks are old.\n</content>\n</document>";
constexpr char kFound[] =
    "<search_result>\n<source>https://a.b/c</source>\n<title>Oaks</title>\n<content>\n"
    "One.\nTwo.\n</content>\n</search_result>";

TEST_F(AnthropicTest, DocumentsAndSearchResultsAreText) {
  const Json document = {
      {"type", "document"},
      {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "Oaks are old."}}},
      {"title", "Trees"},
      {"context", "From the garden"}};
  const Json parts = {{{"type", "text"}, {"text", "One."}}, {{"type", "text"}, {"text", "Two."}}};
  const Json found = {{"type", "search_result"},
                      {"source", "https://a.b/c"},
                      {"title", "Oaks"},
                      {"content", parts}};
  const Json asked = {{"type", "text"}, {"text", "How old?"}};
  std::vector<std::string> warnings;
  EXPECT_EQ(LastText({document, found, asked}, &warnings),
            std::string(kDocument) + "\n" + kFound + "\nHow old?");
  EXPECT_EQ(ResultText({found, document}, &warnings), std::string(kFound) + "\n" + kDocument);
  const Json plain = {{"type", "document"},
                      {"source", {{"type", "content"}, {"content", parts}}},
                      {"title", nullptr}};
  EXPECT_EQ(LastText({plain, asked}, &warnings),
            "<document>\n<content>\nOne.\nTwo.\n</content>\n</document>\nHow old?");
  EXPECT_THAT(warnings, ::testing::IsEmpty());

  Json cited = found;
  cited["citations"] = {{"enabled", true}};
  Json body = Body("x");
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", body["messages"][0]["content"]}},
                                    cited};
  const auto response = Post(kMessages, body);
  EXPECT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("citations are not given"));
}

TEST_F(AnthropicTest, WhatIsNoTextIsRefusedByName) {
  const auto document = [](const Json& source) {
    return Json{{"type", "document"}, {"source", source}};
  };
  const std::pair<Json, const char*> cases[] = {
      {document({{"type", "base64"}, {"media_type", "application/pdf"}, {"data", "AA=="}}),
       "a document of type application/pdf"},
      {document({{"type", "url"}, {"url", "https://a.b/c.pdf"}}), "a document of type url"},
      {document({{"type", "content"}, {"content", {{{"type", "image"}}, {{"type", "text"}}}}}),
       "source.content[0]: only text"},
      {document({{"type", "text"}}), "source: needs the string \"data\""},
      {{{"type", "search_result"}, {"source", "x"}}, "needs the string \"title\""}};
  for (const auto& [block, words] : cases) {
    std::vector<std::string> warnings;
    const Json blocks = Json::array({block});
    EXPECT_THAT(LastText(blocks, &warnings),
                ::testing::AllOf(StartsWith("messages[0].content[0]"), HasSubstr(words)));
  }
  // A tool's result is sent again with every later request.
  std::vector<std::string> warnings;
  EXPECT_EQ(ResultText(Json::array({cases[0].first}), &warnings),
            "[a document of type application/pdf was left out: this model reads text only]");
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("document in tool_result")));
}

TEST_F(AnthropicTest, TheBillingHeaderDoesNotSpoilThePrefix) {
  const auto ask = [&](const std::string& hash) {
    const Json system = Json::array(
        {{{"type", "text"}, {"text", "x-anthropic-billing-header: cc_version=2; cch=" + hash}},
         {{"type", "text"}, {"text", "You are a patient gardener. " + std::string(200, '.')}}});
    return Post(kMessages, Body("Hi", {{"system", system}})).json()["usage"];
  };
  ask("01234;");
  EXPECT_GT(ask("abcde;")["cache_read_input_tokens"], 200);
}

TEST_F(AnthropicTest, ErrorsAreAnthropics) {
  const std::pair<Json, const char*> cases[] = {
      {{{"messages", "x"}}, "messages"},
      {Body("x", {{"max_tokens", 0}}), "max_tokens"},
      {Body("x", {{"tool_choice", {{"type", "any"}}}}), "tool_choice"},
      {Body("x", {{"tools", Json::array({{{"type", "web_search_20250305"}, {"name", "w"}}})}}),
       "web_search"},
      {Body("x", {{"mcp_servers", Json::array({1})}}), "mcp_servers"},
      {Body("x", {{"thinking", {{"type", "hard"}}}}), "thinking"},
      {Body("x", {{"output_config",
                   {{"format", {{"type", "json_schema"}, {"schema", {{"type", "nothing"}}}}}}}}),
       "output_config.format.schema: "}};
  for (const auto& [body, word] : cases) {
    const auto response = Post(kMessages, body);
    EXPECT_EQ(response.status(), 400) << body;
    const Json error = response.json();
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_THAT(std::string(error["error"]["message"]), HasSubstr(word));
  }
}

TEST_F(AnthropicTest, AnyModelNameWillDo) {
  const auto answer = Post(kMessages, Body("x", {{"model", "claude"}}));
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.json()["model"], "scripted") << "the truth is told";
}

TEST_F(AnthropicTest, AFailureInTheMiddleIsAnEventAndTheEnd) {
  const auto response = Post(kMessages, Body("ab<<fail>>", {{"stream", true}}));
  const auto events = response.Events();
  EXPECT_TRUE(response.ended());
  EXPECT_EQ(events.back().name, "error");
  EXPECT_EQ(events.back().json()["type"], "error");
  EXPECT_THAT(std::string(events.back().json()["error"]["message"]), HasSubstr("no token"));
  ExpectIdle();
}

TEST_F(AnthropicTest, AClientThatLeavesEndsItsTurn) {
  MemoryResponder streamed(/*leaves_at_write=*/4);
  Post(kMessages, Body("<<slow>>" + std::string(400, 'x'), {{"stream", true}}), &streamed);
  EXPECT_FALSE(streamed.ended());
  ExpectIdle();
}

// As Anthropic's own API does.
TEST_F(AnthropicTest, EmptyContentIsRefusedButWhereAnAnswerBegins) {
  const Json user = Say("Hi");
  const auto status = [](Json messages, const Json& more = Json::object()) {
    Json body = {{"model", "m"}, {"max_tokens", 50}, {"messages", std::move(messages)}};
    body.update(more);
    const auto response = Post(kMessages, body);
    if (response.status() != 200) {
      EXPECT_EQ(response.json()["type"], "error");
      EXPECT_EQ(response.json()["error"]["type"], "invalid_request_error") << response.body();
    }
    return response.status();
  };
  const auto message = [](const char* role, Json content) {
    return Json{{"role", role}, {"content", std::move(content)}};
  };
  const auto text = [](const char* said) {
    return Json::array({{{"type", "text"}, {"text", said}}});
  };
  EXPECT_EQ(status(Json::array()), 400);
  EXPECT_EQ(status(Json::array({message("user", "")})), 400);
  EXPECT_EQ(status(Json::array({message("user", Json::array())})), 400);
  EXPECT_EQ(status(Json::array({message("user", text(""))})), 400);
  EXPECT_EQ(status(Json::array({message("user", text(" \n"))})), 400);
  EXPECT_EQ(status(Json::array({user, message("assistant", ""), user})), 400);
  EXPECT_EQ(status(Json::array({user, message("assistant", text(""))})), 400);
  EXPECT_EQ(status(Json::array({user}), {{"system", text("")}}), 400);
  EXPECT_EQ(status(Json::array({user}), {{"system", ""}}), 200);
  EXPECT_EQ(status(Json::array({user, message("assistant", "")})), 200);
  EXPECT_EQ(status(Json::array({user, message("assistant", Json::array())})), 200);
  // Answers that our models may have given must not end the conversation.
  EXPECT_EQ(status(Json::array({user, message("assistant", text(" ")), user})), 200);
  const Json image = {
      {"type", "image"},
      {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AA=="}}}};
  EXPECT_EQ(status(Json::array({message("user", Json::array({image}))})), 400);
}

}  // namespace
}  // namespace weft::serve
