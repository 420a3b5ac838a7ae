#include "doors/api/openai/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "doors/api/fields/support.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using testing::SseEvent;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

constexpr char kComplete[] = "/v1/completions";

class OpenAiTest : public testing::ApiTest {
 protected:
  // A client's view of a stream, put together; also checks what every chunk must have.
  struct Joined {
    std::string content, reasoning, id;
    std::vector<std::string> names, arguments, call_ids;
    std::vector<Json> chunks;
    std::string finish_reason;
    Json usage;
  };
  static void AddChoice(const Json& choice, bool is_first, Joined* joined) {
    const Json& delta = choice["delta"];
    EXPECT_EQ(delta.contains("role"), is_first);
    EXPECT_TRUE(joined->finish_reason.empty()) << "something after the finish";
    if (!choice["finish_reason"].is_null()) joined->finish_reason = choice["finish_reason"];
    for (const char* name : {"content", "reasoning_content"}) {
      if (!delta.contains(name) || delta[name].is_null()) continue;
      const std::string text = delta[name];
      EXPECT_NE(text, "");
      (name == std::string_view("content") ? joined->content : joined->reasoning) += text;
    }
    if (!delta.contains("tool_calls")) return;
    const Json& call = delta["tool_calls"][0];
    const size_t index = call["index"];
    if (index == joined->names.size()) {
      EXPECT_EQ(call["type"], "function");
      joined->names.push_back(call["function"]["name"]);
      joined->call_ids.push_back(call["id"]);
      joined->arguments.emplace_back();
    } else {
      EXPECT_FALSE(call.contains("id"));
      EXPECT_FALSE(call["function"].contains("name"));
    }
    joined->arguments.at(index) += std::string(call["function"]["arguments"]);
  }
  static Joined Join(const MemoryResponder& responder) {
    Joined joined;
    EXPECT_EQ(responder.type(), "text/event-stream");
    EXPECT_TRUE(responder.ended());
    const auto events = responder.Events();
    EXPECT_EQ(events.back().data, "[DONE]");
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json chunk = events[i].json();
      joined.chunks.push_back(chunk);
      EXPECT_EQ(chunk["object"], "chat.completion.chunk");
      if (joined.id.empty()) joined.id = chunk["id"];
      EXPECT_EQ(chunk["id"], joined.id);
      if (chunk.contains("usage")) joined.usage = chunk["usage"];
      for (const Json& choice : chunk["choices"]) AddChoice(choice, i == 0, &joined);
    }
    return joined;
  }
};

TEST_F(OpenAiTest, AnswersWhole) {
  const auto response = Post(kChat, Chat("Hello there."));
  ASSERT_EQ(response.status(), 200) << response.body();
  const Json body = response.json();
  EXPECT_THAT(std::string(body["id"]), StartsWith("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "scripted");
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["message"].dump(), R"({"role":"assistant","content":"Hello there."})");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const Json& usage = body["usage"];
  EXPECT_EQ(usage["completion_tokens"], 13);  // twelve bytes and the end token
  EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<int>() + 13);
  const Json& timings = body["timings"];
  EXPECT_EQ(timings["prompt_n"].get<int>() + timings["cache_n"].get<int>(),
            usage["prompt_tokens"].get<int>());
  EXPECT_EQ(timings["predicted_n"], 13);
  EXPECT_GE(timings["queued_ms"].get<double>(), 0);
  ExpectIdle();
}

