// Read-only requests are answered over HTTP while a long step runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "doors/api/front_door.h"
#include "doors/api/openai/routes.h"
#include "doors/api/page/channel.h"
#include "doors/api/page/page.h"
#include "doors/api/server/info.h"
#include "doors/api/server/routes.h"
#include "doors/api/sessions/routes.h"
#include "doors/host/model_host.h"
#include "doors/http/client.h"
#include "doors/http/server.h"
#include "tests/support/engine_harness.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class ReadersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::promise<Status> loaded;
    ModelHost::Options options;
    options.load = [this] { return testing::TinyModel("llama", 1, &backend_); };
    options.engine.n_threads = 1;
    options.engine.memory_bytes = 64 << 20;
    options.template_source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    options.model_id = "tiny";
    options.loaded = [&loaded](const Status& status) { loaded.set_value(status); };
    host_ = std::make_unique<ModelHost>(std::move(options));
    host_->StartLoading();
    ASSERT_TRUE(loaded.get_future().get().ok());
    RegisterServerApi(router_, *host_);
    RegisterInfoApi(router_, *host_);
    RegisterSessionsApi(router_, *host_);
    RegisterOpenAiApi(router_, *host_);
    RegisterChannelApi(router_, *host_);
    RegisterPage(router_);
    door_ = std::make_unique<FrontDoor>(FrontDoor::Options(), &router_, host_.get());
    auto server =
        HttpServer::Start({.port = 0, .max_threads = 2, .max_waiting = 2}, door_->Hooks());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  HttpAnswer Ask(const std::string& path, std::string method = "GET", std::string body = "") {
    auto answer = CallHttp({.server = StrCat("http://127.0.0.1:", server_->port()),
                            .method = std::move(method),
                            .path = path,
                            .body = std::move(body)});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : HttpAnswer();
  }

  testing::FaultyBackend backend_;
  std::unique_ptr<ModelHost> host_;
  Router router_;
  std::unique_ptr<FrontDoor> door_;
  std::unique_ptr<HttpServer> server_;  // destroyed first
};

TEST_F(ReadersTest, AreAnsweredWhileAStepIsHeldAndHandlersWait) {
  for (const char* session : {R"({"session_id": "idle"})", R"({"session_id": "a/b"})"}) {
    ASSERT_EQ(Ask("/v1/sessions", "POST", session).status, 200);
  }
  testing::HeldSteps held(&backend_.faults());
  const std::string body = R"({"prompt": "The loom", "max_tokens": 3, "session_id": "busy"})";
  std::vector<std::future<HttpAnswer>> waiting;
  const auto begin = [&](const std::string& path, const std::string& method) {
    waiting.push_back(std::async(std::launch::async, [this, path, method, body] {
      HttpAnswer answer;
      do {  // they come faster than slow handlers take them
        answer = Ask(path, method, body);
      } while (answer.status == 503);
      return answer;
    }));
  };
  begin("/v1/completions", "POST");
  ASSERT_TRUE(held.WaitForOne());
  // More than the threads and the places for waiting ones, if each of these held one.
  constexpr int kWaiting = 8;
  for (int i = 0; i < kWaiting; ++i) begin("/v1/sessions/idle", "DELETE");
  const auto& connections = host_->metrics().http_load()->connections;
  while (held.holds() && connections < kWaiting + 1) std::this_thread::yield();

  for (const char* path :
       {"/health", "/v1/health", "/metrics", "/v1/models", "/models", "/v1/models/tiny", "/props",
        "/slots", "/v1/sessions", "/v1/sessions/idle", "/v1/sessions/a%2Fb", "/tokenizer_info",
        "/model_info", "/get_model_info", "/server_info", "/get_server_info", "/load", "/version",
        "/"}) {
    EXPECT_EQ(Ask(path).status, 200) << path;
  }
  EXPECT_EQ(Ask("/v1/channels/page/chats/none", "DELETE").status, 200) << "a stop gets through";
  EXPECT_THAT(Ask("/v1/sessions/busy").body, HasSubstr(R"("state":"running")"));
  const Json slot = Json::parse(Ask("/slots").body)[0];
  EXPECT_EQ(slot["is_processing"], true);
  EXPECT_EQ(slot["session_id"], "busy");
  EXPECT_EQ(slot["state"], "reading");
  EXPECT_GT(slot["n_prompt_tokens"], 0);
  EXPECT_EQ(slot["prompt_progress"]["processed"], 0);
  EXPECT_THAT(Ask("/metrics").body, HasSubstr("weft_turns_running 1"));
  EXPECT_TRUE(held.holds()) << "or somebody waited until the step was let go";
  held.Release();
  for (auto& answer : waiting) EXPECT_EQ(answer.get().status, 200);
  EXPECT_FALSE(Json::parse(Ask("/slots").body)[0].contains("session_id"));
}

TEST_F(ReadersTest, ASlotTellsForHowManyTokensItsPromptWaits) {
  backend_.faults().step_delay_us = 300'000;
  std::vector<std::future<HttpAnswer>> answers;
  for (const int first : {10, 50, 90}) {
    Json body = {{"prompt", std::vector<int>(400, first)}, {"max_tokens", 1}};
    answers.push_back(std::async(std::launch::async, [this, text = body.dump()] {
      return Ask("/v1/completions", "POST", text);
    }));
  }
  Json waiting;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (waiting.is_null() && std::chrono::steady_clock::now() < deadline) {
    for (const Json& slot : Json::parse(Ask("/slots").body)) {
      if (slot.value("state", "") == "waiting") waiting = slot;
    }
  }
  ASSERT_FALSE(waiting.is_null()) << "no prompt waited";
  EXPECT_EQ(waiting["prompt_progress"]["total"], 400);
  EXPECT_EQ(waiting["prompt_progress"]["processed"], 0);
  EXPECT_GT(waiting["prompt_progress"]["waits_behind_tokens"], 0);
  EXPECT_LE(waiting["prompt_progress"]["waits_behind_tokens"], 800);
  for (auto& answer : answers) EXPECT_EQ(answer.get().status, 200);
}

}  // namespace
}  // namespace weft::serve
