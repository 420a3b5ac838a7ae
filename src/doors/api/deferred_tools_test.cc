// Tools that the model sees only after the conversation has named them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/anthropic/request.h"
#include "doors/api/responses/request.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SseEvent;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

class DeferredToolsTest : public testing::ApiTest {
 protected:
  static HttpRequest RequestOf(const Json& body) {
    HttpRequest request;
    request.body = body.dump();
    return request;
  }
  template <typename Read>
  static std::string PromptOf(const HttpRequest& request, const StatusOr<Read>& read) {
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) return "";
    const auto prompt = host().answerer().PromptText(read->ask);
    EXPECT_TRUE(prompt.ok()) << prompt.status();
    return prompt.ok() ? *prompt : "";
  }
  static std::string MessagesPrompt(const Json& body) {
    const HttpRequest request = RequestOf(body);
    return PromptOf(request, ReadMessages(host(), request));
  }
  static std::string ResponsesPrompt(const Json& body) {
    const HttpRequest request = RequestOf(body);
    return PromptOf(request, ReadResponses(host(), request));
  }
  // The names of the tools that a prompt shows, in order.
  static std::vector<std::string> ToolsIn(const std::string& prompt) {
    std::vector<std::string> names;
    for (const std::string_view line : StrSplit(prompt, '\n')) {
      if (!line.starts_with("{\"type\"")) continue;
      names.push_back(Json::parse(line)["function"]["name"]);
    }
    return names;
  }
  static std::string UntilToolsEnd(const std::string& prompt) {
    return prompt.substr(0, prompt.find("</tools>"));
  }

  // --- Anthropic's ---------------------------------------------------------------------
  static Json Tool(std::string_view name, bool deferred) {
    Json tool = {{"name", name}, {"input_schema", {{"type", "object"}}}};
    if (deferred) tool["defer_loading"] = true;
    return tool;
  }
  static Json Body(const std::vector<std::vector<std::string>>& found) {
    Json messages = Json::array({{{"role", "user"}, {"content", "<<say>>x<</say>>"}}});
    for (const auto& names : found) {
      const std::string id = StrCat("toolu_", messages.size());
      Json references = Json::array();
      for (const auto& name : names) {
        references.push_back({{"type", "tool_reference"}, {"tool_name", name}});
      }
      messages.push_back({{"role", "assistant"},
                          {"content", Json::array({{{"type", "tool_use"},
                                                    {"id", id},
                                                    {"name", "ToolSearch"},
                                                    {"input", Json::object()}}})}});
      messages.push_back({{"role", "user"},
                          {"content", Json::array({{{"type", "tool_result"},
                                                    {"tool_use_id", id},
                                                    {"content", references}}})}});
    }
    return {{"max_tokens", 10},
            {"messages", messages},
            {"tools",
             {Tool("DeferredToolPlaceholder", true), Tool("ToolSearch", false), Tool("Fetch", true),
              Tool("Draw", true), Tool("Read", false)}}};
  }

  // --- OpenAI's ------------------------------------------------------------------------
  static Json Function(std::string_view name, bool deferred) {
    Json tool = {{"type", "function"}, {"name", name}, {"parameters", {{"type", "object"}}}};
    if (deferred) tool["defer_loading"] = true;
    return tool;
  }
  static Json Search() {
    return {
        {"type", "tool_search"},
        {"execution", "client"},
        {"description", "Finds tools"},
        {"parameters", {{"type", "object"}, {"properties", {{"query", {{"type", "string"}}}}}}}};
  }
  static Json Space(Json functions) {
    return {{"type", "namespace"},
            {"name", "mail"},
            {"description", "Letters"},
            {"tools", std::move(functions)}};
  }
  static Json Input(std::string_view say) {
    return Json::array({{{"role", "user"}, {"content", StrCat("<<say>>", say, "<</say>>")}}});
  }
};

