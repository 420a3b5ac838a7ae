// How long a model thinks, which of several answers are returned, and what clients of several APIs
// read from a stream's chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "doors/api/reply_json.h"
#include "tests/support/api_fixture.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

constexpr char kThoughtReply[] = "<think>one two three</think>Yes.";

class ReplyDetailsTest : public testing::ApiTest {
 protected:
  static Json Chat(std::string_view say, const Json& more = Json::object()) {
    Json body = ApiTest::Chat(say, {{"max_tokens", 100}});
    body.update(more);
    return body;
  }
  static Json Message(const Json& body) {
    const auto response = Post(kChat, body);
    EXPECT_EQ(response.status(), 200) << response.body();
    return response.json()["choices"][0]["message"];
  }
};

TEST_F(ReplyDetailsTest, AThoughtThatIsTooLongIsEndedAndTheAnswerGoesOn) {
  for (const char* const name :
       {"thinking_budget_tokens", "reasoning_budget_tokens", "reasoning_budget"}) {
    const Json message = Message(Chat(kThoughtReply, {{name, 3}}));
    EXPECT_EQ(message["reasoning_content"], "one") << name;  // one token per letter
    EXPECT_EQ(message["content"], "two three</think>Yes.") << name;
  }
  const Json none = Message(Chat(kThoughtReply, {{"thinking_budget_tokens", 0}}));
  EXPECT_FALSE(none.contains("reasoning_content"));
  EXPECT_EQ(none["content"], "one two three</think>Yes.");
  for (const int budget : {-1, 100}) {
    const Json whole = Message(Chat(kThoughtReply, {{"thinking_budget_tokens", budget}}));
    EXPECT_EQ(whole["reasoning_content"], "one two three");
    EXPECT_EQ(whole["content"], "Yes.");
  }
  // No character is cut in half.
  EXPECT_EQ(Message(Chat("<think>\u20ac\u20ac</think>Yes.",
                         {{"thinking_budget_tokens", 4}}))["reasoning_content"],
            "\u20ac\u20ac");
  // Without a thought there is nothing to end.
  EXPECT_EQ(Message(Chat("A long answer.", {{"thinking_budget_tokens", 2}}))["content"],
            "A long answer.");
  const auto refused =
      Post(kChat, Chat("x", {{"thinking_budget_tokens", 1}, {"reasoning_budget", 2}}));
  EXPECT_EQ(refused.json()["error"]["param"], "reasoning_budget") << refused.body();
}

// An unscripted model after a prompt that ends within a thought: the same result twice.
TEST_F(ReplyDetailsTest, AThoughtThatThePromptOpensIsEndedToo) {
  const Json body = {
      {"messages", Json::array({{{"role", "user"}, {"content", "Why?"}},
                                {{"role", "assistant"}, {"reasoning_content", "Because"}}})},
      {"thinking_budget_tokens", 4},
      {"ignore_eos", true},
      {"seed", 7},
      {"max_tokens", 40}};
  const auto response = Post(kChat, body);
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json message = response.json()["choices"][0]["message"];
  EXPECT_FALSE(std::string(message["content"]).empty());
  EXPECT_EQ(Message(body), message);
  Json longer = body;
  longer["thinking_budget_tokens"] = -1;
  EXPECT_EQ(Message(longer)["content"], "");
}

TEST_F(ReplyDetailsTest, OtherApisLimitThoughtsToo) {
  const Json anthropic = {{"model", "m"},
                          {"max_tokens", 100},
                          {"messages", Json::array({Say(kThoughtReply)})},
                          {"thinking", {{"type", "enabled"}, {"budget_tokens", 3}}}};
  const Json content = Post("/v1/messages", anthropic).json()["content"];
  EXPECT_EQ(content[0]["thinking"], "one");
  EXPECT_EQ(content[1]["text"], "two three</think>Yes.");
  const Json responses = {{"input", Json::array({Say(kThoughtReply)})}, {"reasoning_budget", 3}};
  EXPECT_THAT(Post("/v1/responses", responses).body(), HasSubstr("two three</think>Yes."));
}

TEST_F(ReplyDetailsTest, APromptIsShownAsItWouldBeAsked) {
  const auto prompt = [](const Json& more) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    body.update(more);
    const auto response = Post("/apply-template", body);
    EXPECT_EQ(response.status(), 200) << response.body();
    return std::string(response.json()["prompt"]);
  };
  EXPECT_THAT(prompt(Json::object()), Not(HasSubstr("</think>")));
  EXPECT_THAT(prompt({{"enable_thinking", false}}), HasSubstr("<think>\n\n</think>"));
  EXPECT_THAT(
      prompt({{"enable_thinking", false}, {"chat_template_kwargs", {{"enable_thinking", true}}}}),
      Not(HasSubstr("</think>")));
  EXPECT_THAT(prompt({{"thinking_budget_tokens", 0}}), HasSubstr("</think>"));
  EXPECT_THAT(prompt({{"reasoning_effort", "none"}}), HasSubstr("</think>"));
}

