// Common to every answer, whichever handler gives it: ids, warnings in the log, clients' probes.
#include "doors/api/front_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "doors/api/page/page.h"
#include "doors/api/server/routes.h"
#include "doors/api/sessions/routes.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using Json = nlohmann::ordered_json;

// A server with --log-text.
class VerboseHost : public testing::ScriptedHost {
 public:
  explicit VerboseHost(Host& inner) : ScriptedHost(inner), defaults_(inner.defaults()) {
    defaults_.server.log_text = true;
  }
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  RequestDefaults defaults_;
};

class FrontDoorTest : public testing::ApiTest {
 protected:
  FrontDoorTest() {
    RegisterAnthropicApi(routes_, host());
    routes_.SetShapeBelow("/api", kOllamaErrors);
    RegisterOpenAiApi(routes_, host());
    RegisterPage(routes_);
  }

  MemoryResponder Ask(const std::string& method, const std::string& path,
                      const Json& body = nullptr, FrontDoor::Options options = {},
                      Host* asked = nullptr) {
    FrontDoor door(std::move(options), &routes_, asked == nullptr ? &host() : asked);
    HttpRequest request{.method = method, .path = path, .id = "req_1"};
    if (!body.is_null()) request.body = body.dump();
    MemoryResponder responder;
    if (door.Admit(request, responder)) testing::Await(door.Handle(request, responder));
    return responder;
  }

  Router routes_;
};

TEST_F(FrontDoorTest, EveryAnswerOfAnthropicsApiHasItsId) {
  const Json hello = {{"messages", Json::array({Say("hello")})}};
  const auto answer = Ask("POST", "/v1/messages", hello);
  EXPECT_EQ(answer.status(), 200) << answer.body();
  EXPECT_EQ(answer.Header("request-id"), "req_1");
  Json streamed = hello;
  streamed["stream"] = true;
  EXPECT_EQ(Ask("POST", "/v1/messages", streamed).Header("request-id"), "req_1");
  EXPECT_EQ(Ask("POST", "/v1/messages/count_tokens", hello).Header("request-id"), "req_1");

  FrontDoor::Options closed;
  auto keys = ApiKeys::Parse("secret-key-of-some-length\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  closed.keys = *std::move(keys);
  const MemoryResponder errors[] = {Ask("POST", "/v1/messages", Json::object()),
                                    Ask("GET", "/v1/messages"),
                                    Ask("POST", "/v1/messages", hello, closed)};
  for (const MemoryResponder& error : errors) {
    EXPECT_GE(error.status(), 400);
    EXPECT_EQ(error.Header("request-id"), "req_1") << error.status();
    EXPECT_EQ(error.json()["type"], "error");
    EXPECT_EQ(error.json()["request_id"], "req_1") << error.body();
  }
  const auto broken = Ask("POST", "/v1/messages",
                          {{"messages", Json::array({Say("ab<<fail>>")})}, {"stream", true}});
  EXPECT_EQ(broken.Events().back().json()["request_id"], "req_1");
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", hello).Header("request-id"), "");
}

TEST_F(FrontDoorTest, AWarningIsInTheLog) {
  const Json body = {{"messages", Json::array({Say("hello")})},
                     {"tools", Json::array({WeatherTool(), {{"type", "web_search"}}})}};
  ASSERT_TRUE(FlushLog(std::chrono::seconds(60)));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Ask("POST", "/v1/chat/completions", body).status(), 200);
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("id=req_1 warning=\"tools that this server cannot run were left out: "
                        "web_search\""));
}

// Monitoring polls every second; only failures are worth a log line then.
TEST_F(FrontDoorTest, WhoWatchesIsNotInTheLog) {
  RegisterServerApi(routes_, host());
  RegisterSessionsApi(routes_, host());
  const auto log_of = [&](const std::string& path, FrontDoor::Options options,
                          Host* asked = nullptr) {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    ::testing::internal::CaptureStderr();
    Ask("GET", path, nullptr, std::move(options), asked);
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    return ::testing::internal::GetCapturedStderr();
  };
  VerboseHost verbose(host());
  auto keys = ApiKeys::Parse("secret-key-of-some-length\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const char* path : {"/health", "/metrics", "/slots", "/v1/sessions"}) {
    EXPECT_EQ(log_of(path, {}), "") << path;
    EXPECT_THAT(log_of(path, {}, &verbose), HasSubstr(path));
    if (std::string(path) == "/health") continue;  // needs no key
    EXPECT_THAT(log_of(path, {.keys = *keys}), HasSubstr(StrCat(path, " 401")));
  }
  EXPECT_THAT(log_of("/v1/models", {}), HasSubstr("GET /v1/models 200"));
  EXPECT_THAT(log_of("/v1/sessions/none", {}), HasSubstr("GET /v1/sessions/none 404"));
}

