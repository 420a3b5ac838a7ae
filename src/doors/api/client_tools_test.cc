// Tools that are not plain functions, through each API: what the model is offered, how its calls
// are reported, and what is left out with a warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doors/api/anthropic/tools.h"
#include "doors/api/tool_catalog.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

// As the template writes a call with one argument.
std::string Call(std::string_view name, const Json& arguments) {
  const auto argument = arguments.items().begin();
  return "<tool_call>\n{\"name\": \"" + std::string(name) + "\", \"arguments\": {\"" +
         argument.key() + "\": " + argument.value().dump() + "}}\n</tool_call>";
}

class ClientToolsTest : public testing::ApiTest {
 protected:
  static Json Ask(std::string_view say, Json tools, const Json& more = Json::object()) {
    Json body = {{"input", Say(say)["content"]}, {"tools", std::move(tools)}};
    body.update(more);
    return body;
  }
  static Json Messages(std::string_view say, Json tools, const Json& more = Json::object()) {
    Json body = Chat(say, {{"tools", std::move(tools)}});
    body.update(more);
    return body;
  }
  // The prompt for the body of a chat completion.
  static std::string Prompt(const Json& body) {
    Json verbose = body;
    verbose["verbose"] = true;
    return Post(kChat, verbose).json()["__verbose"]["prompt"];
  }

  static Json Function(std::string_view name) {
    return {{"type", "function"},
            {"name", name},
            {"parameters", {{"type", "object"}, {"properties", {{"q", {{"type", "string"}}}}}}}};
  }
  static Json Agents() {
    return {{"type", "namespace"},
            {"name", "agents"},
            {"description", "Helpers"},
            {"tools", Json::array({Function("spawn")})}};
  }
  static Json Patch() {
    return {{"type", "custom"},
            {"name", "apply_patch"},
            {"description", "Edits files"},
            {"format",
             {{"type", "grammar"},
              {"syntax", "lark"},
              {"definition", "start: line+\nline: /.+/ \"\\n\"?"}}}};
  }
};

// --- the Responses API ----------------------------------------------------------------

TEST_F(ClientToolsTest, WhatRunsElsewhereIsLeftOutWithAWarning) {
  const Json tools = Json::array(
      {Function("look"), {{"type", "web_search"}}, {{"type", "mcp"}, {"server_label", "x"}}});
  const auto response = Post(kResponses, Ask(Call("look", {{"q", "a"}}), tools));
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.Header("X-Weft-Warning"),
            "tools that this server cannot run were left out: web_search, mcp");
  EXPECT_EQ(response.json()["output"][0]["name"], "look") << response.body();
  EXPECT_EQ(response.json()["tools"], tools) << "a response repeats its request";
  const auto streamed = Post(kResponses, Ask("x", tools, {{"stream", true}}));
  EXPECT_THAT(streamed.Header("X-Weft-Warning"), HasSubstr("web_search"));
  EXPECT_EQ(Post(kResponses, Ask("x", Json::array({Function("look")}))).Header("X-Weft-Warning"),
            "");
}

TEST_F(ClientToolsTest, WhereNothingRemainsItIsAnError) {
  const Json tools = Json::array({{{"type", "web_search"}}});
  const auto refused = Post(kResponses, Ask("x", tools));
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(refused.json()["error"]["param"], "tools");
  EXPECT_EQ(refused.json()["error"]["code"], "unsupported_parameter");
  EXPECT_THAT(std::string(refused.json()["error"]["message"]), HasSubstr("web_search"));
  const auto without = Post(kResponses, Ask("x", tools, {{"tool_choice", "none"}}));
  EXPECT_EQ(without.status(), 200) << without.body();
  EXPECT_THAT(without.Header("X-Weft-Warning"), HasSubstr("web_search"));
}

