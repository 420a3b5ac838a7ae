// Answers that may or must call tools, or a certain one: if the scripted model says something that
// is not allowed, the turn fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string CallText(std::string_view name, std::string_view arguments) {
  return StrCat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": ", arguments,
                "}\n</tool_call>");
}

const char kBonn[] = R"({"city": "Bonn"})";

// Calls are held to their tools, as in a server.
class ToolChoiceTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", testing::kScriptedContext, {.server = {.hold_calls = true}});
  }

  static Json Tool(std::string_view name, const Json& more = Json::object()) {
    Json function = {{"name", name},
                     {"parameters",
                      {{"type", "object"},
                       {"properties", {{"city", {{"type", "string"}}}}},
                       {"required", Json::array({"city"})},
                       {"additionalProperties", false}}}};
    function.update(more);
    return {{"type", "function"}, {"function", std::move(function)}};
  }
  static Json Chat(std::string_view say, const Json& more = Json::object()) {
    Json body = ApiTest::Chat(
        say, {{"tools", Json::array({Tool("weather"), Tool("clock")})}, {"max_tokens", 400}});
    body.update(more);
    return body;
  }
  // The names of the called functions; "refused" if the model was not allowed to say it.
  static std::vector<std::string> Calls(const Json& body) {
    const auto response = Post("/v1/chat/completions", body);
    if (response.status() != 200) return {"refused"};
    std::vector<std::string> names;
    const Json message = response.json()["choices"][0]["message"];
    for (const Json& call : message.value("tool_calls", Json::array())) {
      names.push_back(call["function"]["name"]);
    }
    return names;
  }
  static Json Choice(Json choice) { return {{"tool_choice", std::move(choice)}}; }
  static Json Named(std::string_view name) {
    return {{"type", "function"}, {"function", {{"name", name}}}};
  }
};

using Names = std::vector<std::string>;

TEST_F(ToolChoiceTest, RequiredIsACallAndNothingElse) {
  const Json required = Choice("required");
  EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), required)), Names{"weather"});
  EXPECT_EQ(
      Calls(Chat(StrCat(CallText("weather", kBonn), "\n", CallText("clock", kBonn)), required)),
      (Names{"weather", "clock"}));
  EXPECT_EQ(Calls(Chat("It rains.", required)), Names{"refused"});
  EXPECT_EQ(Calls(Chat(CallText("nothing", kBonn), required)), Names{"refused"});
  EXPECT_EQ(Calls(Chat(CallText("weather", R"({"city": 3})"), required)), Names{"refused"});
  EXPECT_EQ(Calls(Chat(CallText("weather", "{}"), required)), Names{"refused"});
}

TEST_F(ToolChoiceTest, ANamedToolIsTheOneThatIsCalled) {
  EXPECT_EQ(Calls(Chat(CallText("clock", kBonn), Choice(Named("clock")))), Names{"clock"});
  EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), Choice(Named("clock")))), Names{"refused"});
  for (const char* const mode : {"auto", "required"}) {
    const Json allowed =
        Choice({{"type", "allowed_tools"},
                {"allowed_tools", {{"mode", mode}, {"tools", Json::array({Named("clock")})}}}});
    EXPECT_EQ(Calls(Chat(CallText("clock", kBonn), allowed)), Names{"clock"});
    EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), allowed)), Names{"refused"});
    const Names text = Calls(Chat("It rains.", allowed));
    EXPECT_EQ(text, std::string_view(mode) == "auto" ? Names{} : Names{"refused"});
  }
}

TEST_F(ToolChoiceTest, ACallThatIsBegunFitsItsTool) {
  EXPECT_EQ(Calls(Chat("It rains.")), Names{});
  EXPECT_EQ(Calls(Chat(StrCat("Let me see.\n", CallText("weather", kBonn)))), Names{"weather"});
  EXPECT_EQ(Calls(Chat(CallText("weather", R"({"town": "Bonn"})"))), Names{"refused"});
  EXPECT_EQ(Calls(Chat("<tool_call>\nweather in Bonn\n</tool_call>")), Names{"refused"});
  EXPECT_EQ(Calls(Chat(CallText("weather", R"({"town": 1})"), Choice("none"))), Names{});
}

