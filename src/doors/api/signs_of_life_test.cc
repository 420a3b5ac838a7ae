// Signs of life while a stream's prompt waits or is computed: immediately that it has begun, then
// repeatedly that it is alive, in a form that clients count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using testing::MemoryResponder;
using testing::SseEvent;
using Json = nlohmann::ordered_json;

// Counts writes.
class CountingResponder : public MemoryResponder {
 public:
  bool Write(std::string_view data) override {
    ++writes;
    return MemoryResponder::Write(data);
  }
  int writes = 0;
};

// Has nothing to report until that many writes have happened, but that it waits, if it does.
class SilentGeneration : public Generation {
 public:
  SilentGeneration(std::unique_ptr<Generation> inner, const CountingResponder* responder,
                   int quiet_writes, int64_t waits_behind_tokens, bool fails)
      : inner_(std::move(inner)),
        responder_(*responder),
        quiet_writes_(quiet_writes),
        waits_behind_tokens_(waits_behind_tokens),
        fails_(fails) {}
  std::optional<TurnEvent> TryNext(bool* ended) override {
    if (const int64_t behind = std::exchange(waits_behind_tokens_, 0); behind > 0) {
      return ProgressEvent{.waits_behind_tokens = behind};
    }
    if (responder_.writes < quiet_writes_) return std::nullopt;
    if (!fails_) return inner_->TryNext(ended);
    *ended = true;
    return DoneEvent{.reason = FinishReason::kError, .status = Unavailable("it failed")};
  }
  Signal& ready() override { return inner_->ready(); }
  void Cancel() override { inner_->Cancel(); }
  int64_t prompt_tokens() const override { return inner_->prompt_tokens(); }

 private:
  const std::unique_ptr<Generation> inner_;
  const CountingResponder& responder_;
  const int quiet_writes_;
  int64_t waits_behind_tokens_;
  const bool fails_;
};

class SilentHost : public testing::ScriptedHost {
 public:
  explicit SilentHost(Host& inner) : ScriptedHost(inner) { defaults_ = inner.defaults(); }

  Task<StatusOr<std::unique_ptr<Generation>>> Submit(Ask ask, PromptRecord record,
                                                     TurnListener listener) override {
    if (refuses) co_return ResourceExhausted("the queue is full");
    auto generating = ScriptedHost::Submit(std::move(ask), std::move(record), std::move(listener));
    StatusOr<std::unique_ptr<Generation>> inner = co_await generating;
    if (!inner.ok()) co_return inner.status();
    co_return std::make_unique<SilentGeneration>(*std::move(inner), responder, quiet_writes,
                                                 waits_behind_tokens, fails);
  }
  const RequestDefaults& defaults() const override { return defaults_; }
  void SetIntervals(milliseconds begin, milliseconds interval) {
    defaults_.stream_begin = begin;
    defaults_.server.ping_interval = interval;
  }

  const CountingResponder* responder = nullptr;
  int quiet_writes = 0;
  int64_t waits_behind_tokens = 0;
  bool fails = false;
  bool refuses = false;

 private:
  RequestDefaults defaults_;
};

class SignsOfLifeTest : public testing::ApiTest {
 protected:
  SignsOfLifeTest() : quiet_(host()) {
    quiet_.SetIntervals(milliseconds(1), milliseconds(1));
    RegisterOpenAiApi(quiet_router_, quiet_);
    RegisterAnthropicApi(quiet_router_, quiet_);
    RegisterOllamaApi(quiet_router_, quiet_);
    RegisterResponsesApi(quiet_router_, quiet_);
    RegisterLlamaApi(quiet_router_, quiet_);
  }

  // The answer to a request whose turn is quiet for that many writes.
  CountingResponder PostQuiet(std::string_view path, Json body, int quiet_writes) {
    body["stream"] = true;
    CountingResponder responder;
    quiet_.responder = &responder;
    quiet_.quiet_writes = quiet_writes;
    HttpRequest request{.method = "POST", .path = std::string(path), .body = body.dump()};
    std::vector<std::string> segments;
    EXPECT_TRUE(SplitPath(path, &segments));
    testing::RunHandler(*quiet_router_.Find("POST", segments).route, request, responder);
    return responder;
  }
  static Json Chat() { return {{"messages", Json::array({Say("Hi")})}, {"max_tokens", 20}}; }

