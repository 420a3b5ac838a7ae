#include "cli/launch/server.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LaunchServerTest, AddressesAreMadeReachable) {
  EXPECT_EQ(ReachableAddress("http://10.0.0.5:8080/v1/"), "http://10.0.0.5:8080");
  EXPECT_EQ(ReachableAddress("http://10.0.0.5:8080/v1"), "http://10.0.0.5:8080");
  EXPECT_EQ(ReachableAddress("localhost:8080/"), "http://localhost:8080");
  EXPECT_EQ(ReachableAddress("http://0.0.0.0:8080"), "http://127.0.0.1:8080");
  EXPECT_EQ(ReachableAddress("http://[::]:8080"), "http://[::1]:8080");
}

TEST(LaunchServerTest, OneRunningServerIsTheOne) {
  const RunningServer one{.address = "http://127.0.0.1:1", .model = "a"};
  const RunningServer two{.address = "http://127.0.0.1:2", .model = "b"};
  EXPECT_EQ(OnlyServer({one}).value(), "http://127.0.0.1:1");
  EXPECT_THAT(std::string(Message(OnlyServer({}).status())), HasSubstr("-m"));
  EXPECT_THAT(
      std::string(Message(OnlyServer({one, two}).status())),
      AllOf(HasSubstr("http://127.0.0.1:1 (a), http://127.0.0.1:2 (b)"), HasSubstr("--server")));
}

}  // namespace
}  // namespace weft::cli
