#include "doors/http/server.h"

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

TEST_F(ServerTest, AnswersOneRequestAfterTheOther) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(
      client.Say("POST /echo?a=1%202&b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"));
  EXPECT_THAT(client.Until("]\n"), HasSubstr("POST /echo a=1 2 b= [abc]"));
  ASSERT_TRUE(client.Say(kGet));
  EXPECT_THAT(client.Until("]\n"), StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"));
}

TEST_F(ServerTest, ReadsChunkedBodiesInAnyPieces) {
  StartServer();
  Client client(port());
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n4;extension=1\r\ndefg\r\n0\r\n\r\n";
  for (const char c : request) ASSERT_TRUE(client.Say(std::string(1, c)));
  EXPECT_THAT(client.Until("]\n"), HasSubstr("[abcdefg]"));
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInTheirOrder) {
  StartServer();
  Client client(port());
  std::string requests;
  for (int i = 0; i < 100; ++i) StrAppend(&requests, "GET /", i, " HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(client.Say(requests));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(client.Until("]\n"), HasSubstr(StrCat("GET /", i, " []")));
  }
}

TEST_F(ServerTest, PipelinedRequestsBehindABusyOneAreBounded) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  // More than it holds; the rest waits in the sockets.
  std::thread sender([&] {
    for (int i = 0; i < 400; ++i) {
      client.Say(StrCat("POST /", i, " HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n",
                        std::string(2000, 'b')));
    }
  });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(handled_, 1);
  release_.Happen();
  EXPECT_THAT(client.Until("waited\n"), HasSubstr("200 OK"));
  for (int i = 0; i < 400; ++i) EXPECT_THAT(client.Until("]\n"), HasSubstr(StrCat("/", i, " [")));
  sender.join();
}

TEST_F(ServerTest, SaysContinueToWhomWaitsForIt) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(
      client.Say("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n"
                 "Expect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.Until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Say("ok"));
  EXPECT_THAT(client.Until("]\n"), HasSubstr("[ok]"));
}

TEST_F(ServerTest, HeadHasNoBody) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say(StrCat("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n", kGet)));
  EXPECT_THAT(client.Until("\r\n\r\n"), HasSubstr("Content-Length: 14"));
  EXPECT_THAT(client.Until("]\n"), StartsWith("HTTP/1.1 200")) << "the next response follows";
}

TEST_F(ServerTest, ClosesWhereTheClientWishes) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.UntilEnd(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.Ended());
  Client old(port());
  ASSERT_TRUE(old.Say("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_THAT(old.UntilEnd(), HasSubstr("GET /echo []"));
  EXPECT_TRUE(old.Ended());
}

// What one server reads as a body, another may read as the next request.
TEST_F(ServerTest, IdleConnectionsEnd) {
  StartServer({.header_timeout = milliseconds(100), .idle_timeout = milliseconds(100)});
  Client silent(port());
  EXPECT_EQ(silent.UntilEnd(), "");
  EXPECT_TRUE(silent.Ended());
  Client idle(port());
  ASSERT_TRUE(idle.Say(kGet));
  EXPECT_THAT(idle.Until("]\n"), HasSubstr("200 OK"));
  EXPECT_TRUE(idle.Ended());
}

TEST_F(ServerTest, AClientThatLeavesIsNoticedWhileNothingIsWritten) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  client.Close();
  EXPECT_TRUE(wait_ended_.Wait());
  EXPECT_EQ(gone_, 1);
}

TEST_F(ServerTest, AClientThatEndsSendingCountsAsGone) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  client.EndSending();
  EXPECT_TRUE(wait_ended_.Wait());
  EXPECT_EQ(gone_, 1);
}