TEST_F(OpenAiTest, StreamsTheSame) {
  const auto response = Post(
      kChat, Chat("Hello.", {{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(response.status(), 200) << response.body();
  const Joined joined = Join(response);
  EXPECT_EQ(joined.content, "Hello.");
  EXPECT_EQ(joined.finish_reason, "stop");
  EXPECT_EQ(joined.chunks.front()["choices"][0].dump(),
            R"({"index":0,"delta":{"role":"assistant"},"finish_reason":null})");
  EXPECT_TRUE(joined.chunks.back()["choices"].empty());
  EXPECT_EQ(joined.usage["completion_tokens"], 7);
  EXPECT_EQ(joined.chunks.back()["timings"]["predicted_n"], 7);
}

TEST_F(OpenAiTest, AStreamWithoutUsageHasAChoiceInEveryChunk) {
  const Joined joined = Join(Post(kChat, Chat("Hi", {{"stream", true}})));
  for (const Json& chunk : joined.chunks) EXPECT_EQ(chunk["choices"].size(), 1u);
  EXPECT_TRUE(joined.usage.is_null());
  EXPECT_TRUE(joined.chunks.back().contains("timings"));
}

TEST_F(OpenAiTest, CallsTools) {
  const Json tools = {{"tools", Json::array({WeatherTool()})}};
  const Json message = Post(kChat, Chat(kWeatherCall, tools)).json()["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
  const Json& call = message["tool_calls"][0];
  EXPECT_THAT(std::string(call["id"]), StartsWith("call_"));
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(Json::parse(std::string(call["function"]["arguments"])), Json({{"city", "Bonn"}}));
}

TEST_F(OpenAiTest, StreamsCallsWithThinkingAndText) {
  Json more = {{"tools", Json::array({WeatherTool()})}, {"stream", true}};
  const std::string say = std::string("<think>\nWhere?\n</think>\n\nLet me see.\n") + kWeatherCall +
                          "\n" + kWeatherCall;
  const Joined joined = Join(Post(kChat, Chat(say, more)));
  EXPECT_THAT(joined.reasoning, HasSubstr("Where?"));
  EXPECT_THAT(joined.content, StartsWith("Let me see."));
  EXPECT_THAT(joined.names, ::testing::ElementsAre("get_weather", "get_weather"));
  EXPECT_NE(joined.call_ids[0], joined.call_ids[1]);
  EXPECT_EQ(Json::parse(joined.arguments[1]), Json({{"city", "Bonn"}}));
  EXPECT_EQ(joined.finish_reason, "tool_calls");
}

TEST_F(OpenAiTest, OnlyOneCallWhereNoMoreAreWanted) {
  const Json more = {{"tools", Json::array({WeatherTool()})}, {"parallel_tool_calls", false}};
  const Json body = Post(kChat, Chat(std::string(kWeatherCall) + "\n" + kWeatherCall, more)).json();
  EXPECT_EQ(body["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  ExpectIdle();
}

TEST_F(OpenAiTest, WithoutToolsMarkupIsText) {
  for (const Json& more :
       {Json::object(), Json{{"tools", Json::array({WeatherTool()})}, {"tool_choice", "none"}}}) {
    const Json choice = Post(kChat, Chat(kWeatherCall, more)).json()["choices"][0];
    EXPECT_FALSE(choice["message"].contains("tool_calls"));
    EXPECT_THAT(std::string(choice["message"]["content"]), HasSubstr("get_weather"));
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
}

TEST_F(OpenAiTest, ReasoningIsShownAsAsked) {
  const std::string say = "<think>\nhm\n</think>\n\nyes";
  const Json shown = Post(kChat, Chat(say)).json();
  EXPECT_THAT(std::string(shown["choices"][0]["message"]["reasoning_content"]), HasSubstr("hm"));
  EXPECT_EQ(shown["choices"][0]["message"]["content"], "yes");
  EXPECT_GT(shown["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  for (const Json& more : {Json{{"return_reasoning", false}},
                           Json{{"chat_template_kwargs", {{"return_reasoning", false}}}}}) {
    const Json message = Post(kChat, Chat(say, more)).json()["choices"][0]["message"];
    EXPECT_FALSE(message.contains("reasoning_content"));
    EXPECT_EQ(message["content"], "yes");
  }
  const Json mixed = Post(kChat, Chat(say, {{"reasoning_format", "none"}})).json();
  EXPECT_EQ(mixed["choices"][0]["message"]["content"], say);
}

TEST_F(OpenAiTest, AnsweringLengthAndStopStrings) {
  const Json cut = Post(kChat, Chat("abcdef", {{"max_tokens", 3}})).json()["choices"][0];
  EXPECT_EQ(cut["message"]["content"], "abc");
  EXPECT_EQ(cut["finish_reason"], "length");
  const Json stopped = Post(kChat, Chat("abcdef", {{"stop", "de"}})).json()["choices"][0];
  EXPECT_EQ(stopped["message"]["content"], "abc");
  EXPECT_EQ(stopped["finish_reason"], "stop");
}

TEST_F(OpenAiTest, AnAnswerInALoopIsCutAndSaysWhy) {
  std::string loop;
  for (int i = 0; i < 40; ++i) loop += "again, and ";
  const Json cut = Post(kChat, Chat(loop)).json()["choices"][0];
  EXPECT_EQ(cut["message"]["content"], loop.substr(0, 256));
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["stop_reason"], "loop");
  const Json whole = Post(kChat, Chat(loop, {{"end_loops", false}})).json()["choices"][0];
  EXPECT_EQ(whole["message"]["content"], loop);
  EXPECT_EQ(whole["finish_reason"], "stop");
  EXPECT_FALSE(whole.contains("stop_reason"));

  Json body = {{"prompt", "<<say>>" + loop + "<</say>>"}, {"stream", true}, {"max_tokens", 500}};
  const MemoryResponder streamed = Post(kComplete, body);
  EXPECT_THAT(streamed.body(), HasSubstr(R"("finish_reason":"length","stop_reason":"loop")"));
}

TEST_F(OpenAiTest, SeveralChoices) {
  const Json body = Post(kChat, Chat("two", {{"n", 2}})).json();
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["message"]["content"], "two");
  EXPECT_EQ(body["usage"]["completion_tokens"], 8);
  const auto events = Post(kChat, Chat("two", {{"n", 2}, {"stream", true}})).Events();
  EXPECT_EQ(events[0].json()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1].json()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1].json()["choices"][0]["index"], 1);
}

TEST_F(OpenAiTest, LogprobsOfEveryTokenOfTheText) {
  const Json more = {{"logprobs", true}, {"top_logprobs", 2}};
  const Json logprobs = Post(kChat, Chat("abc", more)).json()["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["content"].size(), 3u);
  const Json& b = logprobs["content"][1];
  EXPECT_EQ(b["token"], "b");
  EXPECT_EQ(b["bytes"], Json::array({98}));
  EXPECT_LT(b["logprob"], 0);
  EXPECT_EQ(b["top_logprobs"].size(), 2u);
  Json streamed = Json::array();
  Json stream_more = more;
  stream_more["stream"] = true;
  for (const Json& chunk : Join(Post(kChat, Chat("abc", stream_more))).chunks) {
    const Json& choice = chunk["choices"][0];
    if (!choice.contains("logprobs")) continue;
    for (const Json& entry : choice["logprobs"]["content"]) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, logprobs["content"]);
}

TEST_F(OpenAiTest, APredictionIsCountedAndChangesNothing) {
  // Spelled in bytes by the script and by the tokenizer.
  constexpr char kAnswer[] = "日本語です";
  const Json plain = Post(kChat, Chat(kAnswer)).json();
  const Json& none = plain["usage"]["completion_tokens_details"];
  EXPECT_EQ(none["accepted_prediction_tokens"], 0);
  EXPECT_EQ(none["rejected_prediction_tokens"], 0);
  const auto details = [&](Json content) {
    const Json prediction = {{"type", "content"}, {"content", std::move(content)}};
    const Json body = Post(kChat, Chat(kAnswer, {{"prediction", prediction}})).json();
    EXPECT_EQ(body["choices"], plain["choices"]);
    EXPECT_EQ(body["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
    return body["usage"]["completion_tokens_details"];
  };
  const Json right = details(kAnswer);
  EXPECT_GT(right["accepted_prediction_tokens"], 2);
  EXPECT_LT(right["rejected_prediction_tokens"], right["accepted_prediction_tokens"]);
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "日本"}}, {{"type", "text"}, {"text", "語です"}}});
  EXPECT_EQ(details(parts), right);
  const Json wrong = details("0123456789");
  EXPECT_EQ(wrong["accepted_prediction_tokens"], 0);
  EXPECT_GT(wrong["rejected_prediction_tokens"], 0);
  const Json malformed[] = {"Hello",
                            {{"type", "content"}},
                            {{"type", "text"}, {"content", "Hello"}},
                            {{"type", "content"}, {"content", 7}},
                            {{"type", "content"}, {"content", Json::array({"Hello"})}}};
  for (const Json& prediction : malformed) {
    const auto response = Post(kChat, Chat("Hello there.", {{"prediction", prediction}}));
    EXPECT_EQ(response.status(), 400) << prediction;
    EXPECT_EQ(response.json()["error"]["param"], "prediction");
  }
}

TEST_F(OpenAiTest, TheSecondTurnFindsTheFirst) {
  Json messages = Json::array({Say("first answer")});
  const Json first = Post(kChat, {{"messages", messages}}).json();
  messages.push_back(first["choices"][0]["message"]);
  messages.push_back(Say("second"));
  const Json usage = Post(kChat, {{"messages", messages}}).json()["usage"];
  const int before =
      first["usage"]["prompt_tokens"].get<int>() + first["usage"]["completion_tokens"].get<int>();
  const int cached = usage["prompt_tokens_details"]["cached_tokens"];
  EXPECT_GE(cached, before - 40) << usage;  // whole pages
  EXPECT_LE(cached, usage["prompt_tokens"].get<int>());
}

TEST_F(OpenAiTest, ErrorsNameTheField) {
  const std::pair<Json, const char*> cases[] = {
      {{{"messages", "hi"}}, "messages"},
      {{{"messages", Json::array()}}, "messages"},
      {Chat("x", {{"temperature", 3}}), "temperature"},
      {Chat("x", {{"n", 17}}), "n"},
      {Chat("x", {{"max_tokens", 0}}), "max_tokens"},
      {Chat("x", {{"tool_choice", "required"}}), "tool_choice"},
      {Chat("x", {{"tool_choice", {{"type", "function"}}}}), "tool_choice"},
      {Chat("x", {{"response_format", {{"type", "xml"}}}}), "response_format"},
      {Chat("x", {{"stream_options", {{"include_usage", "yes"}}}}), "stream_options.include_usage"},
      {Chat("x", {{"top_logprobs", 2}}), "top_logprobs"},
      {Chat("x", {{"session_id", "a b"}}), "session_id"},
      {Chat("x", {{"tools", "none"}}), "tools"},
      {Chat("x", {{"chat_template_kwargs", {{"messages", 1}}}}), "chat_template_kwargs"}};
  for (const auto& [body, param] : cases) {
    const auto response = Post(kChat, body);
    EXPECT_EQ(response.status(), 400) << body;
    const Json error = response.json()["error"];
    EXPECT_EQ(error["param"], param) << body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_FALSE(error["code"].is_null()) << error;
    EXPECT_NE(error["message"], "");
  }
}

class StrictHost : public testing::ScriptedHost {
 public:
  using ScriptedHost::ScriptedHost;
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  const RequestDefaults defaults_{.server = {.strict_model_name = true}};
};

TEST_F(OpenAiTest, AnyModelNameWillDoUnlessTheOperatorIsStrict) {
  const auto answer = Post(kChat, Chat("x", {{"model", "gpt-9"}}));
  EXPECT_EQ(answer.status(), 200);
  EXPECT_EQ(answer.json()["model"], "scripted") << "the truth is told";
  EXPECT_TRUE(std::string(answer.json()["system_fingerprint"]).starts_with("b"));

  StrictHost strict(host());
  for (const std::string& name : {std::string(), std::string("scripted"), host().model().name()}) {
    EXPECT_TRUE(CheckModel(strict, name).ok()) << name;
  }
  EXPECT_TRUE(CheckModel(strict, std::nullopt).ok());
  const ApiError error = ToDetailedApiError(CheckModel(strict, "gpt-9"));
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
}

TEST_F(OpenAiTest, OtherErrorsAreOpenAis) {
  const auto too_long = Post(kChat, Chat(std::string(9000, 'x')));
  EXPECT_EQ(too_long.status(), 400);
  const Json error = too_long.json()["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_ctx"], testing::kScriptedContext);
  EXPECT_GT(error["n_prompt_tokens"], 9000);

  const auto embeddings = Post("/v1/embeddings", {{"input", "x"}});
  EXPECT_EQ(embeddings.status(), 400);
  EXPECT_THAT(std::string(embeddings.json()["error"]["message"]),
              HasSubstr("gives no embeddings: it is for text; --pooling"));
}

TEST_F(OpenAiTest, AFailureBeforeTheFirstTokenIsAnAnswerAndLaterAnEvent) {
  const auto whole = Post(kChat, Chat("ab<<fail>>"));
  EXPECT_EQ(whole.status(), 400);
  const auto streamed = Post(kChat, Chat("ab<<fail>>", {{"stream", true}}));
  EXPECT_EQ(streamed.status(), 200);
  const auto events = streamed.Events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().data, "[DONE]");
  EXPECT_THAT(std::string(events[events.size() - 2].json()["error"]["message"]),
              HasSubstr("no token may come next"));
  ExpectIdle();
}

TEST_F(OpenAiTest, UnknownFieldsAreListed) {
  const auto response = Post(kChat, Chat("x", {{"store", true}, {"made_up", 1}}));
  EXPECT_EQ(response.Header("X-Weft-Ignored"), "made_up");
}

TEST_F(OpenAiTest, AClientThatLeavesEndsItsTurn) {
  const std::string long_text(2000, 'x');
  MemoryResponder streamed(/*leaves_at_write=*/3);
  Post(kChat, Chat("<<slow>>" + long_text, {{"stream", true}}), &streamed);
  EXPECT_FALSE(streamed.ended());
  MemoryResponder gone;
  gone.Leave();
  Post(kChat, Chat("<<slow>>" + long_text), &gone);
  EXPECT_EQ(host().engine().Stats().turns_running, 0);
}

TEST_F(OpenAiTest, ABusySessionIsRefusedToTheBodyAndDoneWithoutForAHeader) {
  ASSERT_TRUE(host().engine().CreateSession({.name = "desk"}).ok());
  const auto id = host().engine().FindSession("", "desk");
  ASSERT_TRUE(id.ok());
  TurnOptions options;
  options.tokens = {5, 6, 7};
  options.ignore_eos = true;
  options.max_tokens = 4000;
  auto turn = host().engine().Submit(*id, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(Post(kChat, Chat("x", {{"session_id", "desk"}})).status(), 409);
  EXPECT_EQ(Post(kChat, Chat("x"), {{"x-session-affinity", "desk"}}).status(), 200);
  (*turn)->Cancel();
  while ((*turn)->Next()) {
  }
  EXPECT_EQ(Post(kChat, Chat("x", {{"session_id", "desk"}})).status(), 200);
  EXPECT_GT(host().engine().Inspect(*id)->n_tokens, 10);
  EXPECT_TRUE(host().engine().Close(*id, true).ok());
}

TEST_F(OpenAiTest, CountsTokens) {
  const Json body = Chat("x");
  const Json counted = Post("/v1/chat/completions/input_tokens", body).json();
  EXPECT_EQ(counted["input_tokens"], Post(kChat, body).json()["usage"]["prompt_tokens"]);
}

// As vLLM does, for routers that know which server has these tokens.
TEST_F(OpenAiTest, RendersWithoutAnAnswer) {
  Json body = Chat("x");
  body["temperature"] = 0.25;
  body["max_tokens"] = 7;
  body["stream"] = true;
  const Json chat = Post("/v1/chat/completions/render", body).json();
  EXPECT_TRUE(std::string(chat["request_id"]).starts_with("chatcmpl-"));
  EXPECT_EQ(chat["model"], host().model_id());
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["sampling_params"]["temperature"], 0.25);
  EXPECT_EQ(chat["sampling_params"]["max_tokens"], 7);
  const Json counted = Post("/v1/chat/completions/input_tokens", body).json();
  EXPECT_EQ(chat["token_ids"].size(), counted["input_tokens"].get<size_t>());

  const Json prompts = Post("/v1/completions/render", {{"prompt", {"one two", "three"}}}).json();
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0]["token_ids"], host().model().Encode("one two", true, true));
  EXPECT_TRUE(std::string(prompts[1]["request_id"]).starts_with("cmpl-"));
  EXPECT_EQ(Post("/v1/completions/render", {{"prompt", 5.5}}).status(), 400);
}

