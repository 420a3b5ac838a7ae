#include "doors/stores/s3_options.h"

#include <stdlib.h>

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::stores {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class S3OptionsTest : public ::testing::Test {
 protected:
  S3OptionsTest() {
    for (const char* const name : kNames) {
      const char* const value = getenv(name);
      before_.emplace_back(value == nullptr ? std::optional<std::string>() : value);
      unsetenv(name);
    }
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  }
  ~S3OptionsTest() override {
    for (size_t i = 0; i < before_.size(); ++i) {
      if (before_[i]) {
        setenv(kNames[i], before_[i]->c_str(), 1);
      } else {
        unsetenv(kNames[i]);
      }
    }
  }
  static constexpr const char* kNames[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                           "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"};
  std::vector<std::optional<std::string>> before_;
};

TEST_F(S3OptionsTest, ReadsAddressAndEnvironment) {
  auto options = ReadS3Options("s3://talks/weft/a/", "");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->bucket, "talks");
  EXPECT_EQ(options->prefix, "weft/a");
  EXPECT_EQ(options->endpoint, "https://s3.us-east-1.amazonaws.com");
  EXPECT_EQ(options->access_key, "id");
  EXPECT_EQ(options->secret_key, "secret");
  EXPECT_EQ(options->session_token, "");
  setenv("AWS_DEFAULT_REGION", "eu-west-3", 1);
  setenv("AWS_SESSION_TOKEN", "token", 1);
  options = ReadS3Options("s3://talks", "http://127.0.0.1:9000/");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->prefix, "");
  EXPECT_EQ(options->endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(options->region, "eu-west-3");
  EXPECT_EQ(options->session_token, "token");
  setenv("AWS_REGION", "ap-south-1", 1);
  EXPECT_EQ(ReadS3Options("s3://talks", "")->endpoint, "https://s3.ap-south-1.amazonaws.com");
  setenv("AWS_REGION", "cn-north-1", 1);
  EXPECT_EQ(ReadS3Options("s3://talks", "")->endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
  EXPECT_TRUE(ReadS3Options("s3://talks", "https://[::1]:9000").ok());
}

TEST_F(S3OptionsTest, RefusesWhatIsNoStore) {
  for (const char* const address :
       {"", "talks", "s3://", "s3://ab", "https://talks", "s3://a b c", "s3://talks/a//b",
        "s3://talks/../b", "s3://talks//", "s3://talks/a?b", "s3://-talks"}) {
    EXPECT_EQ(ReadS3Options(address, "").status().code(), StatusCode::kInvalidArgument) << address;
  }
  for (const char* const endpoint :
       {"s3.example", "ftp://s3.example", "http://", "http://a/b", "http://me:pw@s3.example",
        "http://s3.example?x", "http://s3.example:99999", "http://s3 example"}) {
    const Status status = ReadS3Options("s3://talks", endpoint).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << endpoint;
  }
  setenv("AWS_REGION", "us:east", 1);
  EXPECT_THAT(ReadS3Options("s3://talks", "").status().ToString(), HasSubstr("AWS_REGION"));
}

TEST_F(S3OptionsTest, SaysWhichKeyIsMissing) {
  unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_THAT(ReadS3Options("s3://talks", "").status().ToString(),
              AllOf(HasSubstr("set AWS_SECRET_ACCESS_KEY"), Not(HasSubstr("AWS_ACCESS_KEY_ID"))));
  unsetenv("AWS_ACCESS_KEY_ID");
  EXPECT_THAT(ReadS3Options("s3://talks", "").status().ToString(),
              HasSubstr("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  setenv("AWS_ACCESS_KEY_ID", "id", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "line\nbreak", 1);
  const std::string words = ReadS3Options("s3://talks", "").status().ToString();
  EXPECT_THAT(words, AllOf(HasSubstr("AWS_SECRET_ACCESS_KEY"), Not(HasSubstr("line"))));
}

}  // namespace
}  // namespace weft::stores