TEST_F(DeferredToolsTest, AreNotShownUntilAReferenceNamesThem) {
  const std::string before = MessagesPrompt(Body({}));
  EXPECT_THAT(ToolsIn(before), ElementsAre("ToolSearch", "Read"));
  EXPECT_THAT(before, Not(HasSubstr("Placeholder")));
  const std::string one = MessagesPrompt(Body({{"Draw"}}));
  EXPECT_THAT(ToolsIn(one), ElementsAre("ToolSearch", "Read", "Draw"));
  EXPECT_THAT(
      one, AllOf(StartsWith(UntilToolsEnd(before)), HasSubstr("The tool Draw can be called now.")));
  const std::string both = MessagesPrompt(Body({{"Draw"}, {"Read", "Fetch", "Draw"}}));
  EXPECT_THAT(ToolsIn(both), ElementsAre("ToolSearch", "Read", "Draw", "Fetch"));
  EXPECT_THAT(both, StartsWith(UntilToolsEnd(one)));
}

TEST_F(DeferredToolsTest, ThePrefixOfThePromptStays) {
  Json body = Body({});
  // Whole pages of tokens.
  body["tools"][4]["description"] = std::string(800, 'x');
  const Json first = Post(kMessages, body).json()["usage"];
  Json found = Body({{"Fetch"}});
  found["tools"] = body["tools"];
  const Json second = Post(kMessages, found).json()["usage"];
  EXPECT_GT(second["cache_read_input_tokens"].get<int>(), 800) << first << second;
}

TEST_F(DeferredToolsTest, AReferenceToNoToolIsToldToTheModel) {
  const std::string prompt = MessagesPrompt(Body({{"Gone"}}));
  EXPECT_THAT(prompt, HasSubstr("The tool Gone is not available."));
  EXPECT_THAT(ToolsIn(prompt), ElementsAre("ToolSearch", "Read"));
}

TEST_F(DeferredToolsTest, ASearchOnAnthropicsServersNamesThemToo) {
  Json body = Body({});
  body["messages"].push_back({{"role", "assistant"},
                              {"content",
                               {{{"type", "tool_search_tool_result"},
                                 {"tool_use_id", "srvtoolu_1"},
                                 {"content",
                                  {{"type", "tool_search_tool_search_result"},
                                   {"tool_references", Json::array({{{"type", "tool_reference"},
                                                                     {"tool_name", "Fetch"}}})}}}},
                                {{"type", "text"}, {"text", "Found."}}}}});
  body["messages"].push_back(Say("x"));
  EXPECT_THAT(ToolsIn(MessagesPrompt(body)), ElementsAre("ToolSearch", "Read", "Fetch"));
  body["tools"].push_back(
      {{"type", "tool_search_tool_regex_20251119"}, {"name", "tool_search_tool_regex"}});
  EXPECT_THAT(Post(kMessages, body).Header("X-Weft-Warning"),
              HasSubstr("deferred tools stay hidden"));
}