// --- the older completions ----------------------------------------------------------

TEST_F(OpenAiTest, CompletesEveryKindOfPrompt) {
  const std::string prompt = "<<say>>yes<</say>>";
  const auto tokens = host().model().Encode(prompt, true, true);
  const std::pair<Json, size_t> cases[] = {{prompt, 1},
                                           {Json::array({prompt, prompt, prompt}), 3},
                                           {tokens, 1},
                                           {Json::array({Json(tokens), Json(tokens)}), 2}};
  for (const auto& [given, n] : cases) {
    const Json body = Post(kComplete, {{"prompt", given}}).json();
    ASSERT_EQ(body["choices"].size(), n) << body;
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(body["choices"][i]["text"], "yes");
      EXPECT_EQ(body["choices"][i]["index"], i);
      EXPECT_EQ(body["choices"][i]["finish_reason"], "stop");
    }
    EXPECT_EQ(body["object"], "text_completion");
    EXPECT_EQ(body["usage"]["completion_tokens"], 4 * n);
  }
  EXPECT_EQ(Post(kComplete, {{"prompt", "free"}, {"ignore_eos", true}})
                .json()["usage"]["completion_tokens"],
            16);
  ExpectIdle();
}

TEST_F(OpenAiTest, EchoGivesTheLikelihoodOfThePrompt) {
  const std::vector<int32_t> tokens = {1, 104, 105, 106};
  const Json body = Post(kComplete, {{"prompt", tokens},
                                     {"echo", true},
                                     {"max_tokens", 1},
                                     {"temperature", 0},
                                     {"logprobs", 2}})
                        .json();
  const Json& logprobs = body["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 5u) << body;
  for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(logprobs[name].size(), 5u);
  }
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());

  TurnOptions options;
  options.tokens = tokens;
  options.max_tokens = 0;
  options.prompt_logprobs = true;
  options.top_logprobs = 2;
  auto turn = host().engine().SubmitOnce("", options);
  ASSERT_TRUE(turn.ok());
  const auto started = std::get<StartedEvent>(*(*turn)->Next());
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_FLOAT_EQ(logprobs["token_logprobs"][i], started.prompt_logprobs[i].token.logprob);
    EXPECT_GE(logprobs["top_logprobs"][i].size(), 2u);
    const std::string token = logprobs["tokens"][i];
    EXPECT_TRUE(logprobs["top_logprobs"][i].contains(token));
  }
  const std::string text = body["choices"][0]["text"];
  EXPECT_THAT(text, StartsWith(host().model().Decode(tokens, true)));
}