  SilentHost quiet_;
  Router quiet_router_;
};

TEST_F(SignsOfLifeTest, ChatCompletionsSendTheRoleAndThenEmptyDeltas) {
  for (const char* session : {"", "named"}) {
    Json body = Chat();
    if (*session != '\0') body["session_id"] = session;
    const auto answer = PostQuiet("/v1/chat/completions", body, 3);
    const std::vector<SseEvent> events = answer.Events();
    ASSERT_GT(events.size(), 4u) << answer.body();
    EXPECT_EQ(events[0].json()["choices"][0]["delta"].dump(), R"({"role":"assistant"})");
    for (const size_t i : {1, 2}) {
      const Json choice = events[i].json()["choices"][0];
      EXPECT_EQ(choice["delta"], Json::object());
      EXPECT_TRUE(choice["finish_reason"].is_null());
    }
    int roles = 0;
    std::string text;
    for (const SseEvent& event : events) {
      const Json chunk = event.json();
      if (!chunk.is_object()) continue;
      const Json& delta = chunk["choices"][0]["delta"];
      roles += delta.contains("role");
      if (!delta.value("content", Json()).is_null()) text += delta["content"];
    }
    EXPECT_EQ(roles, 1) << "some clients add a second one to the first";
    EXPECT_EQ(text, "Hi");
  }
}

TEST_F(SignsOfLifeTest, CompletionsSendEmptyText) {
  const Json body = {{"prompt", "<<say>>ab<</say>>"}, {"max_tokens", 10}};
  for (const char* path : {"/v1/completions", "/completion"}) {
    const bool is_llama = std::string_view(path) == "/completion";
    const auto answer = PostQuiet(path, body, 3);
    const std::vector<SseEvent> events = answer.Events();
    ASSERT_GT(events.size(), 3u) << answer.body();
    for (size_t i = 0; i < 3; ++i) {
      const Json piece = events[i].json();
      EXPECT_EQ(is_llama ? piece["content"] : piece["choices"][0]["text"], "");
    }
    EXPECT_EQ(answer.status(), 200);
  }
}

TEST_F(SignsOfLifeTest, MessagesBeginAndThenPing) {
  const auto answer = PostQuiet("/v1/messages", Chat(), 16);
  const std::vector<SseEvent> events = answer.Events();
  ASSERT_GT(events.size(), 16u) << answer.body();
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_GT(events[0].json()["message"]["usage"]["input_tokens"], 0);
  for (size_t i = 1; i <= 11; ++i) {
    EXPECT_EQ(events[i].name, "ping");
    EXPECT_EQ(events[i].data, R"({"type":"ping"})");
  }
  // The event that Claude Code counts: it never sees pings.
  EXPECT_EQ(events[12].name, "message_delta");
  EXPECT_TRUE(events[12].json()["delta"]["stop_reason"].is_null());
  EXPECT_EQ(events[13].name, "ping");
  int starts = 0;
  for (const SseEvent& event : events) starts += event.name == "message_start";
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(events.back().name, "message_stop");
  EXPECT_EQ(events[events.size() - 2].json()["delta"]["stop_reason"], "end_turn");
}

TEST_F(SignsOfLifeTest, ResponsesSayThatTheyAreInProgress) {
  const auto answer = PostQuiet("/v1/responses", {{"input", Json::array({Say("Hi")})}}, 4);
  const std::vector<SseEvent> events = answer.Events();
  ASSERT_GT(events.size(), 4u) << answer.body();
  EXPECT_EQ(events[0].name, "response.created");
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(events[i].name, "response.in_progress");
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].json()["sequence_number"], i);
  EXPECT_EQ(events.back().name, "response.completed");
}

