// A session moves from one server to another: the routes about sessions, with a store that two
// servers share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "doors/api/openai/routes.h"
#include "doors/api/server/drain_routes.h"
#include "doors/api/sessions/routes.h"
#include "engine/engine_test_util.h"
#include "engine/storage/object_store_test_util.h"
#include "tests/support/engine_harness.h"
#include "tests/support/memory_responder.h"
#include "tests/support/scripted_host.h"
#include "weft/shared_store.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using testing::MemoryResponder;
using Json = nlohmann::ordered_json;

// A server without its sockets.
class MovingServer {
 public:
  // `store` may be null. `folder` is the server's own.
  MovingServer(std::shared_ptr<ObjectStore> store, std::string url, const std::string& folder) {
    EngineOptions options;
    options.n_threads = 1;
    options.state_dir = folder;
    options.shared = {.objects = std::move(store), .worker_url = std::move(url)};
    auto model = testing::ScriptedModel::Start(options);
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    RegisterOpenAiApi(router_, model_->host());
    RegisterSessionsApi(router_, model_->host());
    RegisterDrainApi(router_, model_->host().drain_switch(), OnlyHost(model_->host()));
  }

  MemoryResponder Ask(std::string_view method, std::string_view path, const Json& body = nullptr) {
    HttpRequest request;
    request.method = std::string(method);
    request.path = std::string(path);
    request.is_operators = true;
    if (!body.is_null()) request.body = body.dump();
    std::vector<std::string> segments;
    EXPECT_TRUE(SplitPath(path, &segments));
    Router::Match match = router_.Find(method, segments);
    request.path_arguments = std::move(match.arguments);
    MemoryResponder responder;
    if (match.route == nullptr) {
      ADD_FAILURE() << "there is no route " << path;
    } else {
      RunHandler(*match.route, request, responder);
    }
    return responder;
  }

  MemoryResponder Say(std::string_view session, std::string_view text) {
    const Json message = {{"role", "user"}, {"content", StrCat("<<say>>", text, "<</say>>")}};
    return Ask("POST", "/v1/chat/completions",
               {{"session_id", session}, {"messages", Json::array({message})}});
  }
  int64_t TokensOf(std::string_view session) {
    const MemoryResponder shown = Ask("GET", StrCat("/v1/sessions/", session));
    EXPECT_EQ(shown.status(), 200) << shown.body();
    return shown.json().value("tokens", int64_t{-1});
  }

 private:
  std::unique_ptr<testing::ScriptedModel> model_;
  Router router_;
};

class MoveTest : public ::testing::Test {
 protected:
  MovingServer Serve(int port, bool shares = true) {
    const std::string folder = StrCat(folder_.path(), "/", port);
    std::filesystem::create_directories(folder);
    return {shares ? store_ : nullptr, StrCat("http://127.0.0.1:", port), folder};
  }

 private:
  const TestFolder folder_;
  const std::shared_ptr<ObjectStore> store_ = std::make_shared<MemoryObjectStore>();
};