TEST_F(ClientToolsTest, AChoiceOfWhatWasLeftOutIsAnError) {
  const Json tools = Json::array({Function("look"), {{"type", "web_search"}}});
  const auto refused =
      Post(kResponses, Ask("x", tools, {{"tool_choice", {{"type", "web_search"}}}}));
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(refused.json()["error"]["param"], "tool_choice");
  EXPECT_THAT(std::string(refused.json()["error"]["message"]),
              HasSubstr("names web_search, a tool that this server cannot run"));
}

TEST_F(ClientToolsTest, AFunctionOfANamespaceComesBackWithIt) {
  const Json tools = Json::array({Function("look"), Agents()});
  const auto response = Post(kResponses, Ask(Call("agents__spawn", {{"q", "a"}}), tools));
  EXPECT_EQ(response.Header("X-Weft-Warning"), "");
  const Json call = response.json()["output"][0];
  EXPECT_EQ(call["type"], "function_call") << response.body();
  EXPECT_EQ(call["name"], "spawn");
  EXPECT_EQ(call["namespace"], "agents");
  EXPECT_EQ(Json::parse(std::string(call["arguments"])), Json({{"q", "a"}}));
  for (const SseEvent& event :
       Post(kResponses, Ask(Call("agents__spawn", {{"q", "a"}}), tools, {{"stream", true}}))
           .Events()) {
    if (!event.name.starts_with("response.output_item")) continue;
    EXPECT_EQ(event.json()["item"]["namespace"], "agents") << event.name;
    EXPECT_EQ(event.json()["item"]["name"], "spawn") << event.name;
  }
}

TEST_F(ClientToolsTest, ACallThatIsSentBackIsTheOneThatTheModelMade) {
  Json body =
      Ask("Well.\n" + Call("agents__spawn", {{"q", "a"}}), Json::array({Agents(), Patch()}));
  body["input"] = Json::array({{{"role", "user"}, {"content", body["input"]}}});
  const Json first = Post(kResponses, body).json();
  for (const Json& item : first["output"]) body["input"].push_back(item);
  body["input"].push_back(
      {{"type", "function_call_output"},
       {"call_id", first["output"].back()["call_id"]},
       {"output", "<<say>>" + Call("apply_patch", {{"input", "+ a"}}) + "<</say>>"}});
  const Json second = Post(kResponses, body).json();
  // The whole first prompt and its answer were cached: the names are again the model's.
  EXPECT_GT(second["usage"]["input_tokens_details"]["cached_tokens"].get<int>(),
            first["usage"]["input_tokens"].get<int>());
  for (const Json& item : second["output"]) body["input"].push_back(item);
  body["input"].push_back({{"type", "custom_tool_call_output"},
                           {"call_id", second["output"].back()["call_id"]},
                           {"output", "<<say>>done<</say>>"}});
  const Json third = Post(kResponses, body).json();
  EXPECT_EQ(third["output"][0]["content"][0]["text"], "done") << third;
  EXPECT_GT(third["usage"]["input_tokens_details"]["cached_tokens"].get<int>(),
            second["usage"]["input_tokens"].get<int>());
}

TEST_F(ClientToolsTest, ACustomToolTakesOneText) {
  const Json tools = Json::array({Patch()});
  const std::string say = Call("apply_patch", {{"input", "*** Begin\n\"a\"\n"}});
  const Json call = Post(kResponses, Ask(say, tools)).json()["output"][0];
  EXPECT_EQ(call["type"], "custom_tool_call") << call;
  EXPECT_EQ(call["name"], "apply_patch");
  EXPECT_EQ(call["input"], "*** Begin\n\"a\"\n");
  EXPECT_FALSE(call.contains("arguments"));
  EXPECT_FALSE(call.contains("namespace"));
  std::vector<std::string> names;
  Json last;
  for (const SseEvent& event : Post(kResponses, Ask(say, tools, {{"stream", true}})).Events()) {
    names.push_back(event.name);
    if (event.name == "response.custom_tool_call_input.delta") {
      EXPECT_EQ(event.json()["delta"], "*** Begin\n\"a\"\n");
    }
    last = event.json();
  }
  EXPECT_THAT(
      names,
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(last["response"]["output"][0]["input"], "*** Begin\n\"a\"\n");
}

TEST_F(ClientToolsTest, ItemsOfForeignToolsAreLeftOutOfTheInput) {
  Json body = Ask("x", Json::array({Function("look")}));
  body["input"] = Json::array({{{"type", "web_search_call"}, {"id", "ws_1"}},
                               {{"role", "user"}, {"content", body["input"]}}});
  const auto response = Post(kResponses, body);
  EXPECT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("web_search_call"));
}