// Clients on OpenAI's path may concatenate all `content`; those on llama-server's expect the null.
TEST_F(ReplyDetailsTest, TheFirstChunkIsWhatItsClientsRead) {
  const Json body = Chat("Hi", {{"stream", true}});
  EXPECT_EQ(Post(kChat, body).Events()[0].json()["choices"][0]["delta"].dump(),
            R"({"role":"assistant"})");
  EXPECT_EQ(Post("/chat/completions", body).Events()[0].json()["choices"][0]["delta"].dump(),
            R"({"role":"assistant","content":null})");
}

TEST_F(ReplyDetailsTest, ProgressHasTimingsWhereTheyAreAskedFor) {
  const Json more = {{"stream", true}, {"return_progress", true}, {"timings_per_token", true}};
  Json completion = {{"prompt", "<<say>>Hi<</say>>"}, {"n_predict", 5}};
  completion.update(more);
  Json responses = {{"input", "<<say>>Hi<</say>>"}};
  responses.update(more);
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", Chat("Hi", more)), std::pair("/completion", completion),
        std::pair("/v1/responses", responses)}) {
    int n_progress = 0;
    for (const SseEvent& event : Post(path, body).Events()) {
      if (event.data == "[DONE]") break;
      const Json chunk = event.json();
      if (!chunk.contains("prompt_progress")) continue;
      ++n_progress;
      const Json& progress = chunk["prompt_progress"];
      ASSERT_TRUE(chunk.contains("timings")) << path;
      EXPECT_EQ(chunk["timings"]["cache_n"], progress["cache"]) << path;
      EXPECT_EQ(chunk["timings"]["prompt_n"].get<int>(),
                progress["processed"].get<int>() - progress["cache"].get<int>());
      EXPECT_EQ(chunk["timings"]["predicted_n"], 0);
    }
    EXPECT_GE(n_progress, 2) << path;
  }
  const ProgressEvent begins = {
      .prompt_tokens = 9, .cached_tokens = 4, .done_tokens = 4, .elapsed_us = 7};
  EXPECT_EQ(LlamaTimings(begins)["prompt_ms"], 0.0);
  EXPECT_EQ(LlamaProgress(begins).dump(), R"({"total":9,"cache":4,"processed":4,"time_ms":0})");
  ProgressEvent waits = begins;
  waits.waits_behind_tokens = 5000;
  EXPECT_EQ(LlamaProgress(waits)["waits_behind_tokens"], 5000);
}

// Decode time starts at the first token.
TEST_F(ReplyDetailsTest, TheFirstTokenIsNotTimed) {
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", Chat("<<slow>>abcd")),
        std::pair("/v1/completions", Json{{"prompt", "<<say>><<slow>>abcd<</say>>"}}),
        std::pair("/completion", Json{{"prompt", "<<say>><<slow>>abcd<</say>>"}})}) {
    const Json timings = Post(path, body).json()["timings"];
    EXPECT_EQ(timings["predicted_n"], 5) << path;
    const double ms = timings["predicted_ms"];
    EXPECT_NEAR(timings["predicted_per_second"].get<double>(), 4000.0 / ms, 1e-6) << path;
    EXPECT_NEAR(timings["predicted_per_token_ms"].get<double>(), ms / 4, 1e-9) << path;
  }
  const Json one = Post(kChat, Chat("", {{"max_tokens", 1}})).json()["timings"];
  EXPECT_EQ(one["predicted_n"], 1);
  EXPECT_EQ(one["predicted_per_second"], 0.0);
}

