// Reads messages from clients' bytes, and refuses other clients.
#include "doors/kv_events/zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::zmtp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two sides of the protocol begin alike.
std::string Begin(const std::string& kind) { return Hello(kind); }

std::string Command(const std::string& name, const std::string& body) {
  return std::string{4, static_cast<char>(1 + name.size() + body.size()),
                     static_cast<char>(name.size())} +
         name + body;
}

TEST(Zmtp, ReadsMessagesAndCommandsInPiecesOfAnySize) {
  const std::string wire = Begin("SUB") + MessageOf(std::vector<std::string>{"\x01kv@"}) +
                           Command("SUBSCRIBE", "x") + Command("PING", std::string("\0\x0a", 2)) +
                           MessageOf(std::vector<std::string>{"", std::string(300, 'a')});
  for (const size_t piece : {size_t{1}, size_t{7}, wire.size()}) {
    Reader reader({"SUB"});
    std::vector<Incoming> all;
    for (size_t at = 0; at < wire.size(); at += piece) {
      ASSERT_TRUE(reader.Feed(wire.substr(at, piece), &all).ok());
    }
    ASSERT_EQ(all.size(), 4u);
    EXPECT_TRUE(reader.is_ready());
    const auto first = SubscriptionOf(all[0]), second = SubscriptionOf(all[1]);
    ASSERT_TRUE(first && second);
    EXPECT_TRUE(first->begins && second->begins);
    EXPECT_EQ(first->topic, "kv@");
    EXPECT_EQ(second->topic, "x");
    EXPECT_EQ(all[2].command, "PING");
    EXPECT_FALSE(SubscriptionOf(all[2]));
    EXPECT_THAT(all[3].frames, ElementsAre("", std::string(300, 'a')));
    EXPECT_FALSE(SubscriptionOf(all[3]));
  }
}

TEST(Zmtp, ASubscriptionEnds) {
  EXPECT_FALSE(SubscriptionOf({.frames = {std::string("\0a", 2)}})->begins);
  EXPECT_EQ(SubscriptionOf({.command = "CANCEL", .frames = {"a"}})->topic, "a");
}

TEST(Zmtp, APongReturnsTheContext) {
  EXPECT_EQ(Pong(std::string(2, '\0') + "ctx"), Command("PONG", "ctx"));
  EXPECT_EQ(Pong(""), Command("PONG", ""));
}

std::string Refusal(const std::string& wire) {
  Reader reader({"SUB", "XSUB"});
  std::vector<Incoming> all;
  return std::string(Message(reader.Feed(wire, &all)));
}

TEST(Zmtp, RefusesOthers) {
  EXPECT_THAT(Refusal("GET / HTTP/1.1\r\n"), HasSubstr("no ZMTP"));
  std::string greeting = Begin("SUB").substr(0, 64);
  EXPECT_EQ(Refusal(greeting), "");
  std::string old = greeting;
  old[10] = 1;
  EXPECT_THAT(Refusal(old), HasSubstr("older"));
  std::string plain = greeting;
  plain.replace(12, 5, "PLAIN");
  EXPECT_THAT(Refusal(plain), HasSubstr("NULL"));
  EXPECT_THAT(Refusal(Begin("PUSH")), HasSubstr("PUSH; use SUB or XSUB"));
  EXPECT_THAT(Refusal(greeting + Command("READY", "")), HasSubstr("no socket type"));
  EXPECT_THAT(Refusal(greeting + Command("READY", "\x05x")), HasSubstr("malformed"));
  EXPECT_THAT(Refusal(greeting + MessageOf(std::vector<std::string>{"x"})), HasSubstr("READY"));
  EXPECT_THAT(Refusal(Begin("SUB") + FrameHead(5000, false)), HasSubstr("4096"));
  EXPECT_THAT(Refusal(Begin("SUB") + "\x02\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("4096"));
  std::string frames;
  for (int i = 0; i < 9; ++i) frames += FrameHead(0, true);
  EXPECT_THAT(Refusal(Begin("SUB") + frames), HasSubstr("frames"));
  EXPECT_THAT(Refusal(Begin("SUB") + FrameHead(0, true) + Command("PING", "")),
              HasSubstr("within a message"));
}

}  // namespace
}  // namespace weft::zmtp