TEST_F(ClientToolsTest, MisshapenToolsNameTheirPlace) {
  const std::pair<Json, const char*> cases[] = {
      {Json::array({1}), "tools[0]"},
      {Json::array({{{"name", "x"}}}), "tools[0]"},
      {Json::array({{{"type", "function"}}}), "tools[0]"},
      {Json::array({{{"type", "custom"}}}), "tools[0]"},
      {Json::array({{{"type", "namespace"}, {"name", "n"}}}), "tools[0]"},
      {Json::array({{{"type", "namespace"}, {"name", "n"}, {"tools", Json::array({1})}}}),
       "tools[0].tools[0]"},
      {Json::array({Function("agents__spawn"), Agents()}), "tools[1].tools[0]"}};
  for (const auto& [tools, param] : cases) {
    const auto response = Post(kResponses, Ask("x", tools));
    EXPECT_EQ(response.status(), 400) << tools;
    EXPECT_EQ(response.json()["error"]["param"], param) << response.body();
  }
}

TEST(ToolCatalogTest, ManyToolsAreNotShownInAHeader) {
  Json tools = Json::array({{{"type", "function"}, {"name", "look"}}});
  for (int i = 0; i < 40; ++i) tools.push_back({{"type", "x\r\nY: " + std::to_string(i)}});
  const auto catalog = ReadResponsesTools(tools);
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  std::vector<std::string> warnings;
  catalog->Warn(&warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("and 24 more"), Not(HasSubstr("\n"))));
}

TEST(ToolCatalogTest, AModelMayForgetTheNamespace) {
  const auto catalog = ReadResponsesTools(Json::parse(R"([
    {"type": "namespace", "name": "a__", "tools": [{"type": "function", "name": "one"},
                                                   {"type": "function", "name": "two"}]},
    {"type": "namespace", "name": "b", "tools": [{"type": "function", "name": "two"}]}])"));
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_EQ(catalog->Find("a__one").name, "one");
  EXPECT_EQ(catalog->Find("one").name_space, "a__");
  EXPECT_EQ(catalog->Find("b__two").name_space, "b");
  EXPECT_EQ(catalog->Find("two").name_space, "") << "of two namespaces";
}

TEST(ToolCatalogTest, TheTextOfACustomCall) {
  EXPECT_EQ(CustomInput(R"({"input": "a\n"})"), "a\n");
  EXPECT_EQ(CustomInput(R"({"patch": "a"})"), "a");
  EXPECT_EQ(CustomInput(R"({"a": 1, "b": 2})"), R"({"a": 1, "b": 2})");
  EXPECT_EQ(CustomInput("{\"inp"), "{\"inp");
  EXPECT_EQ(CustomInput(CustomArguments("x \"y\"").dump()), "x \"y\"");
}

TEST_F(ClientToolsTest, APictureThatAToolGaveIsNotTheEnd) {
  Json body = Ask("x", Json::array({Function("look")}));
  const Json picture = {{"type", "input_image"}, {"image_url", "data:image/png;base64,AA=="}};
  body["input"] = Json::array(
      {{{"role", "user"}, {"content", "look"}},
       {{"type", "function_call"}, {"call_id", "c"}, {"name", "look"}, {"arguments", "{}"}},
       {{"type", "function_call_output"}, {"call_id", "c"}, {"output", Json::array({picture})}},
       {{"role", "user"}, {"content", body["input"]}}});
  const auto response = Post(kResponses, body);
  EXPECT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("input_image in an output"));
  body["input"] = Json::array({{{"role", "user"}, {"content", Json::array({picture})}}});
  EXPECT_EQ(Post(kResponses, body).status(), 400) << "of the user's it matters";
}