TEST_F(ReplyDetailsTest, TheLikeliestOfSeveralAreGiven) {
  const Json body = {{"prompt", "Once"}, {"max_tokens", 6},    {"n", 8},
                     {"seed", 3},        {"temperature", 1.5}, {"top_k", 0},
                     {"top_p", 1.0},     {"ignore_eos", true}, {"logprobs", 0}};
  const auto mean = [](const Json& choice) {
    double sum = 0;
    for (const Json& logprob : choice["logprobs"]["token_logprobs"]) sum += logprob.get<double>();
    return sum / static_cast<double>(choice["logprobs"]["token_logprobs"].size());
  };
  const Json all = Post("/v1/completions", body).json();
  std::vector<double> means;
  for (const Json& choice : all["choices"]) means.push_back(mean(choice));
  std::sort(means.rbegin(), means.rend());
  Json best = body;
  best["n"] = 2;
  best["best_of"] = 8;
  const Json answer = Post("/v1/completions", best).json();
  ASSERT_EQ(answer["choices"].size(), 2u) << answer;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_DOUBLE_EQ(mean(answer["choices"][i]), means[i]);
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 48);  // counts all sampled choices
  best.erase("logprobs");
  const Json bare = Post("/v1/completions", best).json();
  EXPECT_TRUE(bare["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(bare["choices"][0]["text"], answer["choices"][0]["text"]);
}

TEST_F(ReplyDetailsTest, AShortPromptOfANamedSessionIsCached) {
  for (const int n_tokens : {4, 17, 32}) {
    Json body = {{"prompt", Json::array()}, {"max_tokens", 2}, {"session_id", "short"}};
    for (int i = 0; i < n_tokens; ++i) body["prompt"].push_back(300 + n_tokens + i);
    const auto cached = [&body] {
      const Json usage = Post("/v1/completions", body).json()["usage"];
      return usage["prompt_tokens_details"]["cached_tokens"].get<int>();
    };
    EXPECT_EQ(cached(), 0) << n_tokens;
    EXPECT_EQ(cached(), n_tokens - 1) << n_tokens;
  }
}

TEST_F(ReplyDetailsTest, TheModelIsOwnedByWhoeverIsAsked) {
  EXPECT_EQ(Get("/v1/models")["data"][0]["owned_by"], "weft");
  EXPECT_EQ(Get("/models")["data"][0]["owned_by"], "llamacpp");
  EXPECT_EQ(Get("/v1/models/scripted"), Get("/v1/models")["data"][0]);
  EXPECT_EQ(Get("/models/scripted"), Get("/models")["data"][0]);
}

TEST_F(ReplyDetailsTest, TheModelHasTheNamesByWhichClientsKnowTheContext) {
  const Json model = Get("/v1/models/scripted");
  for (const char* const name :
       {"max_model_len", "context_length", "context_window", "max_input_tokens", "max_tokens"}) {
    EXPECT_EQ(model[name], testing::kScriptedContext) << name;
  }
  EXPECT_EQ(model["meta"]["n_ctx"], testing::kScriptedContext);
  EXPECT_THAT(model["created_at"].get<std::string>(), ::testing::StartsWith("20"));
  EXPECT_EQ(model["display_name"], "scripted");
}

// The text of a request reaches the prompt and the answer with all its digits.
TEST_F(ReplyDetailsTest, IntegersBeyond64BitsKeepTheirDigits) {
  constexpr char kDigits[] = "123456789012345678901234567890";
  const std::string tool = std::string(R"({"name": "f", "description": "d", "PARAMETERS": )") +
                           R"({"type": "object", "properties": {"id": {"maximum": )" + kDigits +
                           "}}}}";
  const auto with = [&](const char* name) {
    std::string text = tool;
    return text.replace(text.find("PARAMETERS"), 10, name);
  };
  const std::string message = R"({"role": "user", "content": "<<say>>Hi<</say>>"})";
  const auto chat = Post(kChat, Json(R"({"verbose": true, "messages": [)" + message +
                                     R"(], "tools": [{"type": "function", "function": )" +
                                     with("parameters") + "}]}"));
  EXPECT_THAT(chat.body(), HasSubstr(kDigits)) << chat.body();
  const auto responses =
      Post("/v1/responses", Json(R"({"input": [)" + message + R"(], "tools": [)" +
                                 with("parameters").insert(1, R"("type": "function", )") + "]}"));
  EXPECT_THAT(responses.body(), HasSubstr(kDigits)) << responses.body();
  const auto anthropic = Post(
      "/apply-template",
      Json(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
              "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"id": )" +
           std::string(kDigits) +
           R"(}}}]}, {"role": "tool", "tool_call_id": "1", "content": "b"}]})"));
  EXPECT_THAT(anthropic.body(), HasSubstr(kDigits)) << anthropic.body();
}

class DefaultThinkingTest : public testing::ApiTest {
 protected:
  static void SetUpTestSuite() {
    SetUpWith("llama", testing::kScriptedContext,
              {.thinking = {.thinks = false, .limit = {.tokens = 3}}});
  }
};

TEST_F(DefaultThinkingTest, CountsWhereARequestDoesNotSay) {
  const auto prompt = [](const Json& more) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    body.update(more);
    return std::string(Post("/apply-template", body).json()["prompt"]);
  };
  EXPECT_THAT(prompt(Json::object()), HasSubstr("</think>"));
  EXPECT_THAT(prompt({{"enable_thinking", true}}), Not(HasSubstr("</think>")));
  Json body = {{"messages", Json::array({Say(kThoughtReply)})}};
  const auto reasoning = [](const Json& chat) {
    return Post(kChat, chat).json()["choices"][0]["message"]["reasoning_content"];
  };
  EXPECT_EQ(reasoning(body), "one");
  body["thinking_budget_tokens"] = -1;
  EXPECT_EQ(reasoning(body), "one two three");
}

}  // namespace
}  // namespace weft::serve
