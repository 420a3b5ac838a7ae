// Requests that the HTTP server refuses: too large, too slow, not HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doors/http/server_test_util.h"

namespace weft::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ServerTest, RefusesWhatIsTooLarge) {
  StartServer({.max_header_bytes = 8192, .max_body_bytes = 1000});
  Client body(port());
  ASSERT_TRUE(body.Say("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n"));
  EXPECT_THAT(body.UntilEnd(), StartsWith("HTTP/1.1 413 "));
  Client chunks(port());
  ASSERT_TRUE(chunks.Say(
      StrCat("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n",
             std::string(1024, 'x'))));
  EXPECT_THAT(chunks.UntilEnd(), StartsWith("HTTP/1.1 413 "));
  Client header(port());
  header.Say(StrCat("GET /echo HTTP/1.1\r\nX-Long: ", std::string(9000, 'x')));
  EXPECT_THAT(header.UntilEnd(), StartsWith("HTTP/1.1 431 "));
  Client extension(port());
  extension.Say(StrCat("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;",
                       std::string(100'000, 'x')));
  EXPECT_THAT(extension.UntilEnd(), StartsWith("HTTP/1.1 4"));
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerTest, AnErrorIsReadBySomebodyWhoIsStillSending) {
  StartServer({.max_body_bytes = 1000});
  Client client(port());
  ASSERT_TRUE(client.Say("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\n"));
  std::thread sender([&] { client.Say(std::string(4'000'000, 'x')); });
  EXPECT_THAT(client.UntilEnd(), StartsWith("HTTP/1.1 413 "));
  sender.join();
}

TEST_F(ServerTest, RefusesWhatIsNoHttp) {
  StartServer();
  for (const char* const text :
       {"\x16\x03\x01\x02\x01 this is TLS\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc", "GET /?%zz HTTP/1.1\r\n\r\n"}) {
    Client client(port());
    ASSERT_TRUE(client.Say(text));
    EXPECT_THAT(client.UntilEnd(), StartsWith("HTTP/1.1 400 ")) << text;
  }
  EXPECT_EQ(handled_, 0);
}

TEST_F(ServerTest, ABodyWhoseEndIsNotPlainIsRefusedAndTheConnectionClosed) {
  StartServer();
  for (const char* const field :
       {"Transfer-Encoding: gzip", "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked,", "Transfer-Encoding: , chunked",
        "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding:\v chunked", "Transfer-Encoding : chunked",
        "Transfer-Encoding:", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Content-Length: 2\r\nTransfer-Encoding: gzip"}) {
    Client client(port());
    ASSERT_TRUE(
        client.Say(StrCat("POST /echo HTTP/1.1\r\nHost: h\r\n", field, "\r\n\r\n0\r\n\r\n", kGet)));
    const std::string answer = client.UntilEnd();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << field;
    EXPECT_THAT(answer, Not(HasSubstr("200 OK"))) << field;
  }
  Client old(port());
  ASSERT_TRUE(old.Say("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"));
  EXPECT_THAT(old.UntilEnd(), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(handled_, 0);
  Client plain(port());
  ASSERT_TRUE(plain.Say("POST /echo HTTP/1.1\r\nTransfer-Encoding:\t Chunked \r\n\r\n0\r\n\r\n"));
  EXPECT_THAT(plain.Until("]\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ServerTest, WhoMayNotAskIsToldBeforeTheBody) {
  StartServer();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: h\r\nX-Key: wrong\r\nExpect: 100-continue\r\n";
  Client client(port());
  ASSERT_TRUE(client.Say(StrCat(head, "Content-Length: 1000000\r\n\r\n")));
  const std::string answer = client.UntilEnd();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << "the body was not read";
  Client other(port());
  ASSERT_TRUE(other.Say(StrCat(head, "Content-Length: 0\r\n\r\n", kGet)));
  EXPECT_THAT(other.Until("you?\n"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(other.Until("]\n"), StartsWith("HTTP/1.1 200 ")) << "there was none to read";
  EXPECT_EQ(handled_, 1);
}

std::string Unfinished(std::string_view key, size_t n_bytes) {
  return StrCat("POST /echo HTTP/1.1\r\nHost: h\r\nX-Key: ", key,
                "\r\nContent-Length: ", n_bytes + 1, "\r\n\r\n", std::string(n_bytes, 'x'));
}

TEST_F(ServerTest, BodiesThatDoNotEndLeaveOthersTheirShare) {
  StartServer({.max_total_body_bytes = 200'000, .max_share_body_bytes = 60'000});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 17; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(clients.back()->Say(Unfinished("wrong", 30'000)));
    EXPECT_THAT(clients.back()->Until("you?\n"), StartsWith("HTTP/1.1 401 "));
  }
  // A key is refused further requests; others are not affected.
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(clients.back()->Say(Unfinished("greedy", 30'000)));
    std::this_thread::sleep_for(milliseconds(50));  // so that they arrive in this order
  }
  const std::string refused = clients.back()->Until("}}");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 429 "));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  Client other(port());
  ASSERT_TRUE(other.Say(Unfinished("other", 30'000)) && other.Say("."));
  EXPECT_THAT(other.Until("]\n"), StartsWith("HTTP/1.1 200 "));
  // Without a key the address counts.
  Client address(port()), same(port());
  ASSERT_TRUE(address.Say(Unfinished("", 40'000)));
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(same.Say(Unfinished("", 30'000)));
  EXPECT_THAT(same.Until("}}"), StartsWith("HTTP/1.1 429 "));
}

TEST_F(ServerTest, ABodyThatPausesIsNotWaitedForLong) {
  StartServer({.body_pause_timeout = milliseconds(200)});
  Client client(port());
  ASSERT_TRUE(client.Say(Unfinished("", 1000)));
  EXPECT_THAT(client.Until("\r\n\r\n"), StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerTest, HowLargeABodyMayBeIsSaidAnew) {
  StartServer({.max_body_bytes = 10});
  server_->SetMaxBodyBytes(2000);
  Client client(port());
  ASSERT_TRUE(client.Say(Unfinished("", 1500)) && client.Say("."));
  EXPECT_THAT(client.Until("]\n"), StartsWith("HTTP/1.1 200 "));
  Client large(port());
  ASSERT_TRUE(large.Say(Unfinished("", 2001)));
  EXPECT_THAT(large.UntilEnd(), HasSubstr("larger than the 2000 bytes"));
}

TEST_F(ServerTest, ASlowSenderIsNotWaitedForLong) {
  StartServer({.header_timeout = milliseconds(200), .body_timeout = milliseconds(200)});
  Client header(port());
  ASSERT_TRUE(header.Say("GET /echo HTTP/1.1\r\n"));
  std::atomic<bool> done{false};
  std::thread loris([&] {
    for (int i = 0; !done && header.Say(StrCat("X-", i, ": y\r\n")); ++i) {
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  EXPECT_THAT(header.Until("\r\n\r\n"), StartsWith("HTTP/1.1 408 "));
  done = true;
  loris.join();
  Client body(port());
  ASSERT_TRUE(body.Say("POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"));
  EXPECT_THAT(body.Until("\r\n\r\n"), StartsWith("HTTP/1.1 408 "));
}

TEST_F(ServerTest, MoreThanCanWaitAreRefused) {
  StartServer({.max_threads = 1, .max_waiting = 2});
  Client busy(port());
  ASSERT_TRUE(busy.Say("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(clients.back()->Say(kGet));
    std::this_thread::sleep_for(milliseconds(20));  // so that they arrive in this order
  }
  for (size_t i = 2; i < 5; ++i) {
    const std::string answer = clients[i]->Until("\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Request-Id: ")) << "as in the log";
  }
  EXPECT_EQ(load_->waiting, 2);
  EXPECT_GE(load_->connections, 3);
  release_.Happen();
  for (size_t i = 0; i < 2; ++i) EXPECT_THAT(clients[i]->Until("]\n"), HasSubstr("200 OK"));
  EXPECT_EQ(load_->waiting, 0) << "without a further request";
}

}  // namespace
}  // namespace weft::serve