class ChargeTest : public FrontDoorTest {
 protected:
  ChargeTest() {
    const auto add = [this](const char* path, uint32_t work_bytes_per_byte, HttpHandler handler) {
      routes_.Add({.method = "POST",
                   .pattern = path,
                   .handler = std::move(handler),
                   .work_bytes_per_byte = work_bytes_per_byte});
    };
    add("/answer", 0, [](const HttpRequest& request, HttpResponder& responder) {
      responder.Send(200, "text/plain", std::string(std::stoul(request.body), 'x'));
    });
    // What another request of the same client gets meanwhile.
    const auto meanwhile = [this](const HttpRequest&, HttpResponder& responder) {
      MemoryResponder other;
      Answer(std::string(1000, ' ') + "1", &other);
      responder.Send(other.status(), "text/plain", "");
    };
    add("/light", 0, meanwhile);
    add("/heavy", 300, meanwhile);
    door_ = std::make_unique<FrontDoor>(FrontDoor::Options{.max_parsed_bytes = 600'000}, &routes_,
                                        &host());
  }

  void Answer(std::string body, MemoryResponder* responder, std::string path = "/answer",
              std::string address = "10.0.0.1") {
    HttpRequest request{.method = "POST", .path = std::move(path), .body = std::move(body)};
    request.address = std::move(address);
    ASSERT_TRUE(door_->Admit(request, *responder));
    testing::Await(door_->Handle(request, *responder));
  }

  std::unique_ptr<FrontDoor> door_;
};

TEST_F(ChargeTest, ALargeAnswerIsChargedUntilItIsRead) {
  MemoryResponder first, second, third, other, fourth;
  Answer("200000", &first);
  Answer("200000", &second);
  EXPECT_EQ(first.status(), 200);
  EXPECT_EQ(second.status(), 200) << "the work is done";
  Answer("1", &third);
  EXPECT_EQ(third.status(), 429) << "of one client";
  EXPECT_EQ(third.Header("Retry-After"), "1");
  Answer("1", &other, "/answer", "10.0.0.2");
  EXPECT_EQ(other.status(), 200);
  first.BeRead();
  Answer("1", &fourth);
  EXPECT_EQ(fourth.status(), 200);
}

TEST_F(ChargeTest, WorkThatTakesMoreThanItsBodyIsChargedForIt) {
  MemoryResponder light, heavy;
  Answer(std::string(1000, ' '), &light, "/light");
  EXPECT_EQ(light.status(), 200);
  Answer(std::string(1000, ' '), &heavy, "/heavy");
  EXPECT_EQ(heavy.status(), 429);
}

// Otherwise the next request is admitted while this one's memory is still in use.
TEST_F(ChargeTest, AnAnswerLeavesWhenWhatItsRequestTookIsFree) {
  MemoryResponder* answer = nullptr;
  int sent_before = -1;
  bool ended_before = true;
  const auto looks_at_its_end = [&] {
    return std::shared_ptr<void>(nullptr, [&](void*) {
      sent_before = answer->answers();
      ended_before = answer->ended();
    });
  };
  routes_.Add("POST", "/whole", kOpenAiErrors, [&](const HttpRequest&, HttpResponder& responder) {
    const auto taken = looks_at_its_end();
    responder.Send(200, "text/plain", "x");
  });
  routes_.Add("POST", "/stream", kOpenAiErrors, [&](const HttpRequest&, HttpResponder& responder) {
    const auto taken = looks_at_its_end();
    responder.Begin(200, "text/plain", {});
    responder.Write("x");
    responder.End();
  });
  MemoryResponder whole, stream;
  answer = &whole;
  Answer("1", &whole, "/whole");
  EXPECT_EQ(sent_before, 0);
  EXPECT_EQ(whole.body(), "x");
  answer = &stream;
  Answer("1", &stream, "/stream");
  EXPECT_FALSE(ended_before);
  EXPECT_TRUE(stream.ended());
}

// Clients probe the server before their first request.
TEST_F(FrontDoorTest, ProbesDoNoHarm) {
  EXPECT_EQ(Ask("HEAD", "/").status(), 200);
  EXPECT_EQ(Ask("GET", "/api/hello").status(), 404);
  EXPECT_TRUE(Ask("GET", "/api/hello").json()["error"].is_string());
  ExpectIdle();
}

}  // namespace
}  // namespace weft::serve
