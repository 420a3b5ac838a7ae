#include "doors/http/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/strings.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;

HttpGuard Guard(HttpGuard::Options options = {}) {
  auto guard = HttpGuard::Create(std::move(options));
  EXPECT_TRUE(guard.ok()) << guard.status();
  return *std::move(guard);
}

// The status with which a request with these headers is refused; 0 if it is accepted.
int Refused(const HttpGuard& guard, HttpHeaders headers, std::string method = "POST",
            bool has_body = false, bool is_public = false) {
  HttpRequest head;
  head.method = std::move(method);
  head.headers = std::move(headers);
  head.has_body = has_body;
  const auto refusal = guard.Refusal(head, is_public);
  return refusal.has_value() ? refusal->http_status : 0;
}

TEST(HttpGuard, OnLoopbackTheHostIsOneOfThisMachine) {
  const HttpGuard guard = Guard({.allowed_hosts = {"GPU.example", "[fd00::7]"}});
  for (const char* const host :
       {"localhost", "LocalHost:8080", "localhost.", "127.0.0.1:1", "127.1.2.3", "[::1]:8080",
        "[::1]", "[0:0:0:0:0:0:0:1]:8080", "[::0001]", "::0:1", "[::0.0.0.1]", "gpu.example:9",
        "[fd00::7]:1", ""}) {
    EXPECT_EQ(Refused(guard, {{"Host", host}}), 0) << host;
  }
  EXPECT_EQ(Refused(guard, {}), 0) << "no browser leaves it out";
  for (const char* const host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
        "127.evil.example", "evil@localhost", "localhost:80:90", "localhost:evil", "[::1", "[::2]",
        "[::10]", "[0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:1]", "[1::]", "192.168.0.7:8080",
        "0.0.0.0:8080", "::2", "[localhost:80]", "localhost.."}) {
    EXPECT_EQ(Refused(guard, {{"Host", host}}), 403) << host;
  }
  EXPECT_EQ(Refused(guard, {{"Host", "localhost"}, {"host", "evil"}}), 400);
}

TEST(HttpGuard, ElsewhereAnyHostWillDoUnlessSomeAreNamed) {
  EXPECT_EQ(Refused(Guard({.bind_host = "0.0.0.0"}), {{"Host", "gpu.example"}}), 0);
  const HttpGuard guard = Guard({.bind_host = "192.168.0.7", .allowed_hosts = {"gpu"}});
  for (const char* const host : {"gpu:1", "192.168.0.7:8080", "localhost"}) {
    EXPECT_EQ(Refused(guard, {{"Host", host}}), 0) << host;
  }
  EXPECT_EQ(Refused(guard, {{"Host", "evil.example"}}), 403);
}

TEST(HttpGuard, PagesOfTheServerItselfMayAskAndNoOthers) {
  const HttpGuard guard = Guard();
  const auto refused = [&](const char* origin, const char* host = "127.0.0.1:8080") {
    return Refused(guard, {{"Host", host}, {"Origin", origin}});
  };
  EXPECT_EQ(refused("http://127.0.0.1:8080"), 0);
  EXPECT_EQ(refused("HTTP://LocalHost:8080", "localhost:8080"), 0);
  EXPECT_EQ(refused("http://localhost", "localhost"), 0);
  EXPECT_EQ(refused("http://localhost:80", "localhost"), 0);
  EXPECT_EQ(refused("https://localhost", "localhost:443"), 0) << "behind a proxy with TLS";
  for (const char* const origin :
       {"https://evil.example", "http://127.0.0.1:8081", "http://localhost:8080", "null", "",
        "http://127.0.0.1:8080.evil.example", "http://evil@127.0.0.1:8080", "file://",
        "http://127.0.0.1:8080/", "chrome-extension://127.0.0.1:8080"}) {
    EXPECT_EQ(refused(origin), 403) << origin;
  }
  EXPECT_EQ(Refused(guard, {{"Host", "a"}, {"Origin", "http://a"}}), 403) << "a rebound name";
  EXPECT_EQ(Refused(guard, {{"Host", "localhost"},
                            {"Origin", "http://localhost"},
                            {"Origin", "https://evil.example"}}),
            403);
}

TEST(HttpGuard, FetchesFromElsewhereThatNameNoOriginAreRefused) {
  const HttpGuard guard = Guard();
  for (const char* const site : {"cross-site", "same-site", "what is to come"}) {
    EXPECT_EQ(Refused(guard, {{"Sec-Fetch-Site", site}}, "GET"), 403) << site;
  }
  for (const char* const site : {"same-origin", "none"}) {
    EXPECT_EQ(Refused(guard, {{"Sec-Fetch-Site", site}}, "GET"), 0) << site;
  }
  HttpHeaders link = {{"Sec-Fetch-Site", "cross-site"},
                      {"Sec-Fetch-Mode", "navigate"},
                      {"Sec-Fetch-Dest", "document"}};
  EXPECT_EQ(Refused(guard, link, "GET", false, /*is_public=*/true), 0) << "a link to the page";
  EXPECT_EQ(Refused(guard, link, "GET", false, /*is_public=*/false), 403);
  EXPECT_EQ(Refused(guard, link, "POST", false, /*is_public=*/true), 403) << "a form";
  link.back().second = "iframe";
  EXPECT_EQ(Refused(guard, link, "GET", false, /*is_public=*/true), 403);
  EXPECT_EQ(Refused(guard,
                    {{"Connection", "Upgrade"},
                     {"Upgrade", "websocket"},
                     {"Origin", "https://evil.example"},
                     {"Sec-Fetch-Site", "cross-site"}},
                    "GET"),
            403);
}

