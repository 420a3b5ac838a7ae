// The heads of sessions in a shared store, by several servers over one store that fails.
#include "engine/storage/session_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/state/session_trouble.h"
#include "engine/storage/object_store_test_util.h"

namespace weft {
namespace {

using Fault = MemoryObjectStore::Fault;

class SessionHeadsTest : public ::testing::Test {
 protected:
  // A server with this address. A lease of 0 ms is over at once.
  SessionHeads Server(const std::string& owner, int lease_ms = 60000) const {
    return SessionHeads({.objects = store_,
                         .owner = owner,
                         .lease = std::chrono::milliseconds(lease_ms),
                         .max_patience = std::chrono::milliseconds(1)});
  }
  // The session's text in the store, or why it cannot be had.
  static std::string TextOf(SessionHeads* heads, const std::string& name = "s") {
    const auto taken = heads->Take("", name);
    return taken.ok() ? taken->session : std::string(Message(taken.status()));
  }

  const std::shared_ptr<MemoryObjectStore> store_ = std::make_shared<MemoryObjectStore>();
};

TEST_F(SessionHeadsTest, AnotherServerGoesOnOnceTheSessionIsGivenUp) {
  SessionHeads a = Server("http://a"), b = Server("http://b");
  ASSERT_EQ(TextOf(&a), "") << "there is none";
  ASSERT_TRUE(a.Commit("", "s", {"one"}).ok());
  const Status elsewhere = b.Take("", "s").status();
  EXPECT_EQ(TroubleOf(elsewhere), SessionTrouble::kElsewhere);
  EXPECT_EQ(OwnerOf(elsewhere), "http://a");
  EXPECT_THAT(RetrySecondsOf(elsewhere), ::testing::AllOf(::testing::Gt(50), ::testing::Le(60)));
  ASSERT_TRUE(a.Release("", "s").ok());
  EXPECT_EQ(TextOf(&b), "one");
  EXPECT_TRUE(b.Commit("", "s", {"one two"}).ok());
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"one more"})), SessionTrouble::kMoved) << "given up";
  EXPECT_EQ(TroubleOf(a.Take("", "s").status()), SessionTrouble::kElsewhere);
}

TEST_F(SessionHeadsTest, TheSlowerOfTwoServersKeepsNothing) {
  SessionHeads a = Server("http://a", 0), b = Server("http://b", 0);
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  ASSERT_EQ(TextOf(&b), "one") << "the lease is over";
  ASSERT_TRUE(b.Commit("", "s", {"one b"}).ok());
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"one a"})), SessionTrouble::kMoved);
  EXPECT_EQ(TroubleOf(a.Confirm("", "s")), SessionTrouble::kMoved);
  EXPECT_EQ(TextOf(&a), "one b");
}

TEST_F(SessionHeadsTest, OfTwoServersWithANewSessionOneHasIt) {
  SessionHeads a = Server("http://a"), b = Server("http://b");
  ASSERT_TRUE(a.Take("", "s").ok());
  ASSERT_TRUE(b.Take("", "s").ok());
  EXPECT_TRUE(b.Commit("", "s", {"b"}).ok());
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"a"})), SessionTrouble::kMoved);
  EXPECT_EQ(a.Create("", "s", {"a"}).code(), StatusCode::kAlreadyExists);
}

TEST_F(SessionHeadsTest, AWriteWhoseAnswerIsLostIsRecognised) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  int n = 0;
  store_->SetFault([&n](bool is_put, const std::string&) {
    return is_put && n++ == 0 ? Fault::kLoseAnswer : Fault::kNone;
  });
  EXPECT_TRUE(a.Commit("", "s", {"one two"}).ok());
  EXPECT_EQ(n, 1) << "it is not written twice";
  EXPECT_TRUE(a.Commit("", "s", {"one two three"}).ok());
  EXPECT_EQ(TextOf(&a), "one two three");
}