TEST_F(DeferredToolsTest, CannotBeChosenBefore) {
  Json body = Body({});
  body["tool_choice"] = {{"type", "tool"}, {"name", "Draw"}};
  const auto refused = Post(kMessages, body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_THAT(refused.body(), HasSubstr("names Draw, a deferred tool"));
  body["messages"] = Body({{"Draw"}})["messages"];
  body["max_tokens"] = 100;
  body["messages"].push_back(
      Say("<tool_call>\n{\"name\": \"Draw\", \"arguments\": {}}\n</tool_call>"));
  const auto chosen = Post(kMessages, body);
  ASSERT_EQ(chosen.status(), 200) << chosen.body();
  EXPECT_EQ(chosen.json()["content"][0]["name"], "Draw") << chosen.body();
  body["tools"][0]["defer_loading"] = "yes";
  EXPECT_THAT(Post(kMessages, body).body(), HasSubstr("tools[0].defer_loading: "));
}

TEST_F(DeferredToolsTest, ASearchThatTheClientRunsIsCalledAndAnswered) {
  const std::string say =
      "<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"query\": "
      "\"mail\"}}\n</tool_call>";
  Json body = {{"input", Input(say)},
               {"tools", {Search(), Function("look", false), Function("draw", true)}}};
  const auto first = Post(kResponses, body);
  ASSERT_EQ(first.status(), 200) << first.body();
  EXPECT_EQ(first.Header("X-Weft-Warning"), "");
  const Json call = first.json()["output"][0];
  EXPECT_EQ(call["type"], "tool_search_call") << first.body();
  EXPECT_EQ(call["execution"], "client");
  EXPECT_EQ(call["arguments"], Json({{"query", "mail"}}));
  EXPECT_EQ(call["status"], "completed");

  const std::string before = ResponsesPrompt(body);
  EXPECT_THAT(ToolsIn(before), ElementsAre("tool_search", "look"));
  body["input"].push_back(call);
  body["input"].push_back({{"type", "tool_search_output"},
                           {"call_id", call["call_id"]},
                           {"status", "completed"},
                           {"execution", "client"},
                           {"tools",
                            {Space(Json::array({Function("send", true), Function("fetch", true)})),
                             Function("draw", true), Function("look", false)}}});
  const std::string after = ResponsesPrompt(body);
  EXPECT_THAT(ToolsIn(after),
              ElementsAre("tool_search", "look", "mail__send", "mail__fetch", "draw"));
  EXPECT_THAT(after, AllOf(StartsWith(UntilToolsEnd(before)),
                           HasSubstr("\"arguments\": {\"query\": \"mail\"}"),
                           HasSubstr("The tool mail__send can be called now.")));
  body["input"].push_back(
      Say("<tool_call>\n{\"name\": \"mail__send\", \"arguments\": {}}\n</tool_call>"));
  const Json sent = Post(kResponses, body).json()["output"][0];
  EXPECT_EQ(sent["name"], "send") << sent;
  EXPECT_EQ(sent["namespace"], "mail");
}

TEST_F(DeferredToolsTest, ASearchIsStreamedAsOneItem) {
  const Json body = {
      {"input", Input("<tool_call>\n{\"name\": \"tool_search\", \"arguments\": {\"query\": "
                      "\"mail\"}}\n</tool_call>")},
      {"tools", Json::array({Search()})},
      {"stream", true}};
  std::vector<std::string> names;
  Json done;
  for (const SseEvent& event : Post(kResponses, body).Events()) {
    names.push_back(event.name);
    if (event.name == "response.output_item.done") done = event.json()["item"];
  }
  EXPECT_THAT(names,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(done["arguments"], Json({{"query", "mail"}}));
}

TEST_F(DeferredToolsTest, ItemsAddToolsToTheOthers) {
  const Json tools =
      Json::array({Function("look", false), Space(Json::array({Function("send", true)}))});
  Json body = {{"input", Input("x")}, {"tools", tools}};
  const std::string before = ResponsesPrompt(body);
  EXPECT_THAT(ToolsIn(before), ElementsAre("look"));
  // What a search on OpenAI's servers found.
  body["input"].push_back({{"type", "tool_search_output"},
                           {"call_id", nullptr},
                           {"execution", "server"},
                           {"tools", Json::array({Space(Json::array({Function("send", true)}))})}});
  body["input"].push_back({{"type", "additional_tools"},
                           {"role", "developer"},
                           {"tools", Json::array({Function("draw", false)})}});
  const std::string after = ResponsesPrompt(body);
  EXPECT_THAT(ToolsIn(after), ElementsAre("look", "mail__send", "draw"));
  EXPECT_THAT(after, AllOf(StartsWith(UntilToolsEnd(before)), Not(HasSubstr("can be called"))));
  body["input"].push_back({{"type", "tool_search_output"}, {"call_id", "c"}, {"tools", 1}});
  EXPECT_THAT(Post(kResponses, body).body(), HasSubstr("input[3].tools: "));
}

}  // namespace
}  // namespace weft::serve
