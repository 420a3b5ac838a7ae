// What a client hears while its model is loading.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "doors/api/fields/error_shapes.h"
#include "doors/api/fields/support.h"
#include "doors/api/front_door.h"
#include "doors/api/model_wish.h"
#include "doors/api/sse.h"
#include "doors/host/fleet_host.h"
#include "tests/support/await.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using testing::Await;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Answers with an event if it is asked for a stream.
class Loaded : public LoadedModel {
 public:
  Loaded() {
    const auto add = [this](const char* path, ErrorShape shape) {
      router_.AddStream("POST", path, shape,
                        [](const HttpRequest& request, HttpResponder& responder) -> Task<void> {
                          SseStream stream(responder);
                          if (!WantsStream(request)) {
                            SendJson(responder, {{"said", "whole"}});
                            co_return;
                          }
                          stream.Data({{"said", "hello"}});
                          stream.End();
                        });
    };
    add("/v1/chat/completions", kOpenAiErrors);
    add("/v1/messages", kAnthropicErrors);
    router_.Add("POST", "/v1/embeddings", kOpenAiErrors,
                [](const HttpRequest&, HttpResponder& responder) {
                  SendJson(responder, {{"said", "vectors"}});
                });
  }
  Host& host() override { CheckFailed(__FILE__, __LINE__, "host()", "nobody asks"); }
  const Router& router() const override { return router_; }
  int64_t memory_bytes() const override { return 1; }
  Status Park(milliseconds) override { return OkStatus(); }

 private:
  Router router_;
};

// Lets the model be loaded after so many pieces of the answer.
class Client : public HttpResponder {
 public:
  Client(std::promise<void>* release, int after_pieces) : release_(*release), left_(after_pieces) {
    Count();
  }
  void Send(int code, std::string_view content_type, std::string text,
            HttpHeaders fields) override {
    status = code;
    type = content_type;
    body += text;
    headers.headers = std::move(fields);
  }
  bool Begin(int code, std::string_view content_type, HttpHeaders fields) override {
    ++begun;
    Send(code, content_type, "", std::move(fields));
    return true;
  }
  bool Write(std::string_view data) override {
    body += data;
    Count();
    return true;
  }
  void End() override { ended = true; }
  bool gone() const override { return false; }
  std::stop_token cancellation() const override { return {}; }

  int status = 0, begun = 0;
  bool ended = false;
  std::string type, body;
  HttpRequest headers;

 private:
  void Count() {
    if (left_-- == 0) release_.set_value();
  }
  std::promise<void>& release_;
  int left_;
};

class FrontDoorModelsTest : public ::testing::Test {
 protected:
  FrontDoorModelsTest() : host_(Defaults(), std::make_shared<DrainSwitch>()) {
    FleetModel model{.name = "slow"};
    model.load = [this](const auto& told) -> StatusOr<std::unique_ptr<LoadedModel>> {
      told(0.5);
      release_.get_future().wait();
      if (fails_) return InvalidArgument("its tensors are torn");
      return std::make_unique<Loaded>();
    };
    std::vector<FleetModel> models;
    models.push_back(std::move(model));
    fleet_ =
        std::make_unique<ModelFleet>(ModelFleet::Options{.memory_bytes = 10}, std::move(models));
    fleet_->Start();
    door_ = std::make_unique<FrontDoor>(FrontDoor::Options{.fleet = fleet_.get()},
                                        &routes_.router(), &host_);
  }
  static RequestDefaults Defaults() {
    RequestDefaults defaults;
    defaults.stream_begin = milliseconds(1);
    defaults.server.ping_interval = milliseconds(1);
    return defaults;
  }
  Client Post(const std::string& path, const std::string& body, int after_pieces) {
    Client client(&release_, after_pieces);
    HttpRequest request{.method = "POST", .path = path, .body = body, .id = "id"};
    EXPECT_TRUE(door_->Admit(request, client));
    Await(door_->Handle(request, client));
    return client;
  }

  bool fails_ = false;
  std::promise<void> release_;
  FleetHost host_;
  Loaded routes_;
  std::unique_ptr<ModelFleet> fleet_;
  std::unique_ptr<FrontDoor> door_;
};

TEST_F(FrontDoorModelsTest, AStreamHearsThatItsModelIsLoading) {
  const Client client = Post("/v1/chat/completions", R"({"model": "slow", "stream": true})", 3);
  EXPECT_EQ(client.status, 200);
  EXPECT_EQ(client.begun, 1);
  EXPECT_EQ(client.type, "text/event-stream");
  EXPECT_EQ(client.headers.Header("x-request-id"), "id");
  EXPECT_THAT(client.body, StartsWith(": the model slow "));
  EXPECT_THAT(client.body, HasSubstr("\n\n: the model slow is loading (50 %)\n\n"));
  EXPECT_THAT(client.body, ::testing::EndsWith("\n\ndata: {\"said\":\"hello\"}\n\n"));
  EXPECT_TRUE(client.ended);
}

TEST_F(FrontDoorModelsTest, AStreamHearsWhyItsModelCannotBeLoaded) {
  fails_ = true;
  const Client client = Post("/v1/messages", R"({"model": "slow", "stream": true})", 1);
  EXPECT_EQ(client.status, 200);
  EXPECT_THAT(client.body, HasSubstr("event: error\ndata: {"));
  EXPECT_THAT(client.body, HasSubstr("its tensors are torn"));
  EXPECT_TRUE(client.ended);
}

TEST_F(FrontDoorModelsTest, OthersWaitInSilence) {
  const Client client = Post("/v1/chat/completions", R"({"model": "slow"})", 0);
  EXPECT_EQ(client.body, R"({"said":"whole"})");
  EXPECT_EQ(client.begun, 0);
}

TEST_F(FrontDoorModelsTest, AnAnswerThatIsNoStreamOfEventsHasNoSigns) {
  const Client client = Post("/v1/embeddings", R"({"model": "slow", "stream": true})", 0);
  EXPECT_EQ(client.body, R"({"said":"vectors"})");
}

TEST_F(FrontDoorModelsTest, WhoMayNotLoadIsToldHow) {
  Client client(&release_, 0);
  HttpRequest request{.method = "POST",
                      .path = "/v1/chat/completions",
                      .query = {{"autoload", "false"}},
                      .body = R"({"model": "slow"})"};
  EXPECT_TRUE(door_->Admit(request, client));
  Await(door_->Handle(request, client));
  EXPECT_EQ(client.status, 400);
  EXPECT_THAT(client.body, HasSubstr("POST /models/load"));
  EXPECT_EQ(fleet_->Find("slow")->state, ModelFleet::State::kUnloaded);
}

}  // namespace
}  // namespace weft::serve
