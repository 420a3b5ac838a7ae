// Variables of the chat template and what becomes of earlier thoughts, in the requests of all APIs.
#include "doors/api/template_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "doors/api/anthropic/request.h"
#include "doors/api/ollama/request.h"
#include "doors/api/openai/chat_request.h"
#include "doors/api/responses/request.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr char kPastThought[] = "ponder-this";
constexpr char kShut[] = "<think>\n\n</think>";

// A question, an answer after a thought, and another question; in the form of each API.
Json ChatBody() {
  return {{"messages",
           {{{"role", "user"}, {"content", "Hi"}},
            {{"role", "assistant"}, {"content", "Hello."}, {"reasoning_content", kPastThought}},
            {{"role", "user"}, {"content", "Bye"}}}}};
}

Json MessagesBody() {
  Json body = ChatBody();
  body["max_tokens"] = 10;
  body["messages"][1] = {{"role", "assistant"},
                         {"content",
                          {{{"type", "thinking"}, {"thinking", kPastThought}, {"signature", "s"}},
                           {{"type", "text"}, {"text", "Hello."}}}}};
  return body;
}

Json ResponsesBody() {
  const Json thought = {{{"type", "reasoning_text"}, {"text", kPastThought}}};
  return {{"input",
           {{{"role", "user"}, {"content", "Hi"}},
            {{"type", "reasoning"}, {"summary", Json::array()}, {"content", thought}},
            {{"role", "assistant"}, {"content", "Hello."}},
            {{"role", "user"}, {"content", "Bye"}}}}};
}

Json OllamaBody() {
  Json body = ChatBody();
  body["model"] = "scripted";
  body["messages"][1] = {{"role", "assistant"}, {"content", "Hello."}, {"thinking", kPastThought}};
  return body;
}

class TemplateFieldsTest : public testing::ApiTest {
 protected:
  struct Door {
    const char* name;
    Json body;
    StatusOr<std::string> (*prompt)(const HttpRequest&);  // that the model sees
  };

  template <typename Read>
  static StatusOr<std::string> PromptOf(StatusOr<Read> read, const HttpRequest& request) {
    if (!read.ok()) return read.status();
    return host().answerer().PromptText(read->ask);
  }

  static std::vector<Door> Doors() {
    return {{"/v1/chat/completions", ChatBody(),
             [](const HttpRequest& r) { return PromptOf(ReadChatCompletion(host(), r), r); }},
            {"/v1/messages", MessagesBody(),
             [](const HttpRequest& r) { return PromptOf(ReadMessages(host(), r), r); }},
            {"/v1/responses", ResponsesBody(),
             [](const HttpRequest& r) { return PromptOf(ReadResponses(host(), r), r); }},
            {"/api/chat", OllamaBody(),
             [](const HttpRequest& r) { return PromptOf(ReadOllamaChat(host(), r), r); }},
            {"/apply-template", ChatBody(), [](const HttpRequest& r) {
               return StatusOr<std::string>(
                   std::string(Post("/apply-template", r.body).json()["prompt"]));
             }}};
  }

  static HttpRequest RequestOf(const Json& body) {
    HttpRequest request;
    request.body = body.dump();
    return request;
  }

  static std::string Prompt(const Door& door, const Json& more) {
    Json body = door.body;
    body.update(more);
    auto prompt = door.prompt(RequestOf(body));
    EXPECT_TRUE(prompt.ok()) << door.name << prompt.status();
    return prompt.ok() ? *prompt : "";
  }

  static Json Kwargs(Json variables) { return {{"chat_template_kwargs", std::move(variables)}}; }

  static std::string Messages(const Json& more) { return Prompt(Doors()[1], more); }
  static Json Edits(Json edits) { return {{"context_management", {{"edits", std::move(edits)}}}}; }
};

TEST_F(TemplateFieldsTest, EveryApiTakesTheTemplatesVariables) {
  for (const Door& door : Doors()) {
    EXPECT_THAT(Prompt(door, Json::object()), HasSubstr(kPastThought)) << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"clear_thinking", true}})), Not(HasSubstr(kPastThought)))
        << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"clear_thinking", false}})), HasSubstr(kPastThought))
        << door.name;
    // Another template's name for it.
    EXPECT_THAT(Prompt(door, Kwargs({{"preserve_thinking", false}})), Not(HasSubstr(kPastThought)))
        << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"enable_thinking", false}})), HasSubstr(kShut)) << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"enable_thinking", true}})), Not(HasSubstr(kShut)))
        << door.name;
  }
}

