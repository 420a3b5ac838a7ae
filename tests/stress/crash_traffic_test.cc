// A process that serves named sessions is killed at random times, repeatedly. State that was
// already on disk must be found again, to the token; the next turn must equal an undisturbed run;
// deleted sessions stay deleted; the disk stays within its limit.
//
// WEFT_KILLS=200 in the environment makes it a long run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "engine/sampling/random.h"
#include "tests/support/engine_harness.h"
#include "tests/support/slow_build.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kSessions = 3;
constexpr int64_t kLongest = 250;  // after this length, a session is reset and begins another life
// Room for everything that a long run writes, because evicted state would not be found again.
constexpr int64_t kDiskBytes = int64_t{1} << 30;

// A message from the child; smaller than a pipe's atomic write.
struct Message {
  enum Kind : int32_t { kKept, kForked, kResetting, kReset } kind;
  int32_t session;
  int32_t life;
  int32_t turns;
};

std::string NameOf(int session) { return StrCat("session ", session); }
std::string ForkName(int session, int life, int turns) {
  return StrCat("fork ", session, " ", life, " ", turns);
}

// A function of its arguments only, so every process makes the same turn.
TurnOptions TurnOf(int session, int life, int turn) {
  const auto seed = static_cast<uint64_t>((session * 1000 + life) * 1000 + turn);
  return testing::Greedy(
      testing::RandomTokens(4 + static_cast<int64_t>(RandomBits(seed, 3) % 30), seed), 6);
}

EngineOptions Options(const std::string& dir) {
  EngineOptions options;
  options.n_threads = 1;
  options.page_tokens = 16;
  options.memory_bytes = int64_t{8} << 20;
  options.state_dir = dir;
  options.state_disk_bytes = kDiskBytes;
  options.state_disk_bytes_per_hour = int64_t{1} << 40;
  return options;
}

