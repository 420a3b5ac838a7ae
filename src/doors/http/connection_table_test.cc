#include "doors/http/connection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "doors/http/server_test_util.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kWait[] = "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n";

class ConnectionTableTest : public ServerTest {
 protected:
  void SetUp() override {
    // Some systems have one loopback address only.
    StartServer();
    if (!Connect("127.0.0.2")->connected()) GTEST_SKIP() << "127.0.0.2 is not this machine";
    StartServer({.max_connections = 4});
  }
  // The server takes connections in the order in which they come.
  std::unique_ptr<Client> Connect(const char* from) const {
    return std::make_unique<Client>(port(), Client::Options{.from = from});
  }
  // Holds a request that is being answered.
  std::unique_ptr<Client> Busy(const char* from) {
    const int n_before = handled_;
    auto client = Connect(from);
    EXPECT_TRUE(client->Say(kWait));
    while (handled_ == n_before) std::this_thread::yield();
    return client;
  }
  static bool IsServed(Client& client) {
    return client.Say(kGet) && client.Until("]\n").starts_with("HTTP/1.1 200 OK");
  }
};

TEST_F(ConnectionTableTest, AnAddressHasAtMostHalf) {
  const auto one = Busy("127.0.0.1"), two = Busy("127.0.0.1");
  EXPECT_THAT(Connect("127.0.0.1")->UntilEnd(), StartsWith("HTTP/1.1 503 "));
  const auto other = Connect("127.0.0.2");
  EXPECT_TRUE(IsServed(*other));
  release_.Happen();
  EXPECT_THAT(one->Until("waited\n"), HasSubstr("200 OK"));
}

TEST_F(ConnectionTableTest, OfSilentConnectionsTheOldestMakesRoom) {
  const auto first = Connect("127.0.0.1"), second = Connect("127.0.0.1");
  ASSERT_TRUE(first->Say("GET /never-ends"));
  const auto third = Connect("127.0.0.1");
  EXPECT_TRUE(IsServed(*third));
  EXPECT_EQ(first->UntilEnd(), "");
  EXPECT_TRUE(IsServed(*second));
}

TEST_F(ConnectionTableTest, WhoAskedBeforeStaysLongerThanWhoNeverDid) {
  const auto asked = Connect("127.0.0.1");
  EXPECT_TRUE(IsServed(*asked));
  const auto silent = Connect("127.0.0.1"), newest = Connect("127.0.0.1");
  EXPECT_TRUE(IsServed(*newest));
  EXPECT_EQ(silent->UntilEnd(), "");
  EXPECT_TRUE(IsServed(*asked));
}

TEST_F(ConnectionTableTest, WhenAllAreTakenTheAddressWithMostMakesRoom) {
  const auto lone = Connect("127.0.0.2"), busy = Busy("127.0.0.3");
  const auto many = Connect("127.0.0.1"), more = Connect("127.0.0.1");
  const auto newest = Connect("127.0.0.4");
  EXPECT_TRUE(IsServed(*newest));
  EXPECT_EQ(many->UntilEnd(), "");
  EXPECT_TRUE(IsServed(*lone)) << "though it was the oldest";
  EXPECT_TRUE(IsServed(*more));
  release_.Happen();
  EXPECT_THAT(busy->Until("waited\n"), HasSubstr("200 OK"));
}

TEST_F(ConnectionTableTest, NoRequestIsCutShortForANewConnection) {
  const std::vector<const char*> addresses = {"127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"};
  std::vector<std::unique_ptr<Client>> busy;
  for (const char* const address : addresses) busy.push_back(Busy(address));
  EXPECT_THAT(Connect("127.0.0.3")->UntilEnd(), StartsWith("HTTP/1.1 503 "));
  release_.Happen();
  for (const auto& client : busy) EXPECT_THAT(client->Until("waited\n"), HasSubstr("200 OK"));
}

TEST(MaxServedConnections, LeavesDescriptorsForRefusalsAndFiles) {
  EXPECT_EQ(MaxServedConnections(1024, uint64_t{1} << 20), 1024u);
  EXPECT_EQ(MaxServedConnections(1024, UINT64_MAX), 1024u);
  EXPECT_EQ(MaxServedConnections(1024, 1024), 680u);
  EXPECT_EQ(MaxServedConnections(1024, 0), 1u);
  for (uint64_t descriptors = 20; descriptors < 3000; ++descriptors) {
    const size_t n = MaxServedConnections(60'000, descriptors);
    const uint64_t with_refusals = n + std::max<uint64_t>(8, n / 8);
    EXPECT_LE(with_refusals, descriptors - std::min<uint64_t>(256, descriptors / 4));
  }
}

}  // namespace
}  // namespace weft::serve
