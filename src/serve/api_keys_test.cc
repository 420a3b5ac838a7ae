#include "serve/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace weft::serve
