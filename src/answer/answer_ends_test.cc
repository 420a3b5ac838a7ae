// What a server's answers follow where the request omits it: the operator's, the model's.
#include "answer/answer_ends.h"
#include "model/sampling/sampling_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/api_fixture.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AnswerEnds, StopsThatAreControlTokensEndAsTokens) {
  const auto& tokenizer = *testing::TinyModel("llama")->tokenizer();
  const AnswerEnds ends = EndsOf({.stop = {"<s>", "</s>", "User:"}}, tokenizer);
  EXPECT_THAT(ends.tokens, ElementsAre(tokenizer.bos()));  // </s> ends answers anyway
  EXPECT_THAT(ends.texts, ElementsAre("User:"));
  TurnOptions turn;
  AddEndTokens(ends.tokens, &turn);
  EXPECT_THAT(turn.stop_tokens, ElementsAre(tokenizer.bos()));
  TurnOptions endless{.ignore_eos = true};
  AddEndTokens(ends.tokens, &endless);
  EXPECT_THAT(endless.stop_tokens, IsEmpty());
}

// A server whose model has recommendations.
class AdvisedApiTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() {
    RequestDefaults defaults{.advice = {.temperature = 0.25, .stop = {"<stop>", "</s>"}}};
    defaults.sampling = Advised({}, defaults.advice);
    SetUpWith("llama", testing::kScriptedContext, defaults);
  }
  static Json Ask(const char* path, const Json& body) {
    const auto response = Post(path, body);
    EXPECT_EQ(response.status(), 200) << response.body();
    return response.json();
  }
};

TEST_F(AdvisedApiTest, PropsShowIt) {
  const Json params = Get("/props")["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 0.25);
  EXPECT_EQ(params["top_k"], 40);
  EXPECT_EQ(params["stop"], Json::array({"<stop>"}));
}

TEST_F(AdvisedApiTest, ARequestGoesFirstAndNullIsUnset) {
  const auto temperature = [&](const Json& given) {
    Json body = {{"prompt", "x"}, {"n_predict", 1}};
    if (!given.is_discarded()) body["temperature"] = given;
    return Ask("/completion", body)["generation_settings"]["temperature"];
  };
  EXPECT_EQ(temperature(Json(Json::value_t::discarded)), 0.25);
  EXPECT_EQ(temperature(nullptr), 0.25);
  EXPECT_EQ(temperature(0.5), 0.5);
  EXPECT_EQ(temperature(0), 0);
}

TEST_F(AdvisedApiTest, AnswersEndAtTheModelsStops) {
  const Json messages = Json::array({Say("one <stop> two")});
  const Json chat = Ask("/v1/chat/completions", {{"messages", messages}})["choices"][0];
  EXPECT_EQ(chat["message"]["content"], "one ");
  EXPECT_EQ(chat["finish_reason"], "stop");
  EXPECT_TRUE(chat.value("stop_reason", Json()).is_null())
      << chat;  // not a stop string of the client
  const Json anthropic = Ask("/v1/messages", {{"messages", messages}, {"max_tokens", 99}});
  EXPECT_EQ(anthropic["content"][0]["text"], "one ");
  EXPECT_EQ(anthropic["stop_reason"], "end_turn");
  const Json responses = Ask("/v1/responses", {{"input", messages}});
  EXPECT_EQ(responses["output"][0]["content"][0]["text"], "one ");
  const Json llama = Ask("/completion", {{"prompt", messages[0]["content"]}});
  EXPECT_EQ(llama["content"], "one ");
  const Json completion = Ask("/v1/completions", {{"prompt", messages[0]["content"]}});
  EXPECT_EQ(completion["choices"][0]["text"], "one ");
  Json ollama = {{"model", "scripted"}, {"stream", false}, {"messages", messages}};
  EXPECT_EQ(Ask("/api/chat", ollama)["message"]["content"], "one ");
  ollama.erase("messages");
  ollama.update({{"prompt", messages[0]["content"]}, {"raw", true}});
  EXPECT_EQ(Ask("/api/generate", ollama)["response"], "one ");
}

TEST_F(AdvisedApiTest, ARequestsOwnStopsTakeTheirPlace) {
  const Json messages = Json::array({Say("one <stop> two END")});
  EXPECT_EQ(Ask("/v1/chat/completions",
                {{"messages", messages}, {"stop", "END"}})["choices"][0]["message"]["content"],
            "one <stop> two ");
  EXPECT_EQ(Ask("/completion", {{"prompt", messages[0]["content"]}, {"stop", {"END"}}})["content"],
            "one <stop> two ");
}

}  // namespace
}  // namespace weft::serve