TEST_F(OpenAiTest, EchoOfNothingMore) {
  const Json choice =
      Post(kComplete, {{"prompt", "abc"}, {"echo", true}, {"max_tokens", 0}}).json()["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(OpenAiTest, TextOffsetsPointIntoTheEcho) {
  const Json choice =
      Post(kComplete, {{"prompt", "abc <<say>>de<</say>>"}, {"echo", true}, {"logprobs", 0}})
          .json()["choices"][0];
  const std::string text = choice["text"];
  EXPECT_EQ(text, "abc <<say>>de<</say>>de");
  const Json& logprobs = choice["logprobs"];
  const size_t n = logprobs["tokens"].size();
  EXPECT_EQ(logprobs["text_offset"][n - 1], text.size() - 1);
  EXPECT_EQ(logprobs["tokens"][n - 1], "e");
  int last = 0;
  for (const Json& offset : logprobs["text_offset"]) {
    EXPECT_GE(offset.get<int>(), last);
    last = offset;
  }
}

TEST_F(OpenAiTest, StreamsCompletions) {
  const auto response =
      Post(kComplete, {{"prompt", Json::array({"<<say>>ab<</say>>", "<<say>>cd<</say>>"})},
                       {"stream", true},
                       {"echo", true},
                       {"stream_options", {{"include_usage", true}}}});
  const auto events = response.Events();
  std::string texts[2];
  Json last;
  for (const SseEvent& event : events) {
    if (event.data == "[DONE]") continue;
    last = event.json();
    for (const Json& choice : last["choices"]) {
      texts[choice["index"].get<size_t>()] += std::string(choice["text"]);
    }
  }
  EXPECT_EQ(texts[0], "<<say>>ab<</say>>ab");
  EXPECT_EQ(texts[1], "<<say>>cd<</say>>cd");
  EXPECT_EQ(last["usage"]["completion_tokens"], 6);
  EXPECT_EQ(events.back().data, "[DONE]");
}

TEST_F(OpenAiTest, CompletionErrorsNameTheField) {
  const std::pair<Json, const char*> cases[] = {
      {Json::object(), "prompt"},
      {{{"prompt", 3}}, "prompt"},
      {{{"prompt", Json::array({"a", 3})}}, "prompt"},
      {{{"prompt", "a"}, {"best_of", 17}}, "best_of"},
      {{{"prompt", "a"}, {"n", 3}, {"best_of", 2}}, "best_of"},
      {{{"prompt", "a"}, {"best_of", 2}, {"max_tokens", 0}}, "best_of"},
      {{{"prompt", "a"}, {"best_of", 2}, {"stream", true}}, "best_of"},
      {{{"prompt", "a"}, {"context_shift", true}}, "context_shift"},
      {{{"prompt", "a"}, {"suffix", "b"}}, "suffix"},
      {{{"prompt", "a"}, {"logprobs", 100}}, "logprobs"},
      {{{"prompt", Json::array({"a", "b"})}, {"session_id", "x"}}, "session_id"}};
  for (const auto& [body, param] : cases) {
    const auto response = Post(kComplete, body);
    EXPECT_EQ(response.status(), 400) << body;
    EXPECT_EQ(response.json()["error"]["param"], param) << response.body();
  }
  EXPECT_EQ(Post(kComplete, {{"prompt", Json::array({999999})}}).status(), 400);
}

}  // namespace
}  // namespace weft::serve
