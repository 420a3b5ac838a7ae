#include "doors/http/client_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "doors/http/http.h"

namespace weft::serve {
namespace {

TEST(ClientNetwork, OfIPv6TheFirstHalfCounts) {
  EXPECT_EQ(ClientNetwork("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::/64");
  EXPECT_EQ(ClientNetwork("2001:DB8::1:0:0:0:9"), "2001:db8:0:1::/64");
  EXPECT_EQ(ClientNetwork("2001:db8:0:2:2:3:4:5"), "2001:db8:0:2::/64");
  EXPECT_EQ(ClientNetwork("fe80::1%eth0"), ClientNetwork("fe80::2%25eth0"));
  EXPECT_EQ(ClientNetwork("::1"), "::/64");
}

TEST(ClientNetwork, AnIPv4AddressIsOneInEachForm) {
  EXPECT_EQ(ClientNetwork("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(ClientNetwork("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(ClientNetwork("0:0:0:0:0:ffff:c000:201"), "192.0.2.1");
  EXPECT_EQ(ClientNetwork("::ffff:192.0.2.2"), "192.0.2.2");
  for (const char* const other : {"", "gone", "192.0.2", "::ffff:192.0.2.256", "%", "1::2::3"}) {
    EXPECT_EQ(ClientNetwork(other), other);
  }
}

// Two random addresses are one client if and only if their first 64 bits are equal, and so are
// their tenants.
TEST(ClientNetwork, SameNetworkSameTenant) {
  std::mt19937 random(7);
  const auto text_of = [](const std::array<uint8_t, 16>& bytes) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    inet_ntop(AF_INET6, bytes.data(), text.data(), text.size());
    return std::string(text.data());
  };
  for (int round = 0; round < 10'000; ++round) {
    std::array<uint8_t, 16> bytes{};
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    bytes[0] |= 0x20;  // so that it is not an IPv4 address
    auto other = bytes;
    const size_t changed = random() % bytes.size();
    other[changed] ^= static_cast<uint8_t>(1u << (random() % 8));
    if (changed == 0) other[0] |= 0x02;
    const HttpRequest one{.address = text_of(bytes)}, two{.address = text_of(other)};
    const bool is_one = std::equal(bytes.begin(), bytes.begin() + 8, other.begin());
    EXPECT_EQ(one.Account() == two.Account(), is_one) << one.address << " " << two.address;
  }
}

}  // namespace
}  // namespace weft::serve