TEST_F(ServerTest, HandlersThatWaitHoldNoThread) {
  StartServer({.max_threads = 1});
  constexpr int kWaiting = 100;
  std::vector<std::unique_ptr<Client>> waiting;
  for (int i = 0; i < kWaiting; ++i) {
    waiting.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(waiting.back()->Say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
    EXPECT_THAT(waiting.back()->Until("\r\n\r\n"), HasSubstr("200 OK"));
  }
  Client other(port());
  ASSERT_TRUE(other.Say(kGet));
  EXPECT_THAT(other.Until("]\n"), HasSubstr("200 OK"));
}

TEST_F(ServerTest, AnotherKeyIsAnsweredWhileOneHoldsItsThreads) {
  StartServer({.max_threads = 1, .max_waiting = 8});
  std::vector<std::unique_ptr<Client>> holding;
  for (int i = 0; i < 4; ++i) {
    holding.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(holding.back()->Say("GET /hold HTTP/1.1\r\nHost: h\r\nX-Key: a\r\n\r\n"));
  }
  ASSERT_TRUE(waiting_.Wait());
  Client other(port());
  ASSERT_TRUE(other.Say("GET /echo HTTP/1.1\r\nHost: h\r\nX-Key: b\r\n\r\n"));
  EXPECT_THAT(other.Until("]\n"), HasSubstr("200 OK"));
  EXPECT_FALSE(release_.happened());
}

TEST_F(ServerTest, ARequestWhoseClientLeavesWhileItWaitsIsNeverHandled) {
  StartServer({.max_threads = 1});
  Client busy(port());
  ASSERT_TRUE(busy.Say("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  {
    Client waits(port());
    ASSERT_TRUE(waits.Say(kGet));
    std::this_thread::sleep_for(milliseconds(50));
  }
  std::this_thread::sleep_for(milliseconds(50));
  release_.Happen();
  EXPECT_THAT(busy.Until("held\n"), HasSubstr("200 OK"));
  Client next(port());
  ASSERT_TRUE(next.Say(kGet));
  EXPECT_THAT(next.Until("]\n"), HasSubstr("200 OK"));
  EXPECT_EQ(handled_, 2);
}

TEST_F(ServerTest, ListensOnEveryAddressOfAName) {
  StartServer({.host = "localhost"});
  Client client(port());
  ASSERT_TRUE(client.connected() && client.Say(kGet));
  EXPECT_THAT(client.Until("]\n"), HasSubstr("200 OK"));
  if (!testing::LocalhostIsIpv6()) GTEST_SKIP() << "localhost is IPv4 alone";
  Client other(port(), {.ipv6 = true});
  ASSERT_TRUE(other.connected() && other.Say(kGet));
  EXPECT_THAT(other.Until("]\n"), HasSubstr("200 OK"));
}

TEST_F(ServerTest, ListensOnASecondPort) {
  HttpServerOptions options;
  options.second = {.host = "127.0.0.1", .port = 0, .way_out = "leave it out"};
  StartServer(options);
  ASSERT_GT(server_->second_port(), 0);
  EXPECT_NE(server_->second_port(), port());
  for (const bool is_second : {false, true}) {
    Client client(is_second ? server_->second_port() : port());
    ASSERT_TRUE(client.Say(kGet));
    EXPECT_THAT(client.Until("]\n"), HasSubstr("GET /echo"));
    EXPECT_EQ(came_by_second_port_, is_second);
  }
  options.port = 0;
  options.second->port = port();
  const auto taken = HttpServer::Start(options, {});
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("leave it out"));
}

TEST_F(ServerTest, AnAddressOfAnotherMachineIsAnErrorWithAReason) {
  const auto server = HttpServer::Start({.host = "192.0.2.1", .port = 0}, {});
  EXPECT_EQ(server.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(server.status())), HasSubstr("cannot listen on 192.0.2.1"));
}

