#include "doors/host/model_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "doors/api/fields/error_shapes.h"
#include "doors/api/front_door.h"
#include "doors/api/request_turns.h"
#include "doors/api/server/routes.h"
#include "engine/engine_test_util.h"
#include "tests/support/await.h"
#include "tests/support/engine_harness.h"
#include "weft/step_gate.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using testing::Await;
using ::testing::HasSubstr;

// A response to inspect.
class Recorder : public HttpResponder {
 public:
  void Send(int code, std::string_view, std::string text, HttpHeaders fields) override {
    status = code;
    body = std::move(text);
    headers.headers = std::move(fields);
  }
  bool Begin(int, std::string_view, HttpHeaders) override { return false; }
  bool Write(std::string_view) override { return false; }
  void End() override {}
  bool gone() const override { return false; }
  std::stop_token cancellation() const override { return {}; }

  int status = 0;
  std::string body;
  HttpRequest headers;
};

class ModelHostTest : public ::testing::Test {
 protected:
  // Loads the tiny model once `release` is set to the outcome.
  ModelHost::Options Options() {
    ModelHost::Options options;
    options.load = [this]() -> StatusOr<std::shared_ptr<const Model>> {
      WEFT_RETURN_IF_ERROR(release_.get_future().get());
      return testing::TinyModel("llama");
    };
    options.engine.n_threads = 1;
    options.engine.memory_bytes = 64 << 20;
    options.template_source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    options.loaded = [this](const Status& status) { loaded_.set_value(status); };
    return options;
  }
  Status Load(ModelHost* host, const Status& outcome = OkStatus()) {
    host->StartLoading();
    release_.set_value(outcome);
    return loaded_.get_future().get();
  }
  static Ask Request(std::string session, std::vector<int32_t> tokens, int64_t max_tokens) {
    return {.input = Ask::Input::kPrompt,
            .session = {.name = std::move(session), .required = true},
            .turn = testing::Greedy(std::move(tokens), max_tokens)};
  }
  static StatusOr<std::unique_ptr<Generation>> Submit(Host& host, Ask ask,
                                                      PromptRecord record = {}) {
    return Await(host.answerer().Submit(std::move(ask), std::move(record), {}));
  }
  struct Outcome {
    std::vector<int32_t> tokens;
    int64_t cached_tokens = 0;
    DoneEvent done;
  };
  static Outcome Read(Generation* generation) {
    Outcome outcome;
    while (auto event = Await(generation->Next())) {
      if (const auto* started = std::get_if<StartedEvent>(&*event)) {
        outcome.cached_tokens = started->cached_tokens;
      } else if (const auto* token = std::get_if<TokenEvent>(&*event)) {
        outcome.tokens.push_back(token->token);
      } else if (const auto* done = std::get_if<DoneEvent>(&*event)) {
        outcome.done = *done;
      }
    }
    return outcome;
  }

  std::promise<Status> release_, loaded_;
};

class CountingGate : public StepGate {
 public:
  std::unique_ptr<Place> NewPlace() override {
    ++n_places;
    return inner_->NewPlace();
  }
  std::atomic<int> n_places = 0;

 private:
  const std::shared_ptr<StepGate> inner_ = NewStepGate();
};

TEST(DefaultModelIdTest, HasNoSpaces) {
  EXPECT_EQ(DefaultModelId("Qwen2.5 Coder 1.5B Instruct"), "Qwen2.5-Coder-1.5B-Instruct");
  EXPECT_EQ(DefaultModelId("tiny_llama-3.gguf"), "tiny_llama-3.gguf");
  EXPECT_EQ(DefaultModelId("  Qwen/Qwen 3 - (GGUF) "), "Qwen-Qwen-3-GGUF");
  EXPECT_EQ(DefaultModelId("m\xc3\xbcller"), "m-ller");
  for (const char* name : {"", " ", "..", "\xe7\xbb\x87"}) EXPECT_EQ(DefaultModelId(name), "model");
}

