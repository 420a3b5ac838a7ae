#include "json/json_text.h"

#include <gtest/gtest.h>

#include <string_view>

#include "json/big_integer.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kText =
    R"({"a":[1,-2.5,"x, é"],"b":{"yes":true,"no":false},"c":null,"d":[],"e":{}})";

TEST(JsonText, HasAStyle) {
  const Json value = Json::parse(kText);
  EXPECT_EQ(StyledJson(value, JsonStyle::kCompact), kText);
  EXPECT_EQ(CompactJson(value), kText);
  EXPECT_EQ(
      StyledJson(value, JsonStyle::kSpaced),
      R"({"a": [1, -2.5, "x, é"], "b": {"yes": true, "no": false}, "c": null, "d": [], "e": {}})");
  EXPECT_EQ(
      StyledJson(value, JsonStyle::kPython),
      R"({"a": [1, -2.5, "x, é"], "b": {"yes": True, "no": False}, "c": None, "d": [], "e": {}})");
}

TEST(JsonText, KeepsAllDigits) {
  const Json value = ParseKeepingIntegers("[123456789012345678901234567890,true]");
  EXPECT_EQ(CompactJson(value), "[123456789012345678901234567890,true]");
  EXPECT_EQ(StyledJson(value, JsonStyle::kPython), "[123456789012345678901234567890, True]");
}

TEST(JsonText, IsValidUtf8) {
  const Json value = {{"k\xC3", "half \xC3"}};
  for (const JsonStyle style : {JsonStyle::kCompact, JsonStyle::kSpaced, JsonStyle::kPython}) {
    const Json read = Json::parse(StyledJson(value, style));
    EXPECT_EQ(read, (Json{{"k\uFFFD", "half \uFFFD"}}));
  }
  EXPECT_EQ(CompactJson(value), StyledJson(value, JsonStyle::kCompact));
}

}  // namespace
}  // namespace weft
