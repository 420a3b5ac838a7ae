#include "doors/api/page/conversation_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doors/api/openai/routes.h"
#include "tests/support/memory_responder.h"
#include "tests/support/scripted_host.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kAll[] = "/v1/page/conversations";

class ConversationRoutesTest : public ::testing::Test {
 protected:
  void SetUp() override { SetUpWith(true); }

  void SetUpWith(bool keeps) {
    model_.reset();
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    if (folder_.empty()) folder_ = mkdtemp(pattern.data());
    EngineOptions options;
    options.n_threads = 1;
    if (keeps) options.state_dir = folder_;
    auto model = ScriptedModel::Start(options);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    router_ = std::make_unique<serve::Router>();
    serve::RegisterOpenAiApi(*router_, model_->host());
    serve::RegisterConversationsApi(*router_, model_->host());
  }

  ~ConversationRoutesTest() override {
    router_.reset();
    model_.reset();
    std::filesystem::remove_all(folder_);
  }

  MemoryResponder Ask(std::string_view method, std::string_view path, std::string body = "",
                      std::string version = "", serve::HttpHeaders headers = {},
                      std::string domain = "") {
    serve::HttpRequest request;
    request.method = std::string(method);
    request.path = std::string(path);
    request.body = std::move(body);
    request.headers = std::move(headers);
    request.domain = std::move(domain);
    if (!version.empty()) request.query["version"] = version;
    std::vector<std::string> segments;
    EXPECT_TRUE(serve::SplitPath(path, &segments));
    serve::Router::Match match = router_->Find(method, segments);
    MemoryResponder responder;
    if (match.route == nullptr) {
      ADD_FAILURE() << "nothing is at " << path;
      return responder;
    }
    request.path_arguments = std::move(match.arguments);
    RunHandler(*match.route, request, responder);
    return responder;
  }

  std::string folder_;
  std::unique_ptr<ScriptedModel> model_;
  std::unique_ptr<serve::Router> router_;
};

TEST_F(ConversationRoutesTest, GivesBackWhatWasPut) {
  const std::string one = std::string(kAll) + "/one";
  const auto put = Ask("PUT", one, R"({"title": "L\u00f6om", "n": 1.50})", "0");
  ASSERT_EQ(put.status(), 200) << put.body();
  const auto got = Ask("GET", one).json();
  EXPECT_EQ(got["version"], put.json()["version"]);
  EXPECT_EQ(got["conversation"]["title"], "L\u00f6om");
  const auto list = Ask("GET", kAll).json();
  EXPECT_EQ(list["kept"], true);
  ASSERT_THAT(list["data"], SizeIs(1));
  EXPECT_EQ(list["data"][0]["version"], put.json()["version"]);
  EXPECT_THAT(Ask("GET", kAll, "", "", {}, "a1").json()["data"], SizeIs(0));
  EXPECT_EQ(Ask("DELETE", one).status(), 200);
  EXPECT_EQ(Ask("GET", one).status(), 404);
}

TEST_F(ConversationRoutesTest, ListsAgainOnlyWhenItHasChanged) {
  const std::string tag = Ask("GET", kAll).Header("ETag");
  EXPECT_EQ(Ask("GET", kAll, "", "", {{"If-None-Match", tag}}).status(), 304);
  EXPECT_EQ(Ask("PUT", std::string(kAll) + "/one", "{}", "0").status(), 200);
  const auto list = Ask("GET", kAll, "", "", {{"If-None-Match", tag}});
  EXPECT_EQ(list.status(), 200);
  EXPECT_NE(list.Header("ETag"), tag);
}

TEST_F(ConversationRoutesTest, SaysWhyAChangeIsRefused) {
  const std::string one = std::string(kAll) + "/one";
  ASSERT_EQ(Ask("PUT", one, "{}", "0").status(), 200);
  const auto conflict = Ask("PUT", one, "{}", "0");
  EXPECT_EQ(conflict.status(), 409);
  EXPECT_EQ(conflict.json()["error"]["code"], "version_conflict");
  EXPECT_EQ(Ask("PUT", std::string(kAll) + "/two", "{}", "7").status(), 404);
  EXPECT_THAT(Ask("PUT", one, "{}").body(), HasSubstr("?version=0"));
  for (const char* const body : {"", "{", "[]", "7", "{\"a\":1}}"}) {
    EXPECT_EQ(Ask("PUT", std::string(kAll) + "/three", body, "0").status(), 400) << body;
  }
  EXPECT_EQ(Ask("PUT", std::string(kAll) + "/A", "{}", "0").status(), 400);
  const std::string big = "{\"text\":\"" + std::string(9 << 20, 'a') + "\"}";
  const auto refused = Ask("PUT", std::string(kAll) + "/big", big, "0");
  EXPECT_EQ(refused.status(), 413);
  EXPECT_THAT(refused.body(), HasSubstr("8 MiB"));
  EXPECT_THAT(Ask("GET", kAll).json()["data"], SizeIs(1));
}

TEST_F(ConversationRoutesTest, SaysThatTheBrowserKeepsThemWithoutAStateDirectory) {
  SetUpWith(false);
  EXPECT_EQ(Ask("GET", kAll).json()["kept"], false);
  const auto put = Ask("PUT", std::string(kAll) + "/one", "{}", "0");
  EXPECT_EQ(put.status(), 501);
  EXPECT_THAT(put.body(), HasSubstr("--state-dir"));
}

TEST_F(ConversationRoutesTest, ShowsTheTextOfASession) {
  const std::string body =
      R"({"session_id": "agent-1", "messages": [{"role": "user", "content": "<<say>>Warp.<</say>>"}]})";
  ASSERT_EQ(Ask("POST", "/v1/chat/completions", body).status(), 200);
  const auto shown = Ask("GET", "/v1/page/sessions/agent-1");
  ASSERT_EQ(shown.status(), 200) << shown.body();
  EXPECT_GT(shown.json()["tokens"], 0);
  EXPECT_THAT(shown.json()["text"].get<std::string>(), HasSubstr("<<say>>Warp."));
  EXPECT_EQ(Ask("GET", "/v1/page/sessions/agent-2").status(), 404);
  EXPECT_EQ(Ask("GET", "/v1/page/sessions/agent-1", "", "", {}, "a1").status(), 404);
}

}  // namespace
}  // namespace weft::testing
