#include "cli/serve/models_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelsFileTest, ReadsTablesOfStringsNumbersAndArrays) {
  const auto tables = ParseModelsFile(
      "# models\n"
      "[haiku]\n"
      "model = \"a \\\"b\\\" # c\"  # a comment\r\n"
      "aliases = ['x', \"y, z\",]\n"
      "ctx=8192\n"
      "pinned = true\n"
      "\n"
      "[ \"Qwen 2.5/7B\" ]\n"
      "temp = 0.5\n"
      "[qwen2.5-coder]\n");
  ASSERT_TRUE(tables.ok()) << tables.status();
  ASSERT_EQ(tables->size(), 3u);
  const ModelTable& haiku = (*tables)[0];
  EXPECT_EQ(haiku.name, "haiku");
  ASSERT_EQ(haiku.values.size(), 4u);
  EXPECT_THAT(haiku.values[0].items, ElementsAre("a \"b\" # c"));
  EXPECT_THAT(haiku.values[1].items, ElementsAre("x", "y, z"));
  EXPECT_TRUE(haiku.values[1].is_array);
  EXPECT_EQ(haiku.values[2].key, "ctx");
  EXPECT_THAT(haiku.values[2].items, ElementsAre("8192"));
  EXPECT_EQ(haiku.values[3].line, 6);
  EXPECT_EQ((*tables)[1].name, "Qwen 2.5/7B");
  EXPECT_EQ((*tables)[2].name, "qwen2.5-coder");
}

TEST(ModelsFileTest, NamesTheLineOfAnError) {
  const auto error = [](std::string_view text) {
    return std::string(Message(ParseModelsFile(text).status()));
  };
  EXPECT_THAT(error("ctx = 1"), HasSubstr("line 1: a model's table comes first"));
  EXPECT_THAT(error("[a]\nctx"), HasSubstr("line 2: \"ctx\" is not followed by ="));
  EXPECT_THAT(error("[a]\nctx = big"), HasSubstr("line 2: a value is a string in quotes"));
  EXPECT_THAT(error("[a]\nctx = \"big"), HasSubstr("line 2: a string has no end"));
  EXPECT_THAT(error("[a]\nx = \"\\u0041\""), HasSubstr("line 2: an escape"));
  EXPECT_THAT(error("[a]\nx = [1, 2"), HasSubstr("line 2: "));
  EXPECT_THAT(error("[a]\nx = 1 2"), HasSubstr("line 2: something follows"));
  EXPECT_THAT(error("[a]\nx = 1\nx = 2"), HasSubstr("line 3: a second value of x"));
  EXPECT_THAT(error("[a]\n[a]"), HasSubstr("line 2: a second table [a]"));
  EXPECT_THAT(error("[a"), HasSubstr("line 1: a table begins"));
  EXPECT_THAT(error("[\"\"]"), HasSubstr("line 1: a model's name is empty"));
}

}  // namespace
}  // namespace weft::cli