// The output of undisturbed sessions: their tokens after each turn.
class Oracle {
 public:
  explicit Oracle(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  const std::vector<int32_t>& TokensAfter(int session, int life, int turns) {
    auto& known = lives_[{session, life}];
    if (engine_ == nullptr) {
      EngineOptions options = Options("");
      options.memory_bytes = int64_t{64} << 20;
      engine_ = *Engine::Start(model_, options);
    }
    while (std::ssize(known) <= turns) {
      const auto id = engine_->CreateSession({});
      if (!known.empty()) {
        TurnOptions before = testing::Greedy(known.back(), 0);
        if (!before.tokens.empty()) testing::RunTurn(engine_.get(), *id, before);
        const int turn = static_cast<int>(known.size()) - 1;
        testing::RunTurn(engine_.get(), *id, TurnOf(session, life, turn));
      }
      known.push_back(*engine_->Tokens(*id));
      (void)engine_->Close(*id, true);
    }
    return known[static_cast<size_t>(turns)];
  }
  // Call it before forking another process.
  void Stop() { engine_.reset(); }

 private:
  const std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  std::map<std::pair<int, int>, std::vector<std::vector<int32_t>>> lives_;
};

struct Progress {
  int life = 0;
  int turns = 0;
};

// One session's client: turns, forks and resets until it is killed.
void Client(Engine* engine, int pipe, int number, Progress at, uint64_t seed) {
  const auto tell = [&](Message::Kind kind) {
    const Message message{kind, number, at.life, at.turns};
    if (write(pipe, &message, sizeof(message)) != sizeof(message)) _exit(11);
  };
  auto session = engine->FindSession("", NameOf(number));
  if (!session.ok()) session = engine->CreateSession({.name = NameOf(number)});
  for (uint64_t step = 0; session.ok(); ++step) {
    if (engine->Inspect(*session)->n_tokens > kLongest) {
      tell(Message::kResetting);
      if (!engine->Reset(*session).ok()) _exit(13);
      ++at.life;
      at.turns = 0;
      tell(Message::kReset);
    }
    const TurnOptions turn = TurnOf(number, at.life, at.turns);
    if (!testing::RunTurn(engine, *session, turn).done().status.ok()) _exit(14);
    ++at.turns;
    const uint64_t chance = RandomBits(seed, step) % 8;
    bool forked = false;
    if (chance == 0) {
      const std::string name = ForkName(number, at.life, at.turns);
      const Status status = engine->Fork(*session, -1, {.name = name}).status();
      // A previous process may have left one, without all of its state.
      if (!status.ok() && status.code() != StatusCode::kAlreadyExists) _exit(15);
      forked = status.ok();
    }
    if (chance > 4) continue;
    // Idle state is on disk after a moment; the other clients continue meanwhile.
    while (engine->Stats().disk_pending > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    tell(Message::kKept);
    if (forked) tell(Message::kForked);
  }
  _exit(12);
}

class CrashTrafficTest : public ::testing::TestWithParam<const char*> {
 protected:
  CrashTrafficTest() : dir_((fs::temp_directory_path() / StrCat("weft_kill_", getpid())).string()) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~CrashTrafficTest() override { fs::remove_all(dir_); }

  // Runs the child once, and records its messages in kept_, forks_ and lives_.
  void Round(uint64_t seed) {
    int ends[2];
    ASSERT_EQ(MakePipe(ends), 0);
    oracle_.Stop();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto engine = Engine::Start(model_, Options(dir_));
      if (!engine.ok()) _exit(10);
      std::vector<std::thread> clients;
      for (int i = 0; i < kSessions; ++i) {
        clients.emplace_back([&, i] {
          Client(engine->get(), ends[1], i, now_[static_cast<size_t>(i)], seed * 10 + uint64_t(i));
        });
      }
      for (std::thread& client : clients) client.join();
    }
    close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(RandomBits(seed, 1) % static_cast<uint64_t>(longest_life_us_)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child gave up by itself: " << WEXITSTATUS(status);
    resetting_.fill(false);
    const int64_t before = n_messages_;
    Message message;
    while (read(ends[0], &message, sizeof(message)) == sizeof(message)) {
      ++n_messages_;
      const Progress at{message.life, message.turns};
      const auto i = static_cast<size_t>(message.session);
      if (message.kind == Message::kForked) forks_[{message.session, at.life, at.turns}] = true;
      resetting_[i] = message.kind == Message::kResetting;
      if (message.kind != Message::kKept && message.kind != Message::kReset) continue;
      kept_[i] = at;
      // Continuing needs no state of the last token.
      warm_[i] = at.turns == 0
                     ? 0
                     : std::ssize(oracle_.TokensAfter(message.session, at.life, at.turns)) - 1;
    }
    close(ends[0]);
    // On a busy or slow machine, a child needs longer before its first state is on disk.
    if (n_messages_ - before < kSessions) {
      longest_life_us_ = std::min<int64_t>(2 * longest_life_us_, 8'000'000);
    }
  }

  // A fork, so that the session itself is unchanged, continues as if undisturbed.
  void ExpectGoesOn(Engine* engine, SessionId session, int number, Progress at,
                    int64_t min_cached) {
    const auto tokens = engine->Tokens(session);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    ASSERT_EQ(*tokens, oracle_.TokensAfter(number, at.life, at.turns));
    const auto fork = engine->Fork(session, -1, {});
    ASSERT_TRUE(fork.ok()) << fork.status();
    const auto said = testing::RunTurn(engine, *fork, TurnOf(number, at.life, at.turns));
    ASSERT_TRUE(said.done().status.ok()) << said.done().status;
    EXPECT_EQ(*engine->Tokens(*fork), oracle_.TokensAfter(number, at.life, at.turns + 1));
    EXPECT_GE(said.done().usage.cached_tokens, min_cached) << "it was to be warm";
    EXPECT_TRUE(engine->Close(*fork, true).ok());
  }

  void Verify() {
    auto engine = Engine::Start(model_, Options(dir_));
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (int i = 0; i < kSessions; ++i) {
      SCOPED_TRACE(NameOf(i));
      VerifySession(engine->get(), i);
    }
    for (const auto& [key, unused] : forks_) {
      const auto& [number, life, turns] = key;
      SCOPED_TRACE(ForkName(number, life, turns));
      const auto session = (*engine)->FindSession("", ForkName(number, life, turns));
      ASSERT_TRUE(session.ok()) << session.status();
      const auto n = std::ssize(oracle_.TokensAfter(number, life, turns));
      ExpectGoesOn(engine->get(), *session, number, {life, turns}, n - 1);
      EXPECT_TRUE((*engine)->Close(*session, true).ok());
    }
    forks_.clear();
    const EngineStats stats = (*engine)->Stats();
    EXPECT_LE(stats.disk_bytes, kDiskBytes);
    EXPECT_EQ(stats.disk_damaged_blocks, 0);
    const Status sound = (*engine)->CheckIntegrity();
    EXPECT_TRUE(sound.ok()) << sound;
  }

  void VerifySession(Engine* engine, int i) {
    Progress& kept = kept_[static_cast<size_t>(i)];
    const auto session = engine->FindSession("", NameOf(i));
    int64_t n_tokens = session.ok() ? engine->Inspect(*session)->n_tokens : 0;
    // It may have advanced further than its last message said.
    Progress at = kept;
    const auto length = [&](Progress p) {
      return std::ssize(oracle_.TokensAfter(i, p.life, p.turns));
    };
    if (resetting_[static_cast<size_t>(i)] && n_tokens == 0) at = {at.life + 1, 0};
    while (length(at) < n_tokens) {
      ++at.turns;
      ASSERT_LT(at.turns, 100);
    }
    ASSERT_EQ(length(at), n_tokens) << "after " << length(kept) << " were kept";
    int64_t& warm = warm_[static_cast<size_t>(i)];
    if (at.life != kept.life) warm = 0;
    now_[static_cast<size_t>(i)] = kept = at;
    if (session.ok() && n_tokens > 0) ExpectGoesOn(engine, *session, i, at, warm);
  }

  const std::string dir_;
  const std::shared_ptr<const Model> model_ = testing::TinyModel(GetParam());
  Oracle oracle_{model_};
  std::array<Progress, kSessions> now_, kept_;
  std::array<int64_t, kSessions> warm_{};  // tokens whose state had reached the disk
  std::array<bool, kSessions> resetting_{};
  std::map<std::tuple<int, int, int>, bool> forks_;
  int64_t n_messages_ = 0;
  int64_t longest_life_us_ = 500'000;
};

INSTANTIATE_TEST_SUITE_P(Models, CrashTrafficTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(CrashTrafficTest, WhatHadReachedTheDiskIsWarm) {
  const char* const wanted = std::getenv("WEFT_KILLS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : testing::kSlowBuild ? 4 : 10;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Round(static_cast<uint64_t>(round) + 1);
    if (HasFatalFailure()) return;
    Verify();
    if (HasFailure()) return;
  }
  EXPECT_GT(n_messages_, rounds) << "hardly anything was kept between the kills";
  RecordProperty("messages", std::to_string(n_messages_));
}

}  // namespace
}  // namespace weft