// Another server takes the session between a write whose answer is lost and the look at it.
TEST_F(SessionHeadsTest, AWriteFromWhichAnotherServerGoesOnIsKept) {
  SessionHeads a = Server("http://a", 0), b = Server("http://b", 0);
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  std::string read;
  int n_puts = 0;
  store_->SetFault([&n_puts](bool is_put, const std::string&) {
    return is_put && ++n_puts == 1 ? Fault::kLoseAnswer : Fault::kNone;
  });
  store_->BeforeGet([&, n = 0](const std::string&) mutable {
    if (n++ == 0) read = TextOf(&b);
  });
  EXPECT_TRUE(a.Commit("", "s", {"one two"}).ok());
  EXPECT_EQ(read, "one two");
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"one two three"})), SessionTrouble::kMoved);
  n_puts = 0;
  store_->BeforeGet([&, n = 0](const std::string&) mutable {
    if (n++ > 0) return;
    EXPECT_EQ(TextOf(&a), "one two three");
    EXPECT_TRUE(a.Commit("", "s", {"one two three four"}).ok());
  });
  EXPECT_EQ(TroubleOf(b.Commit("", "s", {"one two three"})), SessionTrouble::kUnavailable)
      << "it is kept, but nothing says so any more";
}

TEST_F(SessionHeadsTest, AWriteThatComesLateIsRefusedOnceTheSessionIsTaken) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  store_->SetFault(
      [](bool is_put, const std::string&) { return is_put ? Fault::kLate : Fault::kAway; });
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"one late"})), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  EXPECT_EQ(TextOf(&a), "one");
  EXPECT_EQ(store_->DeliverLate(), 0);
  EXPECT_TRUE(a.Commit("", "s", {"one two"}).ok());
  EXPECT_EQ(TextOf(&a), "one two");
}

TEST_F(SessionHeadsTest, ALateRenewalDoesNotHoldUpACommit) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  store_->SetFault(
      [](bool is_put, const std::string&) { return is_put ? Fault::kLate : Fault::kNone; });
  EXPECT_EQ(TroubleOf(a.Renew("", "s")), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  EXPECT_EQ(store_->DeliverLate(), 1);
  EXPECT_TRUE(a.Commit("", "s", {"one two"}).ok()) << "what is there is its own";
  EXPECT_EQ(TextOf(&a), "one two");
}

TEST_F(SessionHeadsTest, WithoutAnAnswerNothingIsClaimed) {
  SessionHeads a = Server("http://a"), b = Server("http://b", 0);
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  store_->SetFault(Fault::kAway);
  for (const Status& status : {a.Take("", "s").status(), a.Create("", "t", {"x"}),
                               b.Remove("", "s"), b.Take("", "s").status()}) {
    EXPECT_EQ(TroubleOf(status), SessionTrouble::kUnavailable) << status;
  }
  store_->SetFault(Fault::kRefuse);
  EXPECT_EQ(TroubleOf(a.Take("", "s").status()), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  a.Abandon();
  EXPECT_EQ(TroubleOf(a.Take("", "s").status()), SessionTrouble::kUnavailable);
}

TEST_F(SessionHeadsTest, AStoreThatHangsIsLeftAloneForAMoment) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  store_->SetFault(Fault::kHang);
  EXPECT_EQ(TroubleOf(a.Take("", "t").status()), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  const int64_t gets = store_->gets();
  EXPECT_EQ(TroubleOf(a.Take("", "t").status()), SessionTrouble::kUnavailable);
  EXPECT_EQ(TroubleOf(a.Renew("", "s")), SessionTrouble::kUnavailable);
  EXPECT_EQ(store_->gets(), gets) << "nobody waits for it again";
  EXPECT_TRUE(a.Commit("", "s", {"one two"}).ok()) << "what is computed is not given up";
}

TEST_F(SessionHeadsTest, AFirstWriteThatComesLateFindsTheDeletion) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(a.Take("", "s").ok());
  store_->SetFault(
      [](bool is_put, const std::string&) { return is_put ? Fault::kLate : Fault::kNone; });
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"late"})), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  EXPECT_TRUE(a.Remove("", "s").ok());
  EXPECT_EQ(store_->DeliverLate(), 0);
  EXPECT_EQ(a.Peek("", "s").status().code(), StatusCode::kNotFound);
}

TEST_F(SessionHeadsTest, ADeletedSessionIsNewToEverybody) {
  SessionHeads a = Server("http://a"), b = Server("http://b");
  ASSERT_TRUE(a.Create("", "s", {"one"}).ok());
  EXPECT_EQ(TroubleOf(b.Remove("", "s")), SessionTrouble::kElsewhere);
  ASSERT_TRUE(a.Remove("", "s").ok());
  EXPECT_TRUE(b.Remove("", "s").ok()) << "there is none";
  const auto taken = b.Take("", "s");
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->was_deleted);
  EXPECT_EQ(taken->session, "");
  EXPECT_TRUE(b.Commit("", "s", {"new"}).ok());
  EXPECT_EQ(TroubleOf(a.Commit("", "s", {"old"})), SessionTrouble::kMoved);
  EXPECT_TRUE(b.Release("", "s").ok());
  EXPECT_EQ(TextOf(&a), "new");
}