TEST_F(ModelHostTest, TheEngineTakesTurnsAtTheGateOfItsModel) {
  const auto gate = std::make_shared<CountingGate>();
  std::string model;
  ModelHost::Options options = Options();
  options.gate_for = [&](const Model& of) {
    model = of.name();
    return gate;
  };
  ModelHost host(std::move(options));
  ASSERT_TRUE(Load(&host).ok());
  EXPECT_EQ(model, host.model().name());
  auto generation = Submit(host, Request("", {5, 6}, 2));
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(Read(generation->get()).tokens.size(), 2u);
  EXPECT_EQ(gate->n_places, 1);
}

TEST_F(ModelHostTest, UntilItIsLoadedRequestsAreTurnedAway) {
  ModelHost host(Options());
  Router router;
  RegisterServerApi(router, host, {.loaded_percent = [] { return 42; }});
  router.Add("POST", "/v1/messages", kAnthropicErrors,
             [](const HttpRequest&, HttpResponder& responder) {
               responder.Send(200, "text/plain", "answered");
             });
  FrontDoor door({}, &router, &host);
  const auto ask = [&](const char* method, const char* path) {
    HttpRequest request{.method = method, .path = path, .id = "id"};
    Recorder recorder;
    if (door.Admit(request, recorder)) Await(door.Handle(request, recorder));
    return recorder;
  };
  host.StartLoading();
  const Recorder health = ask("GET", "/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body,
            R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error",)"
            R"("loaded_percent":42}})");
  const Recorder refused = ask("POST", "/v1/messages");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr(R"("type":"overloaded_error","message":"Loading model")"));
  EXPECT_EQ(refused.headers.Header("retry-after"), "1");
  EXPECT_EQ(ask("GET", "/metrics").status, 200);

  release_.set_value(OkStatus());
  EXPECT_TRUE(loaded_.get_future().get().ok());
  EXPECT_EQ(ask("GET", "/v1/health").body, R"({"status":"ok"})");
  EXPECT_EQ(ask("POST", "/v1/messages").body, "answered");
}

TEST_F(ModelHostTest, AFailedLoadTellsTheOperatorWhyAndClientsThatItFailed) {
  ModelHost host(Options());
  EXPECT_EQ(Message(Load(&host, NotFound("cannot open /srv/secret/a.gguf"))),
            "cannot open /srv/secret/a.gguf");
  EXPECT_EQ(host.phase(), Phase::kFailed);
  EXPECT_EQ(host.phase_reason(), "the model could not be loaded; see the server's log");
  EXPECT_TRUE(host.Drain(milliseconds(0)).ok());
  EXPECT_EQ(host.phase(), Phase::kFailed);
}

TEST_F(ModelHostTest, ABadTemplateIsAFailedLoad) {
  ModelHost::Options options = Options();
  options.template_source = "{% for %}";
  ModelHost host(std::move(options));
  EXPECT_THAT(std::string(Message(Load(&host))), HasSubstr("chat template"));
}

TEST_F(ModelHostTest, ANamedSessionGoesOnWhereItWas) {
  ModelHost host(Options());
  ASSERT_TRUE(Load(&host).ok());
  std::vector<int32_t> tokens = testing::RandomTokens(40, 1);
  auto first = Submit(host, Request("kitchen", tokens, 5));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->prompt_tokens(), 40);
  for (const int32_t token : Read(first->get()).tokens) tokens.push_back(token);
  tokens.push_back(7);
  auto second = Submit(host, Request("kitchen", tokens, 1));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GE(Read(second->get()).cached_tokens, 44);
  EXPECT_TRUE(host.engine().FindSession("", "kitchen").ok());
}