// --- chat completions -----------------------------------------------------------------

TEST_F(ClientToolsTest, ChatsLeaveOutWhatRunsElsewhere) {
  const Json search = {{"type", "web_search"}, {"web_search", {{"enable", true}}}};
  const auto response = Post(kChat, Messages("x", Json::array({WeatherTool(), search})));
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("left out: web_search"));
  EXPECT_EQ(Post(kChat, Messages("x", Json::array({search}))).status(), 400);
  const Json choice = {{"tool_choice", {{"type", "web_search"}}}};
  EXPECT_THAT(Post(kChat, Messages("x", Json::array({WeatherTool(), search}), choice)).body(),
              HasSubstr("names web_search"));
}

TEST_F(ClientToolsTest, CustomToolsInChats) {
  const Json custom = {
      {"type", "custom"},
      {"custom",
       {{"name", "apply_patch"},
        {"format",
         {{"type", "grammar"},
          {"grammar", {{"syntax", "lark"}, {"definition", "start: /[+-].*/"}}}}}}}};
  Json body = Messages(
      Call("apply_patch", {{"input", "+a"}}) + "\n" + Call("get_weather", {{"city", "Bonn"}}),
      Json::array({custom, WeatherTool()}));
  EXPECT_THAT(Prompt(body), HasSubstr("It must follow this lark grammar:"));
  const Json message = Post(kChat, body).json()["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 2u) << message;
  EXPECT_EQ(message["tool_calls"][0]["type"], "custom");
  EXPECT_EQ(message["tool_calls"][0]["custom"], Json({{"name", "apply_patch"}, {"input", "+a"}}));
  EXPECT_EQ(message["tool_calls"][1]["type"], "function");

  Json streamed = body;
  streamed["stream"] = true;
  std::vector<Json> calls;
  for (const SseEvent& event : Post(kChat, streamed).Events()) {
    const Json chunk = event.json();
    if (!chunk.is_object()) continue;  // [DONE]
    const Json delta = chunk["choices"][0]["delta"];
    if (delta.contains("tool_calls")) calls.push_back(delta["tool_calls"][0]);
  }
  ASSERT_GE(calls.size(), 3u);
  EXPECT_EQ(calls[0]["type"], "custom");
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[0]["custom"]["input"], "+a");
  EXPECT_EQ(calls[1]["type"], "function");
  EXPECT_EQ(calls[1]["index"], 1);

  body["messages"].push_back(message);
  body["messages"].push_back({{"role", "tool"},
                              {"tool_call_id", message["tool_calls"][0]["id"]},
                              {"content", "<<say>>done<</say>>"}});
  const Json next = Post(kChat, body).json();
  EXPECT_EQ(next["choices"][0]["message"]["content"], "done") << next;
}

// --- Anthropic's messages -------------------------------------------------------------

TEST_F(ClientToolsTest, ToolsThatAnthropicDefinesAreOfferedAndCalled) {
  const Json tools =
      Json::array({{{"type", "bash_20250124"}, {"name", "bash"}},
                   {{"type", "text_editor_20250728"}, {"name", "str_replace_based_edit_tool"}},
                   {{"type", "memory_20250818"}, {"name", "memory"}}});
  const auto response =
      Post(kMessages, Messages(Call("bash", {{"command", "ls"}}), tools, {{"max_tokens", 200}}));
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.Header("X-Weft-Warning"), "");
  const Json block = response.json()["content"][0];
  EXPECT_EQ(block["type"], "tool_use") << response.body();
  EXPECT_EQ(block["name"], "bash");
  EXPECT_EQ(block["input"], Json({{"command", "ls"}}));
}