TEST_F(MoveTest, TheNextServerThatIsAskedGoesOn) {
  MovingServer one = Serve(8081), two = Serve(8082);
  ASSERT_EQ(one.Say("attic", "Hello.").status(), 200);
  const int64_t n_tokens = one.TokensOf("attic");
  EXPECT_GT(n_tokens, 0);

  for (const char* const action : {"fork", "reset", "park", "restore", "move"}) {
    const MemoryResponder refused = two.Ask("POST", StrCat("/v1/sessions/attic/", action));
    EXPECT_EQ(refused.status(), 409) << action;
    EXPECT_EQ(refused.json()["error"]["code"], "session_elsewhere") << action;
    EXPECT_EQ(refused.Header("X-Weft-Owner"), "http://127.0.0.1:8081") << action;
    EXPECT_NE(refused.Header("Retry-After"), "") << action;
  }
  const MemoryResponder seen = two.Ask("GET", "/v1/sessions/attic");
  EXPECT_EQ(seen.status(), 200) << seen.body();
  EXPECT_EQ(seen.json()["tokens"], n_tokens);
  EXPECT_EQ(seen.json()["owner"], "http://127.0.0.1:8081");
  EXPECT_EQ(two.Say("attic", "Hello.").status(), 409);
  EXPECT_EQ(two.Ask("DELETE", "/v1/sessions/attic").status(), 409);

  const MemoryResponder moved = one.Ask("POST", "/v1/sessions/attic/move");
  EXPECT_EQ(moved.status(), 200) << moved.body();
  EXPECT_EQ(moved.json(), Json({{"moved", true}, {"session_id", "attic"}}));
  EXPECT_TRUE(one.Ask("GET", "/v1/sessions").json()["data"].empty());
  EXPECT_EQ(two.TokensOf("attic"), n_tokens);
  EXPECT_FALSE(one.Ask("GET", "/v1/sessions/attic").json().contains("owner"));
  EXPECT_EQ(two.Ask("POST", "/v1/sessions/attic/fork", {{"id", "garden"}}).json()["tokens"],
            n_tokens);
  EXPECT_EQ(one.Ask("GET", "/v1/sessions/attic").json()["owner"], "http://127.0.0.1:8082");
}

TEST_F(MoveTest, WhatNobodyHasIsNotFound) {
  MovingServer server = Serve(8081);
  for (const char* const action : {"fork", "park", "restore", "move"}) {
    EXPECT_EQ(server.Ask("POST", StrCat("/v1/sessions/none/", action)).status(), 404) << action;
  }
  EXPECT_EQ(server.Ask("GET", "/v1/sessions/none").status(), 404);
  EXPECT_EQ(server.Ask("POST", "/v1/sessions/none/reset").status(), 200);
  EXPECT_EQ(server.Ask("DELETE", "/v1/sessions/none").status(), 200);
  EXPECT_EQ(server.Ask("POST", "/v1/sessions/a b/move").status(), 400);
}

TEST_F(MoveTest, ADeletedSessionIsGoneForAll) {
  MovingServer one = Serve(8081), two = Serve(8082);
  ASSERT_EQ(one.Say("attic", "Hello.").status(), 200);
  ASSERT_EQ(one.Ask("POST", "/v1/sessions/attic/move").status(), 200);
  EXPECT_EQ(two.Ask("DELETE", "/v1/sessions/attic").status(), 200);
  EXPECT_EQ(one.Ask("GET", "/v1/sessions/attic").status(), 404);
  EXPECT_EQ(two.Ask("POST", "/v1/sessions/attic/move").status(), 404);
}

TEST_F(MoveTest, ADrainedServerGivesAllUp) {
  MovingServer one = Serve(8081), two = Serve(8082);
  ASSERT_EQ(one.Say("attic", "Hello.").status(), 200);
  const MemoryResponder drained = one.Ask("POST", "/drain");
  EXPECT_EQ(drained.status(), 200) << drained.body();
  EXPECT_EQ(drained.json()["sessions_in_memory"], 0);
  EXPECT_EQ(drained.json()["sessions_unsaved"], 0);
  EXPECT_GT(two.TokensOf("attic"), 0);
  EXPECT_EQ(one.Say("attic", "Hello.").status(), 503);
}

TEST_F(MoveTest, NeedsAStore) {
  MovingServer server = Serve(8081, /*shares=*/false);
  ASSERT_EQ(server.Say("attic", "Hello.").status(), 200);
  const MemoryResponder refused = server.Ask("POST", "/v1/sessions/attic/move");
  EXPECT_EQ(refused.status(), 409) << refused.body();
  EXPECT_THAT(refused.body(), HasSubstr("store"));
  EXPECT_GT(server.TokensOf("attic"), 0);
  EXPECT_EQ(server.Ask("POST", "/v1/sessions/none/move").status(), 404);
}

}  // namespace
}  // namespace weft::serve