TEST_F(ModelHostTest, ASessionThatRunsIsBusy) {
  ModelHost::Options options = Options();
  options.engine.max_pending_events = 8;  // nobody reads: the turn pauses and does not end
  ModelHost host(std::move(options));
  ASSERT_TRUE(Load(&host).ok());
  auto first = Submit(host, Request("kitchen", {5, 6}, 100000));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Submit(host, Request("kitchen", {5, 6}, 1)).status().code(),
            StatusCode::kFailedPrecondition);
  (*first)->Cancel();
  EXPECT_EQ(Read(first->get()).done.reason, FinishReason::kCancelled);
}

TEST_F(ModelHostTest, ARefusedTurnLeavesNoSessionBehind) {
  ModelHost host(Options());
  ASSERT_TRUE(Load(&host).ok());
  EXPECT_FALSE(Submit(host, Request("kitchen", {-1}, 1)).ok());
  EXPECT_EQ(host.engine().FindSession("", "kitchen").status().code(), StatusCode::kNotFound);
}

TEST_F(ModelHostTest, NamesThatNobodyClosesDoNotFillTheTable) {
  ModelHost::Options options = Options();
  options.engine.max_sessions = 3;
  ModelHost host(std::move(options));
  ASSERT_TRUE(Load(&host).ok());
  for (int i = 0; i < 10; ++i) {
    auto named = Submit(host, Request(StrCat("s", i), {5, 6}, 1));
    ASSERT_TRUE(named.ok()) << named.status();
    Read(named->get());
    auto anonymous = Submit(host, Request("", {5, 6}, 1));
    ASSERT_TRUE(anonymous.ok()) << anonymous.status();
    Read(anonymous->get());
  }
  EXPECT_TRUE(host.engine().FindSession("", "s9").ok());
  EXPECT_FALSE(host.engine().FindSession("", "s0").ok()) << "the oldest goes first";

  Ask other = Request("s", {5, 6}, 1);
  other.domain = "other";
  EXPECT_TRUE(Submit(host, Request("fills", {5, 6}, 1)).ok());
  EXPECT_EQ(host.engine().ListSessions("")->size(), 3u);
  EXPECT_EQ(Submit(host, std::move(other)).status().code(), StatusCode::kResourceExhausted)
      << "nobody pays for another key's sessions";
  Ask nameless = Request("", {5, 6}, 1);
  nameless.domain = "other";
  EXPECT_TRUE(Submit(host, nameless).ok()) << "nor is anybody kept from asking by them";
  Recorder client;
  RequestTurns turns(host, client);
  Ask wish = nameless;
  wish.session = {.name = "s", .required = false};
  const auto wished = Await(turns.Submit(wish, nullptr));
  EXPECT_TRUE(wished.ok()) << "a name that is only wished for is done without";
}

TEST_F(ModelHostTest, ASessionThatHasAFileKeepsItsPlace) {
  const TestFolder folder;
  ModelHost::Options options = Options();
  options.engine.state_dir = folder.path();
  options.engine.max_sessions = 2;
  ModelHost host(std::move(options));
  ASSERT_TRUE(Load(&host).ok());
  const auto use = [&](const char* name) {
    auto turn = Submit(host, Request(name, {5, 6}, 1));
    if (turn.ok()) Read(turn->get());
    return turn.status();
  };
  EXPECT_TRUE(use("kept").ok());
  EXPECT_TRUE(host.engine().Save(*host.engine().FindSession("", "kept")).ok());
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(use(name).ok()) << name;
  EXPECT_EQ(host.engine().Inspect(*host.engine().FindSession("", "kept"))->state,
            SessionState::kReady)
      << "closing it would free no place, and only cost its state";
  EXPECT_TRUE(host.engine().Save(*host.engine().FindSession("", "c")).ok());
  EXPECT_EQ(use("d").code(), StatusCode::kResourceExhausted);
}

