#include "cli/launch/settings_writer.h"

#include <stdlib.h>

#include <filesystem>

#include "base/files/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SettingsWriterTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Put(const std::string& name, std::string_view text) const {
    ASSERT_TRUE(WriteFile(Path(name), std::as_bytes(std::span(text))).ok());
  }
  std::string Get(const std::string& name) const { return ReadFile(Path(name), 10000).value(); }

  std::string folder_ = testing::TempDir() + "settings-XXXXXX";
};

TEST_F(SettingsWriterTest, ANewFileGetsItsFolder) {
  const auto done = WriteSettings({{Path("a/b/c.toml"), "x = 1\n", false}});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_THAT(*done, ElementsAre(HasSubstr("wrote")));
  EXPECT_EQ(Get("a/b/c.toml"), "x = 1\n");
}

TEST_F(SettingsWriterTest, JsonIsMergedAndWhatItWasIsKeptOnce) {
  const std::string before = R"({"z": 1, "env": {"A": "old", "B": "2"}})";
  Put("s.json", before);
  const std::vector<SettingsFile> files = {{Path("s.json"), R"({"env": {"A": "new"}})", true}};
  ASSERT_TRUE(WriteSettings(files).ok());
  EXPECT_EQ(Get("s.json"),
            "{\n  \"z\": 1,\n  \"env\": {\n    \"A\": \"new\",\n    \"B\": \"2\"\n  }\n}\n");
  EXPECT_EQ(Get("s.json.before-weft"), before);
  EXPECT_THAT(*WriteSettings(files), ElementsAre(HasSubstr("says so already")));
  ASSERT_TRUE(WriteSettings({{Path("s.json"), R"({"env": {"A": "newer"}})", true}}).ok());
  EXPECT_EQ(Get("s.json.before-weft"), before);
}

TEST_F(SettingsWriterTest, ALinkStaysOneAndPermissionsStay) {
  Put("real.json", "{}");
  std::filesystem::permissions(
      Path("real.json"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink(Path("real.json"), Path("link.json"));
  ASSERT_TRUE(WriteSettings({{Path("link.json"), R"({"a": 1})", true}}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link.json")));
  EXPECT_THAT(Get("real.json"), HasSubstr("\"a\": 1"));
  EXPECT_EQ(std::filesystem::status(Path("real.json")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(SettingsWriterTest, WhatCannotBeMergedIsLeftAsItIsAndSoIsTheRest) {
  Put("c.yml", "mine: 1\n");
  Put("comments.json", "{ // mine\n}");
  const SettingsFile good{Path("good.json"), "{}", true};
  const auto yaml = WriteSettings({good, {Path("c.yml"), "x: 1\n", false}});
  EXPECT_THAT(std::string(Message(yaml.status())), HasSubstr("c.yml exists already"));
  const auto json = WriteSettings({good, {Path("comments.json"), "{}", true}});
  EXPECT_THAT(std::string(Message(json.status())), HasSubstr("not plain JSON"));
  EXPECT_EQ(Get("c.yml"), "mine: 1\n");
  EXPECT_EQ(Get("comments.json"), "{ // mine\n}");
  EXPECT_FALSE(std::filesystem::exists(Path("good.json")));
}

}  // namespace
}  // namespace weft::cli
