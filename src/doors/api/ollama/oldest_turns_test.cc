// Conversations that are longer than the context, as clients of Ollama send them.
#include "doors/api/ollama/oldest_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/ollama/request.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

constexpr int kTurnsContext = 1024;

class OldestTurnsTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() { SetUpWith("llama", kTurnsContext); }

  static Json Message(std::string_view role, const std::string& text) {
    return {{"role", role}, {"content", text}};
  }
  static Json Body(Json messages) {
    return {{"model", "scripted"}, {"messages", std::move(messages)}, {"stream", false}};
  }
  // A system message, `n` turns of about 100 tokens, and a question.
  static Json Turns(int n) {
    Json messages = Json::array({Message("system", "Be kind.")});
    for (int i = 0; i < n; ++i) {
      messages.push_back(Message("user", StrCat("question ", i, " ", std::string(40, '?'))));
      messages.push_back(Message("assistant", StrCat("answer ", i, " ", std::string(40, '!'))));
    }
    messages.push_back(Message("user", "Well? <<say>>Yes.<</say>>"));
    return Body(std::move(messages));
  }
  // A question and `n` calls of about 100 tokens with their results.
  static Json Calls(int n) {
    Json messages = Json::array({Message("user", "Look! <<say>>Seen.<</say>>")});
    for (int i = 0; i < n; ++i) {
      const Json arguments = {{"at", StrCat("place ", i)}};
      messages.push_back(
          {{"role", "assistant"},
           {"content", ""},
           {"tool_calls",
            Json::array({{{"function", {{"name", "look"}, {"arguments", arguments}}}}})}});
      messages.push_back(Message("tool", StrCat("result ", i, " ", std::string(60, '.'))));
    }
    return Body(std::move(messages));
  }

  // The prompt of a shortened conversation.
  static std::string Shortened(const Json& body) {
    HttpRequest request;
    request.body = body.dump();
    auto read = ReadOllamaChat(host(), request);
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok()) return "";
    EXPECT_NE(DropOldestTurns(host(), &read->ask), "");
    const auto prompt = host().answerer().PromptText(read->ask);
    return prompt.ok() ? *prompt : "";
  }
};

TEST_F(OldestTurnsTest, AreDroppedAndTold) {
  const auto whole = Post(kOllamaChat, Turns(2));
  EXPECT_EQ(whole.Header("X-Weft-Warning"), "") << "it fits";
  for (const char* truncate : {"{}", R"({"truncate": true})"}) {
    Json body = Turns(30);
    body.update(Json::parse(truncate));
    const auto response = Post(kOllamaChat, body);
    ASSERT_EQ(response.status(), 200) << response.body();
    EXPECT_EQ(response.json()["message"]["content"], "Yes.");
    EXPECT_THAT(response.Header("X-Weft-Warning"),
                AllOf(HasSubstr("the oldest "), HasSubstr(" messages were dropped"),
                      HasSubstr("1024 tokens")));
    EXPECT_LT(response.json()["prompt_eval_count"], kTurnsContext - kTurnsContext / 8 + 1);
    body["stream"] = true;
    EXPECT_THAT(Post(kOllamaChat, body).Header("X-Weft-Warning"), HasSubstr("were dropped"));
  }
  ExpectIdle();
}

TEST_F(OldestTurnsTest, AreNotDroppedIfTheClientForbidsIt) {
  Json body = Turns(30);
  body["truncate"] = false;
  const auto response = Post(kOllamaChat, body);
  EXPECT_EQ(response.status(), 400);
  EXPECT_THAT(response.body(), HasSubstr("context"));
}

TEST_F(OldestTurnsTest, SystemMessagesAndTheLastQuestionStay) {
  const std::string prompt = Shortened(Turns(30));
  EXPECT_THAT(prompt, AllOf(HasSubstr("Be kind."), HasSubstr("Well?"), HasSubstr("answer 29"),
                            Not(HasSubstr("question 0 ")), Not(HasSubstr("answer 0 "))));
  // No turn without its beginning.
  const size_t first = prompt.find("question ");
  EXPECT_LT(first, prompt.find("answer "));
  // What cannot be shortened is refused as it was.
  Json body = Turns(30);
  body["messages"].back()["content"] = std::string(2 * kTurnsContext, 'x');
  EXPECT_EQ(Post(kOllamaChat, body).status(), 400);
  Json long_system = Turns(30);
  long_system["messages"][0]["content"] = std::string(2 * kTurnsContext, 'x');
  EXPECT_EQ(Post(kOllamaChat, long_system).status(), 400);
}

TEST_F(OldestTurnsTest, ResultsGoWithTheirCalls) {
  const std::string prompt = Shortened(Calls(30));
  EXPECT_THAT(prompt, AllOf(HasSubstr("Look!"), HasSubstr("place 29"), HasSubstr("result 29"),
                            Not(HasSubstr("place 0\"")), Not(HasSubstr("result 0 "))));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(prompt.find(StrCat("place ", i, "\"")) == prompt.npos,
              prompt.find(StrCat("result ", i, " ")) == prompt.npos)
        << i;
  }
}

TEST_F(OldestTurnsTest, AGrowingConversationBeginsAlikeForAWhile) {
  int n_changes = 0;
  std::string before;
  for (int n = 30; n < 60; ++n) {
    const std::string prompt = Shortened(Turns(n));
    const std::string oldest = prompt.substr(prompt.find("question "), 12);
    if (oldest != before) ++n_changes;
    before = oldest;
  }
  // Thirty turns are about a dozen quarters of the context.
  EXPECT_LE(n_changes, 16);
  EXPECT_GE(n_changes, 8);
}

TEST_F(OldestTurnsTest, AGenerationsContextLosesItsOldestTokens) {
  std::vector<int32_t> context = {host().model().tokenizer()->bos()};
  for (int i = 0; i < 2 * kTurnsContext; ++i) context.push_back(100 + i % 50);
  Json body = {{"model", "scripted"},
               {"prompt", "Well? <<say>>Yes.<</say>>"},
               {"context", context},
               {"stream", false}};
  const auto response = Post(kOllamaGenerate, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  EXPECT_THAT(response.Header("X-Weft-Warning"),
              AllOf(HasSubstr("the oldest "), HasSubstr(" tokens of context were dropped")));
  const auto after = response.json()["context"].get<std::vector<int32_t>>();
  EXPECT_LE(after.size(), static_cast<size_t>(kTurnsContext));
  EXPECT_EQ(after[0], context[0]);
  body["truncate"] = false;
  EXPECT_EQ(Post(kOllamaGenerate, body).status(), 400);
  Json raw = {
      {"model", "scripted"}, {"prompt", std::string(2 * kTurnsContext, 'x')}, {"raw", true}};
  EXPECT_EQ(Post(kOllamaGenerate, raw).status(), 400) << "there is nothing older";
}

}  // namespace
}  // namespace weft::serve
