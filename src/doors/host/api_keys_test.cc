#include "doors/host/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "base/strings.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ApiKeys, ReadsKeysAndNames) {
  const auto keys = ApiKeys::Parse("# comment\n\n  one   first\r\ntwo\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(keys->required());
  EXPECT_EQ(keys->Find("one")->name, "first");
  EXPECT_EQ(keys->Find("two")->name, "");
  for (const char* const wrong : {"", "on", "onee", "first", "#", "ONE"}) {
    EXPECT_FALSE(keys->Find(wrong).has_value()) << wrong;
  }
}

TEST(ApiKeys, DomainsAreOfTheKeyAndDoNotShowIt) {
  const auto keys = ApiKeys::Parse("one a\ntwo a");
  const auto again = ApiKeys::Parse("two b\nthree\none");
  EXPECT_EQ(keys->Find("one")->domain, again->Find("one")->domain) << "whatever the file";
  EXPECT_NE(keys->Find("one")->domain, keys->Find("two")->domain);
  EXPECT_EQ(keys->Find("one")->domain.size(), 32u);
  EXPECT_THAT(keys->Find("one")->domain, Not(HasSubstr("one")));
}

TEST(ApiKeys, ErrorsNameTheLineAndNotTheKey) {
  const auto words = ApiKeys::Parse("one\nsecret name more");
  EXPECT_THAT(std::string(Message(words.status())), HasSubstr("line 2"));
  EXPECT_THAT(std::string(Message(words.status())), Not(HasSubstr("secret")));
  EXPECT_FALSE(ApiKeys::Parse("schl\xc3\xbcssel").ok());
  EXPECT_FALSE(ApiKeys::Parse("# none\n").ok());
  EXPECT_FALSE(ApiKeys::Load("/nowhere/keys").ok());
  EXPECT_FALSE(ApiKeys().required());
}

// A temporary key file.
class KeyFile {
 public:
  explicit KeyFile(std::string_view text) { Write(text); }
  ~KeyFile() { std::remove(path_.c_str()); }
  void Write(std::string_view text) const { std::ofstream(path_) << text; }
  void SetMode(mode_t mode) const { EXPECT_EQ(chmod(path_.c_str(), mode), 0); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_ = StrCat(::testing::TempDir(), "/api_keys_test.", getpid(), ".txt");
};

TEST(ApiKeys, AreReadAnewInAllCopies) {
  const KeyFile file("one\n");
  auto keys = ApiKeys::Load(file.path());
  ASSERT_TRUE(keys.ok()) << keys.status();
  const ApiKeys copy = *keys;
  file.Write("two second\nthree\n");
  EXPECT_TRUE(copy.Find("one").has_value());
  EXPECT_TRUE(keys->Reload().ok());
  EXPECT_FALSE(copy.Find("one").has_value());
  EXPECT_EQ(copy.Find("two")->name, "second");
  EXPECT_EQ(copy.size(), 2u);
  file.Write("# none is left\n");
  EXPECT_THAT(std::string(Message(keys->Reload())), HasSubstr("it contains no keys"));
  EXPECT_TRUE(copy.Find("two").has_value()) << "the server is not opened to all";
  EXPECT_TRUE(ApiKeys().Reload().ok());
}

TEST(ApiKeys, AFileThatOthersMayReadIsWarnedAbout) {
  const KeyFile file("one\n");
  for (const mode_t mode : {0600, 0400, 0640}) {
    file.SetMode(mode);
    EXPECT_EQ(KeyFileWarning(file.path()), "");
  }
  file.SetMode(0644);
  EXPECT_THAT(KeyFileWarning(file.path()), HasSubstr("can read"));
  for (const mode_t mode : {0666, 0660, 0602}) {
    file.SetMode(mode);
    EXPECT_THAT(KeyFileWarning(file.path()), HasSubstr("can change"));
  }
}

}  // namespace
}  // namespace weft::serve
