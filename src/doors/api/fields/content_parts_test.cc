#include "doors/api/fields/content_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doors/api/fields/support.h"

namespace weft::serve {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::ordered_json;

bool IsStone(const Json& part) { return ValueIn(part, "type") == "stone"; }

const char kMessages[] = R"([
  {"role": "system", "content": "stone"},
  {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "stone"}], "name": "Ann"},
  {"role": "user", "content": [{"type": "text", "text": "stone"}]},
  7,
  {"role": "tool", "content": [{"type": "stone"}]}])";

TEST(ContentParts, AreFoundInContentsAlone) {
  EXPECT_TRUE(HaveParts(Json::parse(kMessages), IsStone));
  for (const char* const none :
       {"null", "7", "[]", R"({"content": [{"type": "stone"}]})", R"([{"type": "stone"}])",
        R"([{"content": {"type": "stone"}}])", R"([{"content": "stone"}, null])"}) {
    EXPECT_FALSE(HaveParts(Json::parse(none), IsStone)) << none;
  }
}

TEST(ContentParts, OnlyTheirContentsAreRewritten) {
  const Json messages = Json::parse(kMessages);
  std::vector<std::string> places;
  const auto rewritten =
      RewriteContents(messages, IsStone, [&](const Json& content, const std::string& place) {
        places.push_back(place);
        return StatusOr<Json>(Json(content.size()));
      });
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  EXPECT_THAT(places, ElementsAre("messages[1].content", "messages[4].content"));
  Json expected = messages;
  expected[1] = {{"role", "user"}, {"name", "Ann"}, {"content", 2}};
  expected[4]["content"] = 1;
  EXPECT_EQ(rewritten->dump(), expected.dump());
}

TEST(ContentParts, AnErrorEndsIt) {
  int n_calls = 0;
  const auto rewritten =
      RewriteContents(Json::parse(kMessages), IsStone, [&](const Json&, const std::string& place) {
        ++n_calls;
        return StatusOr<Json>(InvalidArgument(place, ": too heavy"));
      });
  EXPECT_EQ(Message(rewritten.status()), "messages[1].content: too heavy");
  EXPECT_EQ(n_calls, 1);
}

}  // namespace
}  // namespace weft::serve