TEST_F(ToolChoiceTest, OneCallWhereSeveralAreNotWanted) {
  const Json single = {{"tool_choice", "required"}, {"parallel_tool_calls", false}};
  EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), single)), Names{"weather"});
}

// Its constraint ends the answer: no token after the call is computed in vain.
TEST_F(ToolChoiceTest, ANamedToolIsCalledOnce) {
  const std::string once = CallText("clock", kBonn);
  const std::string twice = StrCat(once, "\n", CallText("clock", R"({"city": "Rome"})"));
  EXPECT_EQ(Calls(Chat(twice, Choice("required"))), (Names{"clock", "clock"}));
  EXPECT_EQ(Calls(Chat(twice, Choice(Named("clock")))), Names{"refused"});
  const Json chat = Post("/v1/chat/completions", Chat(once, Choice(Named("clock")))).json();
  EXPECT_EQ(chat["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(chat["usage"]["completion_tokens"], once.size() + 1) << "one per letter, and the end";

  const Json parameters = Tool("clock")["function"]["parameters"];
  Json body = {{"model", "scripted"},
               {"max_tokens", 400},
               {"messages", Json::array({Say(twice)})},
               {"tool_choice", {{"type", "tool"}, {"name", "clock"}}},
               {"tools", Json::array({{{"name", "clock"}, {"input_schema", parameters}}})}};
  EXPECT_NE(Post("/v1/messages", body).status(), 200);
  body["messages"] = Json::array({Say(once)});
  const Json message = Post("/v1/messages", body).json();
  EXPECT_EQ(message["content"].size(), 1u) << message;
  EXPECT_EQ(message["stop_reason"], "tool_use");
}

TEST_F(ToolChoiceTest, RequiredCallsEndWhereOneIsRepeated) {
  const std::string bonn = CallText("weather", kBonn),
                    rome = CallText("weather", R"({"city": "Rome"})");
  const std::string long_bonn = CallText("weather", R"({"city": "Bonn am Rhein"})");
  const auto asked = [](const std::vector<std::string>& calls) {
    return Chat(StrJoin(calls, "\n"), {{"tool_choice", "required"}, {"max_tokens", 2000}});
  };
  EXPECT_EQ(Calls(asked({bonn, bonn, bonn, bonn})), Names{"weather"});
  EXPECT_EQ(Calls(asked({bonn, rome, rome})), (Names{"weather", "weather"}));
  EXPECT_EQ(Calls(asked({bonn, rome, bonn})), (Names{"weather", "weather", "weather"}));
  EXPECT_EQ(Calls(asked({bonn, long_bonn, bonn})), (Names{"weather", "weather", "weather"}));
  EXPECT_EQ(Calls(asked({bonn, CallText("clock", kBonn)})), (Names{"weather", "clock"}));
  EXPECT_EQ(Post("/v1/chat/completions", asked({bonn, bonn})).json()["choices"][0]["finish_reason"],
            "tool_calls");
  // Who does not ask for a call gets what the model says.
  EXPECT_EQ(Calls(Chat(StrCat(bonn, "\n", bonn))), (Names{"weather", "weather"}));
  // Streams show no part of it either.
  Json streamed = asked({bonn, long_bonn, long_bonn});
  streamed["stream"] = true;
  std::vector<std::string> arguments;
  for (const auto& event : Post("/v1/chat/completions", streamed).Events()) {
    const Json data = event.json();
    if (!data.is_object() || data["choices"].empty()) continue;
    for (const Json& call : data["choices"][0]["delta"].value("tool_calls", Json::array())) {
      arguments.resize(std::max<size_t>(arguments.size(), call["index"].get<size_t>() + 1));
      arguments[call["index"]] += call["function"].value("arguments", "");
    }
  }
  EXPECT_THAT(arguments, ElementsAre(kBonn, R"({"city": "Bonn am Rhein"})"));
}

TEST_F(ToolChoiceTest, StrictToolsMustBeEnforceable) {
  const Json odd = {
      {"parameters", {{"type", "object"}, {"properties", {{"p", {{"format", "regex"}}}}}}}};
  Json body = Chat(CallText("odd", R"({"p": "a"})"));
  body["tools"] = Json::array({Tool("odd", odd)});
  EXPECT_EQ(Calls(body), Names{"odd"});  // not required
  Json strict = odd;
  strict["strict"] = true;
  body["tools"] = Json::array({Tool("odd", strict)});
  const auto refused = Post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_EQ(refused.json()["error"]["param"], "tools");
  body["tools"] = Json::array({Tool("odd", odd)});
  body["tool_choice"] = "required";
  const auto named = Post("/v1/chat/completions", body);
  EXPECT_EQ(named.status(), 400);
  EXPECT_THAT(named.body(), HasSubstr("odd"));
}

// {"type": "grammar", ...} in chat completions is nested one level deeper than in responses.
Json CustomTool(const Json& grammar, bool nested) {
  Json format = {{"type", "grammar"}};
  if (nested) {
    format["grammar"] = grammar;
    return {{"type", "custom"}, {"custom", {{"name", "add"}, {"format", format}}}};
  }
  format.update(grammar);
  return {{"type", "custom"}, {"name", "add"}, {"format", format}};
}

TEST_F(ToolChoiceTest, ACustomToolsTextMatchesItsGrammar) {
  const Json sums = {{"syntax", "lark"},
                     {"definition", "start: line+\nline: /[0-9]+/ \"\\n\"? \"\\\"\"?"}};
  const Json digits = {{"syntax", "regex"}, {"definition", "[0-9]+\\n?"}};
  const auto status = [](const Json& grammar, const std::string& input) {
    Json body = Chat(CallText("add", Json{{"input", input}}.dump()));
    body["tools"] = Json::array({CustomTool(grammar, true)});
    const auto chat = Post("/v1/chat/completions", body);
    body["input"] = body["messages"][0]["content"];
    body.erase("messages");
    body["max_output_tokens"] = body["max_tokens"];
    body.erase("max_tokens");
    body["tools"] = Json::array({CustomTool(grammar, false)});
    const auto response = Post("/v1/responses", body);
    EXPECT_EQ(chat.status(), response.status()) << response.body();
    if (chat.status() == 200) {
      EXPECT_EQ(chat.json()["choices"][0]["message"]["tool_calls"][0]["custom"]["input"], input);
      EXPECT_EQ(response.json()["output"][0]["input"], input) << response.body();
    }
    return chat.status();
  };
  EXPECT_EQ(status(sums, "12\n3\""), 200);
  EXPECT_EQ(status(digits, "12\n"), 200);
  EXPECT_NE(status(sums, "12\n\n"), 200);
  EXPECT_NE(status(digits, "12x"), 200);
  // What cannot be enforced is refused.
  EXPECT_EQ(status({{"syntax", "lark"}, {"definition", "start: word"}}, "12"), 400);
  EXPECT_EQ(status({{"syntax", "regex"}, {"definition", "(a)\\1"}}, "12"), 400);
  EXPECT_EQ(status({{"syntax", "ebnf"}, {"definition", "root ::= [0-9]"}}, "12"), 400);
}

TEST_F(ToolChoiceTest, StrictIsReadAtEveryDoor) {
  const Json odd = {{"type", "object"}, {"properties", {{"p", {{"format", "regex"}}}}}};
  for (const Json& strict : {Json(true), Json(false), Json()}) {
    const int expected = strict == true ? 400 : 200;
    Json body = Chat("x");
    body["tools"] = Json::array({Tool("odd", {{"parameters", odd}, {"strict", strict}})});
    EXPECT_EQ(Post("/v1/chat/completions", body).status(), expected) << strict;
    body["tools"] = Json::array({{{"name", "odd"}, {"input_schema", odd}, {"strict", strict}}});
    EXPECT_EQ(Post("/v1/messages", body).status(), expected) << strict;
    body["input"] = body["messages"][0]["content"];
    body.erase("messages");
    body.erase("max_tokens");
    body["tools"] = Json::array(
        {{{"type", "function"}, {"name", "odd"}, {"parameters", odd}, {"strict", strict}}});
    EXPECT_EQ(Post("/v1/responses", body).status(), expected) << strict;
  }
  Json body = Chat("x");
  body["tools"] = Json::array({Tool("odd", {{"strict", "yes"}})});
  const auto refused = Post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_THAT(refused.body(), HasSubstr("tools[0].function.strict: must be true or false"));
}

TEST_F(ToolChoiceTest, WhatKeepsARepliesEndAwayDoesNotGoWithAForm) {
  for (const Json& more : {Json{{"ignore_eos", true}}, Json{{"min_tokens", 200}}}) {
    Json body = Chat(CallText("weather", kBonn), more);
    body["tool_choice"] = "required";
    const auto refused = Post("/v1/chat/completions", body);
    EXPECT_EQ(refused.status(), 400);
    EXPECT_THAT(refused.body(), HasSubstr("cannot be combined with a reply of a required form"));
  }
  // Without strictness the form is not enforced.
  EXPECT_EQ(Calls(Chat(CallText("weather", R"({"town": 1})"), {{"min_tokens", 5}})),
            Names{"weather"});
}

TEST_F(ToolChoiceTest, OtherToolsThanThoseAllowedAreNotCalledInAnotherShapeEither) {
  const Json allowed =
      Choice({{"type", "allowed_tools"},
              {"allowed_tools", {{"mode", "auto"}, {"tools", Json::array({Named("clock")})}}}});
  const std::string bare = R"({"name": "weather", "arguments": {"city": "Bonn"}})";
  EXPECT_EQ(Calls(Chat(bare)), Names{"weather"});
  EXPECT_EQ(Calls(Chat(bare, allowed)), Names{});
}

TEST_F(ToolChoiceTest, ACallOrAnAnswerOfAGivenForm) {
  const Json more = {{"response_format", {{"type", "json_object"}}}};
  EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), more)), Names{"weather"});
  EXPECT_EQ(Calls(Chat(R"({"rain": true})", more)), Names{});
  EXPECT_EQ(Calls(Chat("It rains.", more)), Names{"refused"});
  const Json grammar = {{"grammar", "root ::= \"yes\" | \"no\""}};
  EXPECT_EQ(Calls(Chat(CallText("weather", kBonn), grammar)), Names{"weather"});
  EXPECT_EQ(Calls(Chat("no", grammar)), Names{});
  EXPECT_EQ(Calls(Chat("nothing", grammar)), Names{"refused"});
}

