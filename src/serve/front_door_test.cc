// What every answer has, whoever gives it: ids, warnings in the log, probes of clients.
#include "serve/front_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "serve/log.h"
#include "serve/page.h"
#include "tests/support/api_fixture.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using Json = nlohmann::ordered_json;

class FrontDoorTest : public testing::ApiTest {
 protected:
  FrontDoorTest() {
    RegisterAnthropicApi(routes_, host());
    RegisterOpenAiApi(routes_, host());
    RegisterPage(routes_);
  }

  MemoryResponder Ask(const std::string& method, const std::string& path,
                      const Json& body = nullptr, FrontDoor::Options options = {}) {
    FrontDoor door(std::move(options), &routes_, &host());
    HttpRequest request{.method = method, .path = path, .id = "req_1"};
    if (!body.is_null()) request.body = body.dump();
    MemoryResponder responder;
    if (door.Admit(request, responder)) door.Handle(request, responder);
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

// Clients try whether somebody is there before they send their first request.
TEST_F(FrontDoorTest, ProbesDoNoHarm) {
  EXPECT_EQ(Ask("HEAD", "/").status(), 200);
  EXPECT_EQ(Ask("GET", "/api/hello").status(), 404);
  EXPECT_TRUE(Ask("GET", "/api/hello").json()["error"]["message"].is_string());
  ExpectIdle();
}

}  // namespace
}  // namespace weft::serve
