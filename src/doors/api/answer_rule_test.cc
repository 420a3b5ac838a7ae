// Answers of a required form, through every API that has a name for it. The scripted model says
// what it is told if that is allowed; otherwise the turn fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using Json = nlohmann::ordered_json;

constexpr char kFits[] = R"({"city": "Bonn", "rain": true})";

class AnswerRuleTest : public testing::ApiTest {
 protected:
  static Json Schema() {
    return {{"type", "object"},
            {"properties", {{"city", {{"type", "string"}}}, {"rain", {{"type", "boolean"}}}}},
            {"required", Json::array({"city", "rain"})},
            {"additionalProperties", false}};
  }
  static Json Nested(Json schema) {
    return {
        {"type", "json_schema"},
        {"json_schema", {{"name", "weather"}, {"strict", true}, {"schema", std::move(schema)}}}};
  }
  static Json Flat(Json schema) {
    return {{"type", "json_schema"}, {"name", "weather"}, {"schema", std::move(schema)}};
  }

  struct Door {
    const char* path;
    const char* field;  // the field that constrains the answer
    Json value;
  };
  static std::vector<Door> Doors() {
    const Json schema = Schema();
    const Json fields = {{"json", schema}};
    return {{"/v1/chat/completions", "response_format", Nested(schema)},
            {"/v1/chat/completions", "json_schema", schema},
            {"/v1/chat/completions", "guided_json", schema.dump()},
            {"/v1/chat/completions", "structured_outputs", fields},
            {"/v1/completions", "response_format", Nested(schema)},
            {"/v1/completions", "guided_json", schema},
            {"/v1/responses", "text", {{"format", Flat(schema)}}},
            {"/v1/messages", "output_config", {{"format", Flat(schema)}}},
            {"/v1/messages", "output_format", Flat(schema)},
            {"/completion", "json_schema", schema},
            {"/api/chat", "format", schema},
            {"/api/generate", "format", schema},
            {"/v1/messages", "guided_json", schema},
            {"/v1/responses", "structured_outputs", fields},
            {"/api/chat", "json_schema", schema}};
  }
  static Json Body(std::string_view path, std::string_view say) {
    const Json message = Say(say);
    Json body = {{"max_tokens", 300}};
    if (path == "/v1/responses") return {{"input", message["content"]}};
    if (path.find("ompletion") != path.npos && path.find("chat") == path.npos) {
      body["prompt"] = message["content"];
    } else if (path == "/api/generate") {
      body = {{"model", "scripted"}, {"prompt", message["content"]}, {"stream", false}};
    } else {
      body["messages"] = Json::array({message});
    }
    if (path == "/v1/messages" || path == "/api/chat") body["model"] = "scripted";
    if (path == "/api/chat") body["stream"] = false;
    return body;
  }
  static std::string TextOf(const MemoryResponder& response) {
    const Json body = response.json();
    for (const char* const place :
         {"/choices/0/message/content", "/choices/0/text", "/output/0/content/0/text",
          "/content/0/text", "/message/content", "/response", "/content"}) {
      const Json::json_pointer pointer{std::string(place)};
      if (body.contains(pointer) && body[pointer].is_string()) return body[pointer];
    }
    return StrCat("no answer: ", response.body());
  }
  static MemoryResponder Chat(std::string_view say, const Json& more) {
    Json body = Body("/v1/chat/completions", say);
    body.update(more);
    return Post("/v1/chat/completions", body);
  }
};

TEST_F(AnswerRuleTest, EveryDoorHoldsTheAnswerToItsSchema) {
  for (const Door& door : Doors()) {
    Json body = Body(door.path, kFits);
    body[door.field] = door.value;
    const auto fits = Post(door.path, body);
    EXPECT_EQ(fits.status(), 200) << door.path << " " << door.field << fits.body();
    EXPECT_EQ(TextOf(fits), kFits) << door.path << " " << door.field;

    for (const char* const other : {"Bonn", R"({"city": "Bonn"})", R"({"rain": true})"}) {
      body = Body(door.path, other);
      EXPECT_EQ(TextOf(Post(door.path, body)), other);
      body[door.field] = door.value;
      EXPECT_NE(Post(door.path, body).status(), 200) << door.path << " " << door.field;
    }
  }
  ExpectIdle();
}

TEST_F(AnswerRuleTest, EveryDoorRefusesWhatItCannotEnforce) {
  for (Door& door : Doors()) {
    std::string text = door.value.dump();
    const std::string boolean =
        text.find('\\') == text.npos ? R"({"type":"boolean"})" : R"({\"type\":\"boolean\"})";
    const std::string regex =
        text.find('\\') == text.npos ? R"({"format":"regex"})" : R"({\"format\":\"regex\"})";
    text.replace(text.find(boolean), boolean.size(), regex);
    Json body = Body(door.path, kFits);
    body[door.field] = Json::parse(text);
    const auto response = Post(door.path, body);
    EXPECT_EQ(response.status(), 400) << door.path << " " << door.field;
    EXPECT_THAT(response.body(), HasSubstr("format at #/properties/rain"))
        << door.path << " " << door.field;
  }
}