TEST(HttpGuard, OriginsThatTheOperatorListsMayAskAndRead) {
  const HttpGuard guard = Guard({.cors_origins = {"https://Page.example", "app://notes"}});
  HttpRequest head;
  head.method = "OPTIONS";
  head.headers = {{"Origin", "https://page.example"}, {"Sec-Fetch-Site", "cross-site"}};
  EXPECT_FALSE(guard.Refusal(head, false).has_value());
  EXPECT_EQ(guard.CorsHeaders(head)[0].second, "https://page.example");
  EXPECT_EQ(Refused(guard, {{"Origin", "app://notes"}}), 0);
  for (const char* const origin : {"http://page.example", "https://page.example:444",
                                   "https://evil.example", "null", "http://localhost:3000"}) {
    EXPECT_EQ(Refused(guard, {{"Origin", origin}}), 403) << origin;
    head.headers[0].second = origin;
    EXPECT_TRUE(guard.CorsHeaders(head).empty()) << origin;
  }
  EXPECT_EQ(Refused(guard, {{"Sec-Fetch-Site", "cross-site"}}, "GET"), 403);
}

TEST(HttpGuard, LocalhostIsEveryPageOfThisMachine) {
  const HttpGuard guard = Guard({.cors_origins = {"localhost"}});
  for (const char* const origin : {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:5",
                                   "HTTP://LocalHost", "http://[0:0::1]:5"}) {
    EXPECT_EQ(Refused(guard, {{"Origin", origin}}), 0) << origin;
  }
  for (const char* const origin :
       {"http://localhost.evil.example", "https://evil.example", "null", "localhost"}) {
    EXPECT_EQ(Refused(guard, {{"Origin", origin}}), 403) << origin;
  }
  const HttpGuard any = Guard({.cors_origins = {"*"}});
  EXPECT_EQ(Refused(any, {{"Origin", "null"}}), 0);
  EXPECT_EQ(Refused(any, {{"Host", "evil.example"}, {"Origin", "http://evil.example"}}), 403)
      << "the name of the server is another matter";
}

TEST(HttpGuard, BodiesAreJson) {
  const HttpGuard guard = Guard();
  const auto refused = [&](HttpHeaders headers) {
    return Refused(guard, std::move(headers), "POST", /*has_body=*/true);
  };
  for (const char* const type :
       {"application/json", "Application/JSON; charset=utf-8", "application/problem+json"}) {
    EXPECT_EQ(refused({{"Content-Type", type}}), 0) << type;
  }
  const std::string form = "application/x-www-form-urlencoded";
  EXPECT_EQ(refused({}), 0);
  EXPECT_EQ(refused({{"Content-Type", form}}), 0) << "curl -d";
  for (const char* const type : {"text/plain", "multipart/form-data; boundary=x", "text/json"}) {
    EXPECT_EQ(refused({{"Content-Type", type}}), 415) << type;
    EXPECT_EQ(Refused(guard, {{"Content-Type", type}}), 0) << "there is no body";
  }
  const std::pair<std::string, std::string> host = {"Host", "localhost"},
                                            origin = {"Origin", "http://localhost"};
  EXPECT_EQ(refused({host, origin, {"Content-Type", "application/json"}}), 0);
  EXPECT_EQ(refused({host, origin, {"Content-Type", form}}), 415);
  EXPECT_EQ(refused({host, origin}), 415);
  EXPECT_EQ(refused({{"Sec-Fetch-Site", "none"}, {"Content-Type", form}}), 415);
}

TEST(HttpGuard, WhatIsNoOriginOrHostIsRefusedAtTheStart) {
  for (const char* const origin :
       {"page.example", "https://page.example/", "https://", "", "://"}) {
    const auto guard = HttpGuard::Create({.cors_origins = {origin}});
    EXPECT_EQ(guard.status().code(), StatusCode::kInvalidArgument) << origin;
    EXPECT_THAT(std::string(Message(guard.status())), HasSubstr("--cors-origin"));
  }
  for (const char* const host : {"http://gpu", "*.example", "", "a b"}) {
    EXPECT_FALSE(HttpGuard::Create({.allowed_hosts = {host}}).ok()) << host;
  }
}

}  // namespace
}  // namespace weft::serve