TEST_F(ServerTest, ASlowReaderIsWaitedForAndNobodyElse) {
  StartServer({.max_unsent_bytes = 64 << 10});
  Client slow(port(), {.receive_buffer = 4096});
  ASSERT_TRUE(slow.Say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  // Until the sockets' own buffers are full too.
  size_t before;
  do {
    before = streamed_;
    std::this_thread::sleep_for(milliseconds(200));
  } while (streamed_ != before || before == 0);
  EXPECT_LT(streamed_, 32u << 20);
  Client other(port());
  ASSERT_TRUE(other.Say(kGet));
  EXPECT_THAT(other.Until("]\n"), HasSubstr("200 OK"));
  slow.Close();
  EXPECT_TRUE(stream_ended_.Wait());
}

TEST_F(ServerTest, AReaderThatReadsNothingCountsAsGone) {
  StartServer({.max_unsent_bytes = 64 << 10, .stall_timeout = milliseconds(300)});
  Client stalled(port(), {.receive_buffer = 4096});
  ASSERT_TRUE(stalled.Say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_TRUE(stream_ended_.Wait());
}

TEST_F(ServerTest, AReaderThatReadsNothingGoesWhenOthersWait) {
  StartServer({.max_unsent_bytes = 64 << 10, .wanted_stall_timeout = milliseconds(100)});
  Client stalled(port(), {.receive_buffer = 4096});
  ASSERT_TRUE(stalled.Say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"));
  size_t before;
  do {
    before = streamed_;
    std::this_thread::sleep_for(milliseconds(400));
  } while (streamed_ != before || before == 0);
  EXPECT_FALSE(stream_ended_.happened()) << "nobody waits for what it holds";
  others_wait_ = true;
  EXPECT_TRUE(stream_ended_.Wait());
}

TEST_F(ServerTest, ALargeAnswerArrivesWhole) {
  StartServer({.stall_timeout = milliseconds(500)});
  Client client(port());
  ASSERT_TRUE(client.Say("GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  client.Until("\r\n\r\n");
  EXPECT_EQ(client.UntilEnd().size(), 8u << 20);
}

TEST_F(ServerTest, WhatAnAnswerTakesIsKeptUntilItIsRead) {
  StartServer({.stall_timeout = milliseconds(kPatienceMs)});
  const auto keepers = [&] { return large_is_kept_.use_count() - 1; };
  const auto becomes = [&](long n) {
    for (int i = 0; i < kPatienceMs && keepers() != n; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return keepers() == n;
  };
  const std::string ask = "GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
  Client reads(port()), leaves(port());
  ASSERT_TRUE(reads.Say(ask) && leaves.Say(ask));
  EXPECT_TRUE(becomes(2));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(keepers(), 2) << "nobody has read";
  leaves.Close();
  EXPECT_TRUE(becomes(1));
  reads.Until("\r\n\r\n");
  reads.Until(std::string(8 << 20, 'x'));
  EXPECT_TRUE(becomes(0)) << "while the connection stays open";
  ASSERT_TRUE(reads.Say(kGet));
  EXPECT_THAT(reads.Until("]\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(ServerTest, AHandlerThatDoesNotAnswerIsAnError) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /silent HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_THAT(client.Until("}}"), StartsWith("HTTP/1.1 500 "));
  Client cut(port());
  ASSERT_TRUE(cut.Say("GET /cut HTTP/1.1\r\nHost: h\r\n\r\n"));
  const std::string half = cut.UntilEnd();
  EXPECT_THAT(half, HasSubstr("4\r\nhalf\r\n"));
  EXPECT_THAT(half, Not(HasSubstr("\r\n0\r\n"))) << "so that the client sees that it is cut";
}

TEST_F(ServerTest, HeadersCannotBeginLinesOfTheirOwn) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /echo HTTP/1.1\r\nHost: h\r\nX-Tag: a\tb\r\n\r\n"));
  EXPECT_THAT(client.Until("]\n"), HasSubstr("X-Tag: a b\r\n"));
}

TEST_F(ServerTest, ShutdownLetsRequestsFinishAndEndsTheRest) {
  StartServer();
  Client idle(port());
  ASSERT_TRUE(idle.Say(kGet));
  idle.Until("]\n");
  Client busy(port());
  ASSERT_TRUE(busy.Say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  std::thread shutdown([&] { server_->Shutdown(milliseconds(kPatienceMs)); });
  EXPECT_TRUE(idle.Ended());
  EXPECT_FALSE(Client(port()).connected()) << "nobody is let in any more";
  release_.Happen();
  EXPECT_THAT(busy.UntilEnd(), HasSubstr("waited\n"));
  busy.Close();
  shutdown.join();
}

TEST_F(ServerTest, ShutdownCutsWhatTakesTooLong) {
  StartServer();
  Client client(port());
  ASSERT_TRUE(client.Say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n"));
  ASSERT_TRUE(waiting_.Wait());
  server_->Shutdown(milliseconds(50));
  EXPECT_EQ(gone_, 1);
}

TEST_F(ServerTest, ManyClientsComeAndGo) {
  StartServer({.max_threads = 4, .max_waiting = 4});
  std::atomic<int> answered{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        Client client(port());
        client.Say(i % 3 == 0 ? "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n" : kGet);
        if ((i + t) % 5 == 0) continue;  // leaves without notice
        const std::string answer = client.Until("\r\n\r\n");
        answered += answer.starts_with("HTTP/1.1 200");
        refused += answer.starts_with("HTTP/1.1 503");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answered + refused, 8 * 32);
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace weft::serve