TEST_F(ModelHostTest, ASavedSessionThatCannotBeReadIsBusyUntilItIsReset) {
  const TestFolder folder;
  const auto start = [&](std::shared_ptr<const Model> model) {
    ModelHost::Options options = Options();
    options.engine.state_dir = folder.path();
    options.load = [model] { return model; };
    options.loaded = [](const Status&) {};
    auto host = std::make_unique<ModelHost>(std::move(options));
    host->StartLoading();
    while (host->phase() == Phase::kLoading) std::this_thread::yield();
    return host;
  };
  {
    const auto host = start(testing::TinyModel("llama", 2));
    auto first = Submit(*host, Request("kitchen", {5, 6}, 1));
    ASSERT_TRUE(first.ok()) << first.status();
    Read(first->get());
    ASSERT_TRUE(host->Drain(std::chrono::minutes(1)).ok());
  }
  const auto host = start(testing::TinyModel("llama"));
  const Status refused = Submit(*host, Request("kitchen", {5, 6}, 1)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("reset or deleted: session kitchen"));

  Recorder client;
  RequestTurns turns(*host, client);
  Ask wish = Request("kitchen", {5, 6}, 1);
  wish.session.required = false;
  const auto wished = Await(turns.Submit(wish, nullptr));
  ASSERT_TRUE(wished.ok()) << wished.status();
  EXPECT_EQ(Read(wished->get()).done.reason, FinishReason::kLength);

  EXPECT_TRUE(host->engine().Reset(*host->engine().FindSession("", "kitchen")).ok());
  auto again = Submit(*host, Request("kitchen", {5, 6}, 1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Read(again->get()).done.reason, FinishReason::kLength);
}

TEST_F(ModelHostTest, AHistoryThatComesBackKeepsTheTokensOfTheReply) {
  ModelHost host(Options());
  ASSERT_TRUE(Load(&host).ok());
  const std::string prompt = "a question ";
  PromptMaker& prompts = host.answerer().prompts();
  Ask ask = Request("", prompts.Encode("d", prompt), 3);
  ask.domain = "d";
  const std::vector<int32_t> reply = testing::Bytes("abc");
  ask.turn.token_mask = testing::Script(reply);
  std::vector<int32_t> expected = ask.turn.tokens;
  auto generation = Submit(host, std::move(ask), {.text = prompt});
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(Read(generation->get()).tokens, reply);
  expected.insert(expected.end(), reply.begin(), reply.end());
  EXPECT_EQ(prompts.Encode("d", prompt + "abc"), expected);
  EXPECT_NE(prompts.Encode("e", prompt + "abc"), expected) << "or this test shows nothing";
}

TEST_F(ModelHostTest, DrainingAdmitsNothingAndLetsTurnsFinish) {
  ModelHost host(Options());
  ASSERT_TRUE(Load(&host).ok());
  auto running = Submit(host, Request("", {5, 6}, 50));
  ASSERT_TRUE(running.ok()) << running.status();
  EXPECT_TRUE(host.Drain(std::chrono::minutes(1)).ok());
  EXPECT_EQ(host.phase(), Phase::kDraining);
  EXPECT_EQ(Submit(host, Request("", {5}, 1)).status().code(), StatusCode::kUnavailable);
  const Outcome outcome = Read(running->get());
  EXPECT_EQ(outcome.done.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.tokens.size(), 50u);
}

TEST_F(ModelHostTest, ASecondDrainCutsTheFirstShort) {
  ModelHost::Options options = Options();
  // A turn whose events nobody reads is paused, so only a deadline ends it.
  options.engine.max_pending_events = 4;
  options.engine.stalled_consumer_timeout = std::chrono::hours(1);
  ModelHost host(std::move(options));
  ASSERT_TRUE(Load(&host).ok());
  auto running = Submit(host, Request("", {5, 6}, 400));
  ASSERT_TRUE(running.ok()) << running.status();
  auto first =
      std::async(std::launch::async, [&host] { return host.Drain(std::chrono::hours(1)); });
  EXPECT_TRUE(host.Drain(milliseconds(0)).ok());
  EXPECT_TRUE(first.get().ok());
  const DoneEvent done = Read(running->get()).done;
  EXPECT_EQ(done.reason, FinishReason::kError);
  EXPECT_EQ(done.status.code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weft::serve