TEST_F(ToolChoiceTest, OtherDoors) {
  Json tool = Tool("weather")["function"];
  tool["type"] = "function";
  const auto responses = [&](std::string_view say, Json choice) {
    return Post("/v1/responses", {{"input", Say(say)["content"]},
                                  {"tools", Json::array({tool})},
                                  {"tool_choice", std::move(choice)}});
  };
  for (const Json& choice : {Json("required"), Json{{"type", "function"}, {"name", "weather"}}}) {
    const auto called = responses(CallText("weather", kBonn), choice);
    EXPECT_EQ(called.json()["output"][0]["type"], "function_call") << called.body();
    EXPECT_NE(responses("It rains.", choice).json()["status"], "completed");
  }
  const auto messages = [&](std::string_view say, Json choice) {
    return Post(
        "/v1/messages",
        {{"model", "scripted"},
         {"max_tokens", 400},
         {"messages", Json::array({Say(say)})},
         {"tools", Json::array({{{"name", "weather"}, {"input_schema", tool["parameters"]}}})},
         {"tool_choice", std::move(choice)}});
  };
  for (const Json& choice : {Json{{"type", "any"}}, Json{{"type", "tool"}, {"name", "weather"}}}) {
    const auto called = messages(CallText("weather", kBonn), choice);
    EXPECT_EQ(called.json()["content"][0]["type"], "tool_use") << called.body();
    EXPECT_NE(messages("It rains.", choice).status(), 200);
  }
}

TEST_F(ToolChoiceTest, ErrorsNameTheField) {
  for (const Json& choice :
       {Json("perhaps"), Json(3), Named("nothing"), Json{{"type", "function"}},
        Json{{"type", "allowed_tools"}},
        Json{{"type", "allowed_tools"},
             {"allowed_tools", {{"mode", "auto"}, {"tools", Json::array()}}}}}) {
    const auto response = Post("/v1/chat/completions", Chat("x", Choice(choice)));
    EXPECT_EQ(response.status(), 400) << choice;
    EXPECT_EQ(response.json()["error"]["param"], "tool_choice") << response.body();
  }
  Json body = Chat("x", Choice("required"));
  body.erase("tools");
  EXPECT_THAT(Post("/v1/chat/completions", body).body(), HasSubstr("there are no tools"));
}

}  // namespace
}  // namespace weft::serve