TEST_F(TemplateFieldsTest, TheyCountMoreThanOtherFields) {
  const Json on = Kwargs({{"enable_thinking", true}}), off = Kwargs({{"enable_thinking", false}});
  const auto with = [](Json body, const char* name, const Json& value) {
    body[name] = value;
    return body;
  };
  const std::vector<Door> doors = Doors();
  EXPECT_THAT(Prompt(doors[0], with(on, "enable_thinking", false)), Not(HasSubstr(kShut)));
  EXPECT_THAT(Prompt(doors[1], with(on, "thinking", {{"type", "disabled"}})),
              Not(HasSubstr(kShut)));
  EXPECT_THAT(Prompt(doors[1], with(off, "thinking", {{"type", "adaptive"}})), HasSubstr(kShut));
  EXPECT_THAT(Prompt(doors[2], with(on, "reasoning", {{"effort", "none"}})), Not(HasSubstr(kShut)));
  EXPECT_THAT(Prompt(doors[3], with(off, "think", true)), HasSubstr(kShut));
}

TEST_F(TemplateFieldsTest, WrongOnesAreRefusedEverywhere) {
  const std::pair<Json, const char*> kCases[] = {
      {"x", "chat_template_kwargs must be an object"},
      {Json::array(), "chat_template_kwargs must be an object"},
      {{{"messages", 1}}, "chat_template_kwargs cannot set messages"},
      {{{"eos_token", ""}}, "chat_template_kwargs cannot set eos_token"},
      {{{"return_reasoning", 1}}, "chat_template_kwargs has a return_reasoning that is not a"}};
  for (const auto& [value, why] : kCases) {
    for (const Door& door : Doors()) {
      Json body = door.body;
      body["chat_template_kwargs"] = value;
      const auto response = Post(door.name, body);
      EXPECT_EQ(response.status(), 400) << door.name;
      EXPECT_THAT(response.body(), HasSubstr(why)) << door.name;
    }
  }
}

TEST_F(TemplateFieldsTest, OllamasGenerateHasThemUnlessItHasNoTemplate) {
  Json body = {{"model", "scripted"}, {"prompt", "Hi"}};
  body.update(Kwargs({{"enable_thinking", false}}));
  EXPECT_THAT(*PromptOf(ReadOllamaGenerate(host(), RequestOf(body)), RequestOf(body)),
              HasSubstr(kShut));
  body["raw"] = true;
  EXPECT_THAT(Post("/api/generate", body).body(),
              HasSubstr("chat_template_kwargs cannot be combined with raw"));
}

TEST_F(TemplateFieldsTest, ContextManagementKeepsAndClearsThoughts) {
  const auto clear = [](const Json& more) {
    Json edit = {{"type", "clear_thinking_20251015"}};
    edit.update(more);
    return Edits(Json::array({edit}));
  };
  EXPECT_THAT(Messages(clear({{"keep", "all"}})), HasSubstr(kPastThought));
  EXPECT_THAT(Messages(clear({{"keep", {{"type", "all"}}}})), HasSubstr(kPastThought));
  EXPECT_THAT(Messages(clear({{"keep", {{"type", "thinking_turns"}, {"value", 1}}}})),
              Not(HasSubstr(kPastThought)));
  EXPECT_THAT(Messages(clear(Json::object())), Not(HasSubstr(kPastThought)));
  for (const Json& nothing : {Json(nullptr), Json::object(), Json({{"edits", Json::array()}})}) {
    EXPECT_THAT(Messages({{"context_management", nothing}}), HasSubstr(kPastThought));
  }
  // The variables say more than the edit.
  Json both = clear({{"keep", "all"}});
  both.update(Kwargs({{"preserve_thinking", false}}));
  EXPECT_THAT(Messages(both), Not(HasSubstr(kPastThought)));
}

