#include "doors/api/repeated_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr char kNote[] = "This call has been made 3 times in a row with the same result";

struct OneRound {
  std::string name = "look";
  std::string arguments = R"({"a":1,"b":2})";
  std::string result = "nothing";
};

Conversation WithRounds(const std::vector<OneRound>& rounds) {
  Conversation conversation;
  conversation.messages.push_back({.parts = {"go"}});
  for (const OneRound& round : rounds) {
    const std::string id = StrCat("c", conversation.messages.size());
    conversation.messages.push_back(
        {.role = Role::kAssistant,
         .calls = {{.id = id, .name = round.name, .arguments = Json::parse(round.arguments)}}});
    conversation.messages.push_back({.role = Role::kTool, .parts = {round.result}, .call_id = id});
  }
  return conversation;
}

std::vector<std::string> Warnings(Conversation conversation) {
  std::vector<std::string> warnings;
  TellRepeatedCalls(/*add_notes=*/false, &conversation, &warnings);
  return warnings;
}

TEST(RepeatedCallsTest, AreToldFromTheThirdOn) {
  const OneRound look;
  EXPECT_THAT(Warnings(WithRounds({})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, look})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, look, look})),
              ElementsAre("the model has called look 3 times in a row with the same result"));
  EXPECT_THAT(Warnings(WithRounds({look, look, look, look})), ElementsAre(HasSubstr("4 times")));
}

TEST(RepeatedCallsTest, AreOfOneCallAndOneResultInARow) {
  const OneRound look;
  EXPECT_THAT(Warnings(WithRounds({look, look, {.name = "see"}})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, look, {.arguments = R"({"a":1,"b":3})"}})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, look, {.result = "something"}})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, {.name = "see"}, look, look})), IsEmpty());
  EXPECT_THAT(Warnings(WithRounds({look, {.arguments = R"({"b":2, "a":1})"}, look})),
              ElementsAre(HasSubstr("3 times")))
      << "the order of keys says nothing";
  EXPECT_THAT(Warnings(WithRounds({look, look, look, {.name = "see"}})), IsEmpty()) << "it is over";
  Conversation answered = WithRounds({look, look, look});
  answered.messages.push_back({.role = Role::kAssistant, .parts = {"There is nothing."}});
  EXPECT_THAT(Warnings(answered), IsEmpty());
}

TEST(RepeatedCallsTest, CountsCallsOfOneMessage) {
  Conversation conversation = WithRounds({{}});
  ChatMessage& calls = conversation.messages[1];
  calls.calls.push_back(calls.calls[0]);
  calls.calls.push_back(calls.calls[0]);
  for (int i = 0; i < 3; ++i) calls.calls[i].id = StrCat("p", i);
  conversation.messages.pop_back();
  for (const char* id : {"p2", "p0", "p1"}) {
    conversation.messages.push_back({.role = Role::kTool, .parts = {"nothing"}, .call_id = id});
  }
  EXPECT_THAT(Warnings(conversation), ElementsAre(HasSubstr("3 times")));
}

TEST(RepeatedCallsTest, AMessageHasTheSameNoteInEveryRequest) {
  const OneRound look;
  std::vector<OneRound> rounds(3, look);
  std::vector<std::string> before;
  for (int more = 0; more < 4; ++more) {
    Conversation conversation = WithRounds(rounds);
    std::vector<std::string> warnings;
    TellRepeatedCalls(/*add_notes=*/true, &conversation, &warnings);
    std::vector<std::string> texts;
    for (const ChatMessage& message : conversation.messages) texts.push_back(TextOf(message));
    EXPECT_THAT(texts[4], Not(HasSubstr("[")));
    EXPECT_THAT(texts[6], HasSubstr(kNote));
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(texts[i], before[i]) << i;
    before = std::move(texts);
    rounds.push_back(more == 1 ? OneRound{.result = "something"} : look);
  }
}

// --- through each API -----------------------------------------------------------------

class RepeatedCallsApiTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", testing::kScriptedContext,
              {.server = {.hold_calls = false, .note_repeated_calls = true}});
  }

  struct Door {
    const char* path;
    Json body;
  };

  static std::vector<Door> Doors(int n_rounds) {
    Json chat = Json::array({Say("x")}), messages = chat, items = chat, ollama = chat;
    for (int i = 0; i < n_rounds; ++i) {
      const std::string id = StrCat("c", i);
      const Json function = {{"name", "look"}, {"arguments", "{}"}};
      chat.push_back({{"role", "assistant"},
                      {"content", nullptr},
                      {"tool_calls",
                       Json::array({{{"id", id}, {"type", "function"}, {"function", function}}})}});
      chat.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", "nothing"}});
      messages.push_back({{"role", "assistant"},
                          {"content", Json::array({{{"type", "tool_use"},
                                                    {"id", id},
                                                    {"name", "look"},
                                                    {"input", Json::object()}}})}});
      messages.push_back({{"role", "user"},
                          {"content",
                           {{{"type", "tool_result"}, {"tool_use_id", id}, {"content", "nothing"}},
                            {{"type", "text"}, {"text", "Remember the milk."}}}}});
      items.push_back(
          {{"type", "function_call"}, {"call_id", id}, {"name", "look"}, {"arguments", "{}"}});
      items.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", "nothing"}});
      ollama.push_back(
          {{"role", "assistant"},
           {"content", ""},
           {"tool_calls",
            Json::array({{{"function", {{"name", "look"}, {"arguments", Json::object()}}}}})}});
      ollama.push_back({{"role", "tool"}, {"tool_name", "look"}, {"content", "nothing"}});
    }
    return {{"/v1/chat/completions", {{"messages", chat}, {"max_tokens", 5}}},
            {"/v1/messages", {{"messages", messages}, {"max_tokens", 5}}},
            {"/v1/responses", {{"input", items}, {"max_output_tokens", 5}}},
            {"/api/chat",
             {{"model", "scripted"}, {"messages", ollama}, {"options", {{"num_predict", 5}}}}}};
  }
};

TEST_F(RepeatedCallsApiTest, AreToldInAHeader) {
  for (const Door& door : Doors(2)) {
    EXPECT_EQ(Post(door.path, door.body).Header("X-Weft-Warning"), "") << door.path;
  }
  for (const Door& door : Doors(3)) {
    const auto response = Post(door.path, door.body);
    EXPECT_EQ(response.status(), 200) << response.body();
    EXPECT_EQ(response.Header("X-Weft-Warning"),
              "the model has called look 3 times in a row with the same result")
        << door.path;
  }
}

TEST_F(RepeatedCallsApiTest, TheNoteIsInThePromptAndThePrefixStays) {
  const Json prompt = Post("/apply-template", Doors(3)[0].body).json()["prompt"];
  EXPECT_THAT(std::string(prompt), HasSubstr(kNote));
  const Json longer = Post("/apply-template", Doors(4)[0].body).json()["prompt"];
  const std::string common =
      std::string(prompt).substr(0, std::string(prompt).rfind("<|im_start|>"));
  EXPECT_EQ(std::string(longer).substr(0, common.size()), common);
}

}  // namespace
}  // namespace weft::serve
