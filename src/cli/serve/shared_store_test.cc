#include "cli/serve/shared_store.h"

#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/serve/serve_flags.h"
#include "doors/stores/s3_server_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

class SharedStoreTest : public ::testing::Test {
 protected:
  SharedStoreTest() : fake_(std::make_shared<stores::FakeS3>()) {
    const stores::S3Key key;
    setenv("AWS_ACCESS_KEY_ID", key.id.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", key.secret.c_str(), 1);
    setenv("AWS_REGION", key.region.c_str(), 1);
    unsetenv("AWS_SESSION_TOKEN");
    flags_.store = "s3://talks/weft";
    flags_.state_dir = "/tmp/state";
    flags_.worker_url = "http://10.0.0.5:8080/";
    flags_.store_lease = std::chrono::seconds(7);
  }
  std::string Refusal() const { return OpenSharedStore(flags_).status().ToString(); }

  std::shared_ptr<stores::FakeS3> fake_;
  serve::ServerOptions flags_;
};

TEST_F(SharedStoreTest, IsNoneUnlessAFlagAsks) {
  const auto none = OpenSharedStore({});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->options.objects, nullptr);
  EXPECT_EQ(none->line, "");
}

TEST_F(SharedStoreTest, OpensAStoreThatKeepsItsWord) {
  stores::S3TestServer server(
      [this](const stores::S3Request& request) { return (*fake_)(request); });
  flags_.store_endpoint = server.url();
  const auto shared = OpenSharedStore(flags_);
  ASSERT_TRUE(shared.ok()) << shared.status();
  ASSERT_NE(shared->options.objects, nullptr);
  EXPECT_EQ(shared->options.worker_url, "http://10.0.0.5:8080");
  EXPECT_EQ(shared->options.lease, std::chrono::seconds(7));
  EXPECT_EQ(shared->line, StrCat("shared store s3://talks/weft at ", server.url(),
                                 ", for clients http://10.0.0.5:8080, lease 7 s"));
  EXPECT_EQ(shared->options.objects->Get("x").status().code(), StatusCode::kNotFound);
}

TEST_F(SharedStoreTest, RefusesAStoreThatIgnoresConditions) {
  stores::S3TestServer server(
      [this](const stores::S3Request& request) { return fake_->Serve(request, false); });
  flags_.store_endpoint = server.url();
  EXPECT_THAT(Refusal(), HasSubstr("lets two writers create one object"));
  EXPECT_THAT(Refusal(), HasSubstr(server.url()));
}

TEST_F(SharedStoreTest, SaysWhichFlagIsMissingOrWrong) {
  flags_.worker_url = "";
  EXPECT_THAT(Refusal(), HasSubstr("--store needs --worker-url"));
  for (const char* const url : {"10.0.0.5:8080", "http://", "http://a/b", "http://a b",
                                "ftp://10.0.0.5", "http://a\r\nX-Evil: 1", "http://a:"}) {
    flags_.worker_url = url;
    EXPECT_THAT(Refusal(), HasSubstr("--worker-url")) << url;
  }
  flags_.worker_url = "http://10.0.0.5:8080";
  flags_.store = "s3:/talks";
  EXPECT_THAT(Refusal(), HasSubstr("--store: \"s3:/talks\" is no store"));
  flags_.store = "s3://talks";
  flags_.store_endpoint = "127.0.0.1:9";
  EXPECT_THAT(Refusal(), HasSubstr("no store's endpoint"));
  flags_.store_endpoint = "http://127.0.0.1:9";
  unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_THAT(Refusal(), HasSubstr("set AWS_SECRET_ACCESS_KEY"));
  flags_.state_dir = "";
  EXPECT_THAT(Refusal(), HasSubstr("--store needs --state-dir"));
}

// As from --store "$STORE" where nobody has set STORE.
TEST(SharedStoreFlagsTest, AnEmptyOneIsNotOneLeftOut) {
  for (const char* const flag : {"--store", "--store-endpoint"}) {
    CLI::App app;
    ServeFlags flags;
    AddServeFlags(&app, &flags);
    try {
      app.parse(std::vector<std::string>{"", flag});  // the last comes first
      FAIL() << flag << " takes an empty value";
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(error.what(), HasSubstr(StrCat("is empty; write a value, or leave out ", flag)));
    }
  }
}

}  // namespace
}  // namespace weft::cli