// Some clients take an event's response as everything so far, and append deltas to it.
TEST_F(SignsOfLifeTest, AResponseInProgressHasWhatWasSaidSoFar) {
  const auto answer =
      PostQuiet("/v1/responses", {{"input", Json::array({Say("<<slow>>Hello")})}}, 0);
  std::string text;
  int in_between = 0;
  for (const SseEvent& event : answer.Events()) {
    const Json data = event.json();
    if (event.name == "response.output_text.delta") text += data["delta"];
    if (event.name != "response.in_progress" || text.empty()) continue;
    ++in_between;
    EXPECT_EQ(data["response"]["output"][0]["content"][0]["text"], text) << event.data;
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_GT(in_between, 0);
}

TEST_F(SignsOfLifeTest, OllamasLinesSayNothing) {
  Json body = Chat();
  body["model"] = "scripted";
  const auto answer = PostQuiet("/api/chat", body, 3);
  EXPECT_EQ(answer.type(), "application/x-ndjson");
  const std::vector<std::string_view> lines = StrSplit(answer.body(), '\n');
  ASSERT_GT(lines.size(), 4u) << answer.body();
  for (size_t i = 0; i < 3; ++i) {
    const Json line = Json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    EXPECT_EQ(line["message"]["content"], "") << lines[i];
    EXPECT_EQ(line["done"], false);
  }
}

TEST_F(SignsOfLifeTest, PingsAndLinesTellForHowMuchTheTurnWaits) {
  quiet_.waits_behind_tokens = 5000;
  const auto messages = PostQuiet("/v1/messages", Chat(), 5);
  const std::vector<SseEvent> events = messages.Events();
  ASSERT_GT(events.size(), 4u) << messages.body();
  EXPECT_EQ(events[1].data, R"({"type":"ping"})") << "it comes with the beginning";
  EXPECT_EQ(events[2].data, R"({"type":"ping","waits_behind_tokens":5000})");
  Json body = Chat();
  body["model"] = "scripted";
  const auto lines = PostQuiet("/api/chat", body, 2);
  const std::vector<std::string_view> objects = StrSplit(lines.body(), '\n');
  ASSERT_GT(objects.size(), 3u) << lines.body();
  EXPECT_THAT(std::string(objects[0]), ::testing::HasSubstr(R"("waits_behind_tokens":5000)"));
  EXPECT_THAT(std::string(objects[2]), ::testing::Not(::testing::HasSubstr("waits_behind")));
}

TEST_F(SignsOfLifeTest, WithoutAnIntervalThereIsOnlyTheBeginning) {
  quiet_.SetIntervals(milliseconds(1), milliseconds(0));
  const auto answer = PostQuiet("/v1/messages", Chat(), 2);
  int pings = 0;
  for (const SseEvent& event : answer.Events()) pings += event.name == "ping";
  EXPECT_EQ(pings, 1) << answer.body();
  EXPECT_EQ(answer.Events().back().name, "message_stop");
  EXPECT_EQ(PostQuiet("/completion", {{"prompt", "<<say>>a<</say>>"}}, 1).Events().size(), 3u);
}

TEST_F(SignsOfLifeTest, WhatCanBeKnownBeforeIsAPlainError) {
  quiet_.refuses = true;
  EXPECT_EQ(PostQuiet("/v1/chat/completions", Chat(), 1).status(), 429);
  EXPECT_EQ(PostQuiet("/v1/messages", Chat(), 1).status(), 429);
  quiet_.refuses = false;
  Json large = Chat();
  large["messages"][0]["content"] = std::string(100'000, 'x');
  EXPECT_EQ(PostQuiet("/v1/messages", large, 1).status(), 400);
  EXPECT_EQ(PostQuiet("/v1/responses", {{"input", std::string(100'000, 'x')}}, 1).status(), 400);
}

TEST_F(SignsOfLifeTest, AFailureAfterTheBeginningIsAnEventOfTheStream) {
  quiet_.fails = true;
  const auto chat = PostQuiet("/v1/chat/completions", Chat(), 2);
  EXPECT_EQ(chat.status(), 200);
  EXPECT_EQ(chat.Events().back().data, "[DONE]");
  EXPECT_EQ(chat.Events()[2].json()["error"]["message"], "it failed");
  EXPECT_EQ(PostQuiet("/v1/messages", Chat(), 2).Events().back().name, "error");
  EXPECT_EQ(PostQuiet("/v1/responses", {{"input", "x"}}, 2).Events().back().name,
            "response.failed");
  EXPECT_EQ(PostQuiet("/v1/chat/completions", Chat(), 0).status(), 503) << "it had not begun";
}

}  // namespace
}  // namespace weft::serve
