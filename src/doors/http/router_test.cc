#include "doors/http/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNull;
using ::testing::NotNull;

nlohmann::ordered_json OtherBody(const ApiError& error, std::string_view) { return error.message; }
constexpr ErrorShape kOtherErrors{.body = &OtherBody};

Router TestRouter() {
  Router router;
  router.SetShapeBelow("/v1/messages", kOtherErrors);
  router.SetShapeBelow("/api", kOtherErrors);
  const auto nothing = [](const HttpRequest&, HttpResponder&) {};
  router.Add("GET", "/v1/sessions", kPlainErrors, nothing);
  router.Add("POST", "/v1/sessions", kPlainErrors, nothing);
  router.Add("POST", "/v1/sessions/{id}/fork", kPlainErrors, nothing);
  router.Add("POST", "/v1/messages", kOtherErrors, nothing);
  return router;
}

Router::Match Find(const Router& router, std::string_view method, std::string_view path) {
  std::vector<std::string> segments;
  EXPECT_TRUE(SplitPath(path, &segments));
  return router.Find(method, segments);
}

TEST(Router, FindsByMethodAndPath) {
  const Router router = TestRouter();
  const auto match = Find(router, "POST", "/v1/sessions/a%2Fb%20c/fork");
  ASSERT_THAT(match.route, NotNull());
  EXPECT_EQ(match.route->pattern, "/v1/sessions/{id}/fork");
  EXPECT_THAT(match.arguments, ElementsAre("a/b c"));
  EXPECT_EQ(Find(router, "HEAD", "/v1/sessions").route->method, "GET");
}

TEST(Router, TellsAWrongMethodFromAWrongPath) {
  const Router router = TestRouter();
  const auto wrong_method = Find(router, "DELETE", "/v1/sessions");
  EXPECT_THAT(wrong_method.route, IsNull());
  EXPECT_THAT(wrong_method.allowed, ElementsAre("GET", "HEAD", "POST"));
  for (const char* const path : {"/", "/v1/sessions/", "/v1/sessions//fork", "/v1"}) {
    const auto match = Find(router, "POST", path);
    EXPECT_THAT(match.route, IsNull()) << path;
    EXPECT_THAT(match.allowed, ElementsAre()) << path;
  }
}

TEST(Router, AnUnknownPathHasTheShapeOfItsNeighbours) {
  const Router router = TestRouter();
  EXPECT_EQ(Find(router, "GET", "/v1/messages/none").shape, kOtherErrors);
  EXPECT_EQ(Find(router, "GET", "/v1/messages").shape, kOtherErrors);
  EXPECT_EQ(Find(router, "GET", "/v1/none").shape, kPlainErrors);
  EXPECT_EQ(Find(router, "GET", "/api/none").shape, kOtherErrors);
  EXPECT_EQ(Find(router, "GET", "/api").shape, kPlainErrors);
}

TEST(SplitPath, RefusesWhatIsNoPath) {
  std::vector<std::string> segments;
  for (const char* const path : {"", "v1", "/%", "/%4", "/%zz", "/%00"}) {
    EXPECT_FALSE(SplitPath(path, &segments)) << path;
  }
  EXPECT_TRUE(SplitPath("/a+b/%C3%A9", &segments));
  EXPECT_THAT(segments, ElementsAre("a+b", "é"));
}

}  // namespace
}  // namespace weft::serve