TEST(AnthropicToolsTest, HaveTheSchemasOfTheirDays) {
  const auto properties = [](const char* type, const char* name) {
    auto catalog = ReadAnthropicTools(Json::array({{{"type", type}, {"name", name}}}));
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    EXPECT_EQ(catalog->functions().size(), 1u) << type;
    EXPECT_EQ(catalog->functions()[0]->name, name);
    return (*catalog->functions()[0]->parameters())["properties"];
  };
  for (const char* type : {"bash_20241022", "bash_20250124"}) {
    const Json bash = properties(type, "bash");
    EXPECT_TRUE(bash.contains("command") && bash.contains("restart")) << bash;
  }
  for (const char* type : {"text_editor_20241022", "text_editor_20250124"}) {
    const Json editor = properties(type, "str_replace_editor");
    EXPECT_FALSE(editor.contains("insert_text"));
    EXPECT_THAT(editor["command"]["enum"].dump(), HasSubstr("undo_edit"));
  }
  for (const char* type : {"text_editor_20250429", "text_editor_20250728"}) {
    const Json editor = properties(type, "str_replace_based_edit_tool");
    EXPECT_TRUE(editor.contains("insert_text"));
    EXPECT_THAT(editor["command"]["enum"].dump(), Not(HasSubstr("undo_edit")));
  }
  const Json memory = properties("memory_20250818", "memory");
  for (const char* name : {"path", "file_text", "insert_text", "old_path", "new_path"}) {
    EXPECT_TRUE(memory.contains(name)) << name;
  }
}

TEST_F(ClientToolsTest, MessagesLeaveOutWhatAnthropicRuns) {
  const Json client = {{"name", "look"}, {"input_schema", {{"type", "object"}}}};
  const Json search = {{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 3}};
  const Json computer = {{"type", "computer_20250124"}, {"name", "computer"}};
  const Json tools = Json::array({client, search, computer});
  Json body = Messages("x", tools);
  const auto response = Post(kMessages, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.Header("X-Weft-Warning"),
            "tools that this server cannot run were left out: web_search (web_search_20250305), "
            "computer (computer_20250124)");
  EXPECT_EQ(Post("/v1/messages/count_tokens", body).status(), 200);
  body["tool_choice"] = {{"type", "tool"}, {"name", "web_search"}};
  EXPECT_THAT(Post(kMessages, body).body(), HasSubstr("names web_search"));
  EXPECT_EQ(Post(kMessages, Messages("x", Json::array({search}))).status(), 400);
}

TEST_F(ClientToolsTest, APictureInAToolResultIsNotTheEnd) {
  const Json picture = {{"type", "image"}, {"source", {{"type", "base64"}, {"data", "AA=="}}}};
  const Json body = {
      {"messages",
       Json::array(
           {{{"role", "user"}, {"content", "look"}},
            {{"role", "assistant"},
             {"content", Json::array({{{"type", "tool_use"},
                                       {"id", "t"},
                                       {"name", "look"},
                                       {"input", Json::object()}}})}},
            {{"role", "user"},
             {"content", Json::array({{{"type", "tool_result"},
                                       {"tool_use_id", "t"},
                                       {"content", Json::array({picture})}},
                                      {{"type", "text"}, {"text", Say("seen")["content"]}}})}}})}};
  const auto response = Post(kMessages, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.json()["content"][0]["text"], "seen");
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("image in tool_result"));
}

TEST_F(ClientToolsTest, BlocksOfServerToolsAreLeftOutOfTheMessages) {
  Json body = {{"messages",
                Json::array({{{"role", "user"}, {"content", "find it"}},
                             {{"role", "assistant"},
                              {"content", Json::array({{{"type", "server_tool_use"},
                                                        {"id", "srv_1"},
                                                        {"name", "web_search"},
                                                        {"input", Json::object()}},
                                                       {{"type", "web_search_tool_result"},
                                                        {"tool_use_id", "srv_1"},
                                                        {"content", Json::array()}},
                                                       {{"type", "text"}, {"text", "Found."}}})}},
                             Say("good")})}};
  const auto response = Post(kMessages, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.json()["content"][0]["text"], "good");
  EXPECT_THAT(response.Header("X-Weft-Warning"), HasSubstr("web_search_tool_result"));
}

}  // namespace
}  // namespace weft::serve
