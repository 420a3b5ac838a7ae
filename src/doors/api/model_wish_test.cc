#include "doors/api/model_wish.h"

#include <gtest/gtest.h>

#include <string>

#include "doors/api/fields/error_shapes.h"
#include "doors/http/router.h"

namespace weft::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

ModelWish WishOf(const std::string& body, ErrorShape shape = kOpenAiErrors) {
  const Route route{.shape = shape};
  return ReadModelWish({.body = body, .route = &route});
}

TEST(ModelWishTest, ReadsTheModelOfTheOutermostObject) {
  EXPECT_EQ(WishOf(R"({"model": "a", "messages": []})").name, "a");
  EXPECT_EQ(WishOf(R"({"messages": [{"model": "b", "x": {"model": "c"}}], "model": "d"})").name,
            "d");
  EXPECT_EQ(WishOf(R"({"x": {"model": "b"}})").name, "");
  EXPECT_EQ(WishOf(R"(["model", "a", {"model": "b"}])").name, "");
  EXPECT_EQ(WishOf(R"({"model": 3})").name, "");
  EXPECT_EQ(WishOf(R"("model")").name, "");
  EXPECT_EQ(WishOf("").name, "");
}

TEST(ModelWishTest, BrokenBodiesWishNothingOrWhatCameBefore) {
  EXPECT_EQ(WishOf(R"({"messages": [}, "model": "a"})").name, "");
  EXPECT_EQ(WishOf(R"({"model": "a", "messages": [)").name, "a");
  EXPECT_EQ(WishOf(std::string(100'000, '[')).name, "");
  EXPECT_EQ(WishOf("{\"x\":" + std::string(100'000, '[')).name, "");
}

TEST(ModelWishTest, TheQueryCountsWhereTheBodySaysNothing) {
  const Route route{.is_watched = true};
  HttpRequest request{.query = {{"model", "q"}}, .route = &route};
  EXPECT_EQ(ReadModelWish(request).name, "q");
  EXPECT_FALSE(ReadModelWish(request).counts);
  request.body = R"({"model": "b"})";
  EXPECT_EQ(ReadModelWish(request).name, "b");
}

TEST(ModelWishTest, AQueryDecidesWhetherItIsLoaded) {
  HttpRequest request{.body = R"({"model": "a"})"};
  EXPECT_TRUE(ReadModelWish(request).may_load);
  EXPECT_FALSE(ReadModelWish(request, /*may_load=*/false).may_load);
  request.query["autoload"] = "false";
  EXPECT_FALSE(ReadModelWish(request).may_load);
  for (const char* const yes : {"true", "1"}) {
    request.query["autoload"] = yes;
    EXPECT_TRUE(ReadModelWish(request, /*may_load=*/false).may_load) << yes;
  }
}

TEST(ModelWishTest, OnlyTheOutermostObjectAsksForAStream) {
  const auto wants = [](const char* body) { return WantsStream({.body = body}); };
  EXPECT_TRUE(wants(R"({"model": "a", "messages": [], "stream": true})"));
  EXPECT_FALSE(wants(R"({"model": "a", "stream": false})"));
  EXPECT_FALSE(wants(R"({"x": {"stream": true}})"));
  EXPECT_FALSE(wants(R"([{"stream": true}])"));
  EXPECT_FALSE(wants(""));
}

TEST(ModelWishTest, OllamaSaysHowLongItStays) {
  EXPECT_EQ(WishOf(R"({"model": "a", "keep_alive": 0})", kOllamaErrors).keep_alive,
            milliseconds(0));
  EXPECT_EQ(WishOf(R"({"keep_alive": "5m", "name": "a"})", kOllamaErrors).keep_alive, minutes(5));
  EXPECT_EQ(WishOf(R"({"keep_alive": "5m", "name": "a"})", kOllamaErrors).name, "a");
  EXPECT_EQ(WishOf(R"({"model": "a", "keep_alive": -1})", kOllamaErrors).keep_alive,
            milliseconds(-1));
  EXPECT_FALSE(WishOf(R"({"model": "a", "keep_alive": 0})").keep_alive.has_value());
  EXPECT_FALSE(WishOf(R"({"model": "a"})", kOllamaErrors).keep_alive.has_value());
}

TEST(ModelWishTest, DurationsAreOllamas) {
  EXPECT_EQ(ReadKeepAlive("90"), milliseconds(90'000));
  EXPECT_EQ(ReadKeepAlive("1h30m"), minutes(90));
  EXPECT_EQ(ReadKeepAlive("300ms"), milliseconds(300));
  EXPECT_EQ(ReadKeepAlive("-1m"), milliseconds(-1));
  EXPECT_EQ(ReadKeepAlive("0s"), milliseconds(0));
  for (const char* const wrong : {"", "-", "m", "5x", "1.2.3s", "5m "}) {
    EXPECT_FALSE(ReadKeepAlive(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace weft::serve