TEST_F(SessionHeadsTest, ARestartedServerHasItsSessions) {
  SessionHeads before = Server("http://a");
  ASSERT_TRUE(before.Create("", "s", {"one"}).ok());
  SessionHeads after = Server("http://a");
  EXPECT_EQ(TextOf(&after), "one");
  EXPECT_EQ(TroubleOf(before.Commit("", "s", {"two"})), SessionTrouble::kMoved);
}

TEST_F(SessionHeadsTest, WhatIsNoHeadIsAnError) {
  SessionHeads a = Server("http://a");
  ASSERT_TRUE(store_->Put(HeadName("", "s"), "nonsense", {}).ok());
  EXPECT_EQ(a.Take("", "s").status().code(), StatusCode::kDataLoss);
  SharedHead head{.epoch = 3, .owner = "http://b", .state_tokens = 7, .session = "text"};
  std::string bytes = BytesOf(head);
  const auto read = ReadSharedHead(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->session, "text");
  EXPECT_EQ(read->epoch, 3u);
  EXPECT_EQ(read->state_tokens, 7);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_FALSE(ReadSharedHead(damaged).ok()) << "byte " << i;
    EXPECT_FALSE(ReadSharedHead(bytes.substr(0, i)).ok()) << "the first " << i;
  }
}

// Random operations of three servers whose leases are over at once, over a store that is away,
// loses answers, and applies writes late. Returns how many promises were broken: each acknowledged
// text must begin with the one acknowledged before it, and so must each that is read.
int BrokenPromises(uint64_t seed, bool ignores_conditions) {
  const auto store = std::make_shared<MemoryObjectStore>();
  store->ignores_conditions = ignores_conditions;
  std::mt19937_64 random(seed);
  const auto pick = [&random](int n) {
    return static_cast<int>(random() % static_cast<uint64_t>(n));
  };
  store->SetFault([&](bool is_put, const std::string&) {
    switch (pick(12)) {
      case 0:
        return Fault::kAway;
      case 1:
        return is_put ? Fault::kLoseAnswer : Fault::kNone;
      case 2:
        return is_put ? Fault::kLate : Fault::kNone;
      default:
        return Fault::kNone;
    }
  });
  std::vector<std::unique_ptr<SessionHeads>> servers;
  for (const char* const owner : {"a", "b", "c"}) {
    servers.push_back(std::make_unique<SessionHeads>(SessionHeads::Options{
        .objects = store, .owner = owner, .lease = std::chrono::milliseconds(0)}));
  }
  constexpr int kNames = 3;
  // What each server has in its memory, if it has the session.
  std::array<std::map<std::string, std::string>, 3> memory;
  std::map<std::string, std::string> acknowledged;
  int broken = 0, n_turns = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t who = static_cast<size_t>(pick(3));
    SessionHeads& server = *servers[who];
    const std::string name = StrCat("s", pick(kNames));
    const auto found = memory[who].find(name);
    if (pick(8) == 0) store->DeliverLate();
    if (found == memory[who].end()) {
      const auto taken = server.Take("", name);
      if (!taken.ok()) continue;
      broken += taken->session.starts_with(acknowledged[name]) ? 0 : 1;
      memory[who][name] = taken->session;
    } else if (pick(6) == 0) {
      (void)server.Renew("", name);
    } else if (pick(6) == 0) {
      if (!server.Confirm("", name).ok()) memory[who].erase(name);
    } else if (pick(8) == 0) {
      (void)server.Release("", name);
      memory[who].erase(name);
    } else {
      const std::string text = StrCat(found->second, ++n_turns, ".");
      const Status status = server.Commit("", name, {text});
      if (!status.ok()) {
        memory[who].erase(name);
        continue;
      }
      broken += text.starts_with(acknowledged[name]) ? 0 : 1;
      acknowledged[name] = found->second = text;
    }
  }
  return broken;
}

TEST(SessionHeadsPropertyTest, NoAcknowledgedTurnIsLostOrForked) {
  for (uint64_t seed = 0; seed < 12; ++seed) EXPECT_EQ(BrokenPromises(seed, false), 0) << seed;
}

TEST(SessionHeadsPropertyTest, AStoreWithoutConditionsBreaksPromises) {
  int broken = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) broken += BrokenPromises(seed, true);
  EXPECT_GT(broken, 0);
}

}  // namespace
}  // namespace weft
