#include "model/hub/net/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hub/net/http_client.h"
#include "tests/support/tiny_http_server.h"

namespace weft::hub {
namespace {

using ::testing::HasSubstr;

bool IsPublic(const std::string& text) {
  sockaddr_storage address = {};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr), 1) << text;
    v6->sin6_family = AF_INET6;
  }
  return IsPublicAddress(reinterpret_cast<const sockaddr*>(&address));
}

TEST(PublicAddressTest, OnlyThoseOfTheOpenInternet) {
  for (const char* address :
       {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.0.1", "100.128.0.1", "126.0.0.1",
        "172.15.0.1", "172.32.0.1", "192.0.1.1", "192.167.0.1", "198.17.0.1", "198.20.0.1",
        "223.255.255.255", "2606:4700::1111", "2a00::1", "2002:101:101::", "::ffff:1.1.1.1"}) {
    EXPECT_TRUE(IsPublic(address)) << address;
  }
  for (const char* address : {"0.0.0.0",
                              "10.1.2.3",
                              "100.64.0.1",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.0.0.8",
                              "192.168.1.1",
                              "198.18.0.1",
                              "198.19.255.255",
                              "224.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "::7f00:1",
                              "64:ff9b::7f00:1",
                              "fe80::1",
                              "fc00::1",
                              "fd12::1",
                              "ff02::1",
                              "2001:db8::1",
                              "2001::1",
                              "2002:7f00:1::",
                              "2002:a00:1::",
                              "3fff::1"}) {
    EXPECT_FALSE(IsPublic(address)) << address;
  }
}

TEST(PublicAddressTest, NoConnectionIsMadeToOthersNorAfterARedirect) {
  testing::TinyHttpServer inner(
      [](const testing::TinyRequest&) { return testing::HttpText(200, "", "secret"); });
  HttpOptions options;
  options.may_connect = IsPublicAddress;
  const auto refused = HttpClient(options).FetchText({.url = inner.url() + "/x"}, 100);
  EXPECT_EQ(refused.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("not of the open internet"));
  // As a server of the internet that sends its clients inside.
  testing::TinyHttpServer outer([&](const testing::TinyRequest&) {
    return testing::HttpText(302, "Location: " + inner.url() + "/x\r\n", "");
  });
  const int port = std::stoi(outer.url().substr(outer.url().rfind(':') + 1));
  options.may_connect = [port](const sockaddr* address) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port) == port;
  };
  const auto led = HttpClient(options).FetchText({.url = outer.url() + "/y"}, 100);
  EXPECT_EQ(led.status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(outer.n_requests(), 1);
  EXPECT_EQ(inner.n_requests(), 0);
}

}  // namespace
}  // namespace weft::hub