TEST_F(AnswerRuleTest, OtherForms) {
  const std::pair<Json, const char*> cases[] = {
      {{{"response_format", {{"type", "json_object"}}}}, R"({"a": [1, "b"]})"},
      {{{"response_format", {{"type", "json_object"}, {"schema", Schema()}}}}, kFits},
      {{{"grammar", "root ::= \"yes\" | \"no\""}}, "yes"},
      {{{"guided_grammar", "root ::= [a-c]+"}}, "abcabc"},
      {{{"guided_regex", "[0-9]{3}-[0-9]{4}"}}, "555-1234"},
      {{{"guided_choice", {"tea", "coffee"}}}, "coffee"},
      {{{"structured_outputs", {{"regex", "[a-z]+"}}}}, "abc"},
      {{{"structured_outputs", {{"choice", {"tea", "coffee"}}}}}, "tea"},
      {{{"structured_outputs", {{"json_object", true}, {"disable_any_whitespace", true}}}},
       R"({"a":1})"},
      {{{"regex", "[a-z]+"}}, "abc"},
      {{{"ebnf", "root ::= \"x\"{2,3}"}}, "xx"}};
  for (const auto& [more, text] : cases) {
    const auto fits = Chat(text, more);
    EXPECT_EQ(fits.status(), 200) << more << fits.body();
    EXPECT_EQ(TextOf(fits), text) << more;
    EXPECT_NE(Chat("Certainly!", more).status(), 200) << more;
  }
  EXPECT_EQ(Chat("x", {{"response_format", {{"type", "text"}}}, {"grammar", ""}}).status(), 200);
}

TEST_F(AnswerRuleTest, ALazyGrammarWaitsForItsTrigger) {
  Json lazy = {{"grammar", "root ::= \"<go>\" (\"left\" | \"right\") \"!\"+"},
               {"grammar_lazy", true}};
  lazy["grammar_triggers"] = Json::array({{{"type", 1}, {"value", "<go>"}}});
  for (const char* const text : {"No < go, none.", "Well: <go>left!", "<go>right!!"}) {
    EXPECT_EQ(TextOf(Chat(text, lazy)), text);
  }
  EXPECT_NE(Chat("Well: <go>up!", lazy).status(), 200);
  EXPECT_NE(Chat("<go>left! And on.", lazy).status(), 200);
  lazy["grammar_triggers"] = Json::array({{{"type", 2}, {"value", "<[a-z]+>"}}});
  EXPECT_EQ(TextOf(Chat("It is <go>right!", lazy)), "It is <go>right!");
  EXPECT_NE(Chat("It is <come>right!", lazy).status(), 200);
}

TEST_F(AnswerRuleTest, OneFormAtATime) {
  const auto both = Chat("x", {{"regex", "x"}, {"grammar", "root ::= \"x\""}});
  EXPECT_EQ(both.status(), 400);
  EXPECT_THAT(both.body(), HasSubstr("regex cannot be combined with grammar"));
  for (const Json& more : {Json{{"ignore_eos", true}}, Json{{"min_tokens", 3}}}) {
    Json body = more;
    body["response_format"] = {{"type", "json_object"}};
    const auto response = Chat("{}", body);
    EXPECT_EQ(response.status(), 400);
    EXPECT_THAT(response.body(), HasSubstr("an answer of a required form"));
  }
}

TEST_F(AnswerRuleTest, ErrorsNameTheField) {
  const std::pair<Json, const char*> cases[] = {
      {{{"response_format", {{"type", "xml"}}}}, "response_format"},
      {{{"response_format", "json"}}, "response_format"},
      {{{"response_format", {{"type", "json_schema"}}}}, "response_format"},
      {{{"response_format", Nested({{"type", "nothing"}})}}, "response_format.json_schema.schema"},
      {{{"json_schema", 7}}, "json_schema"},
      {{{"grammar", "root ="}}, "grammar"},
      {{{"guided_regex", "(a"}}, "guided_regex"},
      {{{"guided_choice", {1, 2}}}, "guided_choice"},
      {{{"structured_outputs", {{"regex", "(a"}}}}, "structured_outputs.regex"},
      {{{"structured_outputs", {{"structural_tag", "x"}}}}, "structured_outputs.structural_tag"},
      {{{"grammar", "root ::= \"x\""}, {"grammar_lazy", true}}, "grammar_triggers"},
      {{{"grammar_lazy", true}, {"grammar_triggers", Json::array({{{"type", 1}, {"value", "x"}}})}},
       "grammar_lazy"}};
  for (const auto& [more, param] : cases) {
    const auto response = Chat("x", more);
    EXPECT_EQ(response.status(), 400) << more;
    EXPECT_EQ(response.json()["error"]["param"], param) << response.body();
  }
}

TEST_F(AnswerRuleTest, AnAnswerThatIsBegunIsGoneOnWith) {
  Json body = Body("/v1/chat/completions", R"("Bonn", "rain": true})");
  body["messages"].push_back({{"role", "assistant"}, {"content", R"({"city": )"}});
  body["response_format"] = Nested(Schema());
  const auto response = Post("/v1/chat/completions", body);
  EXPECT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(TextOf(response), HasSubstr(R"("Bonn", "rain": true})"));
  body["messages"].back()["content"] = Json::array({{{"type", "text"}, {"text", R"({"city": )"}}});
  EXPECT_THAT(TextOf(Post("/v1/chat/completions", body)), HasSubstr(R"("Bonn", "rain": true})"));
  body["messages"].back()["content"] = "Sure: ";
  const auto refused = Post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status(), 400);
  EXPECT_THAT(refused.body(), HasSubstr("from byte 0 on"));
}

TEST_F(AnswerRuleTest, ALimitCutsIt) {
  const auto response = Chat(kFits, {{"response_format", Nested(Schema())}, {"max_tokens", 9}});
  EXPECT_EQ(response.json()["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(std::string_view(kFits).starts_with(TextOf(response)));
}

TEST_F(AnswerRuleTest, ResponsesTellTheirFormat) {
  Json body = Body("/v1/responses", kFits);
  body["text"] = {{"format", Flat(Schema())}};
  EXPECT_EQ(Post("/v1/responses", body).json()["text"]["format"]["name"], "weather");
}

}  // namespace
}  // namespace weft::serve