TEST_F(TemplateFieldsTest, OtherEditsAreToldAsIgnored) {
  Json body = MessagesBody();
  body.update(Edits({{{"type", "clear_thinking_20251015"}, {"keep", "all"}},
                     {{"type", "clear_tool_uses_20250919"}, {"keep", {{"type", "tool_uses"}}}}}));
  body["context_management"]["mood"] = 1;
  const auto response = Post("/v1/messages", body);
  EXPECT_EQ(response.status(), 200) << response.body();
  EXPECT_EQ(response.Header("X-Weft-Ignored"),
            "context_management.clear_tool_uses_20250919, context_management.mood");
}

// A client that sends it in each request must not fail with a kind that is new.
TEST_F(TemplateFieldsTest, UnknownKindsOfKeepingAreToldAsIgnored) {
  for (const Json& keep : {Json("most"), Json({{"type", "thinking_days"}})}) {
    Json body = MessagesBody();
    body.update(Edits({{{"type", "clear_thinking_20251015"}, {"keep", keep}}}));
    const auto response = Post("/v1/messages", body);
    EXPECT_EQ(response.status(), 200) << response.body();
    EXPECT_EQ(response.Header("X-Weft-Ignored"), "context_management.clear_thinking_20251015.keep");
    EXPECT_THAT(Messages(body), HasSubstr(kPastThought));
  }
}

TEST_F(TemplateFieldsTest, MalformedEditsAreRefused) {
  const Json edit = {{"type", "clear_thinking_20251015"}};
  const auto keeping = [&](const Json& keep) {
    Json changed = edit;
    changed["keep"] = keep;
    return Json{{"edits", Json::array({changed})}};
  };
  constexpr char kKeep[] = "has a clear_thinking_20251015 whose keep is neither";
  const std::pair<Json, const char*> kCases[] = {
      {"all", "context_management"},
      {{{"edits", edit}}, "context_management must have an array of edits"},
      {{{"edits", {1}}}, "must have edits that are objects with a type"},
      {{{"edits", Json::array({Json::object()})}}, "must have edits that are objects with a type"},
      {keeping(1), kKeep},
      {keeping("thinking_turns"), kKeep},
      {keeping({{"type", "thinking_turns"}}), kKeep},
      {keeping({{"type", "thinking_turns"}, {"value", 0}}), kKeep},
      {keeping({{"type", "thinking_turns"}, {"value", "2"}}), kKeep}};
  for (const auto& [value, why] : kCases) {
    Json body = MessagesBody();
    body["context_management"] = value;
    const auto response = Post("/v1/messages", body);
    EXPECT_EQ(response.status(), 400) << value;
    EXPECT_THAT(response.body(), HasSubstr(why)) << value;
  }
}

TEST_F(TemplateFieldsTest, PropsTellTheVariable) {
  const Json props = Get("/props");
  EXPECT_EQ(
      props["past_thoughts"],
      Json({{"kept", true}, {"variable", "clear_thinking"}, {"keep", false}, {"clear", true}}));
  EXPECT_EQ(props["chat_template_caps"]["supports_preserve_reasoning"], true);
}

class OperatorsVariablesTest : public TemplateFieldsTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", testing::kScriptedContext,
              {.thinking = {.thinks = false,
                            .variables = {{"clear_thinking", true}, {"enable_thinking", true}}}});
  }
};

TEST_F(OperatorsVariablesTest, CountWhereARequestDoesNotSay) {
  for (const Door& door : Doors()) {
    const std::string prompt = Prompt(door, Json::object());
    EXPECT_THAT(prompt, Not(HasSubstr(kPastThought))) << door.name;
    EXPECT_THAT(prompt, Not(HasSubstr(kShut))) << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"clear_thinking", false}})), HasSubstr(kPastThought))
        << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"preserve_reasoning", true}})), HasSubstr(kPastThought))
        << door.name;
    EXPECT_THAT(Prompt(door, Kwargs({{"enable_thinking", false}})), HasSubstr(kShut)) << door.name;
  }
  EXPECT_THAT(
      Messages(Edits(Json::array({{{"type", "clear_thinking_20251015"}, {"keep", "all"}}}))),
      HasSubstr(kPastThought));
  EXPECT_THAT(Messages({{"thinking", {{"type", "disabled"}}}}), HasSubstr(kShut));
  EXPECT_EQ(Get("/props")["past_thoughts"]["kept"], false);
}

}  // namespace
}  // namespace weft::serve
