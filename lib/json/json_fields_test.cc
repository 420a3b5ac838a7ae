#include "json/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/strings.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = ParseJson(text, limits);
  return parsed.ok() ? "" : std::string(Message(parsed.status()));
}

TEST(ParseJson, ReadsWhatJsonIs) {
  const auto parsed = ParseJson(R"( {"b": [1, -2, 2.5, "x\u00e9", true, null], "a": {}} )", {});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->dump(), R"({"b":[1,-2,2.5,"xé",true,null],"a":{}})") << "in its order";
}

TEST(ParseJson, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(ParseJson(R"({"a":1,"b":2,"a":{"c":3}})", {})->dump(), R"({"a":{"c":3},"b":2})");
}

TEST(ParseJson, SaysWhereItStopsBeingJson) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(R"({"a":1,})"), HasSubstr("no valid JSON at byte 8"));
  EXPECT_THAT(ErrorOf("{\"a\":\"\xff\"}"), HasSubstr("no valid JSON at byte 7"));
  EXPECT_THAT(ErrorOf("[1] 2"), HasSubstr("no valid JSON"));
  EXPECT_THAT(ErrorOf("[1e999]"), HasSubstr("too large for a double"));
}

TEST(ParseJson, StopsAtItsLimits) {
  EXPECT_EQ(ErrorOf("[[1]]", {.max_depth = 2}), "");
  EXPECT_THAT(ErrorOf("[[[1]]]", {.max_depth = 2}), HasSubstr("nested deeper than the 2 levels"));
  EXPECT_THAT(ErrorOf(std::string(30'000'000, '[')), HasSubstr("nested deeper"));
  EXPECT_EQ(ErrorOf("[1,2]", {.max_values = 3}), "");
  EXPECT_THAT(ErrorOf("[1,2,3]", {.max_values = 3}), HasSubstr("more than the 3 values"));
}

TEST(ParseJson, ManyMembersTakeNoQuadraticTime) {
  std::string text = "{\"first\":0";
  for (int i = 0; i < 300'000; ++i) StrAppend(&text, ",\"k", i, "\":0");
  EXPECT_THAT(ErrorOf(text + "}"), HasSubstr("too many members"));
}

class FieldsTest : public ::testing::Test {
 protected:
  JsonFields Of(std::string_view text) {
    object_ = Json::parse(text);
    return JsonFields(object_);
  }
  Json object_;
};

TEST_F(FieldsTest, GivesWhatIsThere) {
  JsonFields fields = Of(R"({"b":true,"i":7,"f":3.0,"n":0.5,"s":"x","l":["a","b"],"z":null})");
  EXPECT_EQ(fields.Bool("b"), true);
  EXPECT_EQ(fields.Integer("i", 0, 10), 7);
  EXPECT_EQ(fields.Integer("f", 0, 10), 3) << "written as a double";
  EXPECT_EQ(fields.Number("n", 0, 1), 0.5);
  EXPECT_EQ(fields.String("s"), "x");
  EXPECT_THAT(*fields.Strings("l", 2), ElementsAre("a", "b"));
  EXPECT_THAT(*fields.Strings("s", 2), ElementsAre("x"));
  EXPECT_EQ(fields.Value("z"), nullptr);
  EXPECT_EQ(fields.String("absent"), std::nullopt);
  std::vector<std::string> unknown;
  EXPECT_TRUE(fields.Finish(&unknown).ok());
  EXPECT_THAT(unknown, ElementsAre());
}

TEST_F(FieldsTest, TheFirstErrorCounts) {
  JsonFields fields = Of(R"({"a":"x","b":"y"})");
  EXPECT_EQ(fields.Number("a", 0, 2), std::nullopt);
  EXPECT_EQ(fields.String("b"), std::nullopt) << "nothing is given after an error";
  fields.Fail("b", "is wrong too");
  EXPECT_EQ(fields.failed_field(), "a");
  std::vector<std::string> unknown;
  EXPECT_EQ(Message(fields.Finish(&unknown)), "a must be a number between 0 and 2");
}

TEST_F(FieldsTest, RefusesWrongValues) {
  EXPECT_FALSE(Of(R"({"a":11})").Integer("a", 0, 10).has_value());
  EXPECT_FALSE(Of(R"({"a":1.5})").Integer("a", 0, 10).has_value());
  EXPECT_FALSE(Of(R"({"a":18446744073709551615})").Integer("a", -1, INT64_MAX).has_value());
  EXPECT_FALSE(Of(R"({"a":1e300})").Integer("a", -1, INT64_MAX).has_value());
  EXPECT_FALSE(Of(R"({"a":1})").Bool("a").has_value());
  EXPECT_FALSE(Of(R"({"a":["x",1]})").Strings("a", 5).has_value());
  EXPECT_FALSE(Of(R"({"a":["x","y"]})").Strings("a", 1).has_value());
  EXPECT_FALSE(Of(R"([1])").Bool("a").has_value());
}

TEST_F(FieldsTest, RefusesWhatItCannotDoUnlessHarmless) {
  JsonFields fields = Of(R"({"n":1,"echo":false,"gone":null,"grammar":"x"})");
  fields.Refuse("n", "must be 1", 1);
  fields.Refuse("echo", "is not supported", false);
  fields.Refuse("gone", "is not supported");
  EXPECT_TRUE(fields.ok());
  fields.Refuse("grammar", "is not supported");
  EXPECT_FALSE(fields.ok());
}

TEST_F(FieldsTest, NamesWhatNobodyAskedFor) {
  JsonFields fields = Of(R"({"a":1,"user":"u","oddity":2})");
  fields.Integer("a", 0, 1);
  fields.CannotMatter({"user", "store"});
  std::vector<std::string> unknown;
  EXPECT_TRUE(fields.Finish(&unknown).ok());
  EXPECT_THAT(unknown, ElementsAre("oddity"));
}

}  // namespace
}  // namespace weft
