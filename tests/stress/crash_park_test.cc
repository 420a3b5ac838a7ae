// A process that parks and saves sessions is killed at random times, repeatedly. Everything it had
// acknowledged must be intact each time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/system.h"
#include "engine/sampling/random.h"
#include "engine/state/state_directory.h"
#include "tests/support/engine_harness.h"
#include "tests/support/slow_build.h"

namespace weft {
namespace {

constexpr int kRounds = testing::kSlowBuild ? 40 : 300;
constexpr int kSessions = 3;
constexpr int64_t kLongest = 300;  // after this length, a session is deleted and a new one begun

// A message from the child, sent before it continues; smaller than a pipe's atomic write.
struct Message {
  enum Kind : int32_t { kSaved, kForgetting } kind;
  int32_t session;
  int64_t n_tokens;
};

std::string NameOf(int64_t session) { return StrCat("session ", session); }

// A session's tokens are a function of its number, so both processes know the contents of its file.
std::vector<int32_t> TokensOf(int64_t session, int64_t n) {
  return testing::RandomTokens(n, 5000 + static_cast<uint64_t>(session));
}

EngineOptions Options(const std::string& dir) {
  EngineOptions options;
  options.n_threads = 1;
  options.page_tokens = 16;
  options.memory_bytes = int64_t{16} << 20;
  options.state_dir = dir;
  return options;
}

// Extends sessions and parks or saves them until it is killed.
[[noreturn]] void Child(const std::shared_ptr<const Model>& model, const std::string& dir, int pipe,
                        uint64_t seed, std::vector<int32_t> sessions) {
  auto engine = Engine::Start(model, Options(dir));
  if (!engine.ok()) _exit(10);
  const auto tell = [&](Message message) {
    if (write(pipe, &message, sizeof(message)) != sizeof(message)) _exit(11);
  };
  std::mt19937_64 random(seed);
  while (true) {
    const size_t place = random() % sessions.size();
    const int32_t number = sessions[place];
    auto session = (*engine)->FindSession("", NameOf(number));
    if (!session.ok()) session = (*engine)->CreateSession({.name = NameOf(number)});
    if (!session.ok()) _exit(12);
    int64_t n = (*engine)->Inspect(*session)->n_tokens;
    if (n >= kLongest) {
      tell({Message::kForgetting, number, n});
      if (!(*engine)->Close(*session, true).ok()) _exit(13);
      sessions[place] += kSessions;
      continue;
    }
    const int64_t more = 1 + static_cast<int64_t>(random() % 40);
    TurnOptions turn = testing::Greedy({}, 0);
    const std::vector<int32_t> all = TokensOf(number, n + more);
    turn.tokens.assign(all.begin() + n, all.end());
    if (!testing::RunTurn(engine->get(), *session, turn).done().status.ok()) _exit(14);
    const Status saved = random() % 2 == 0 ? (*engine)->Park(*session) : (*engine)->Save(*session);
    if (!saved.ok()) _exit(15);
    tell({Message::kSaved, number, n + more});
  }
}

class CrashParkTest : public ::testing::TestWithParam<const char*> {
 protected:
  CrashParkTest() : dir_(std::filesystem::temp_directory_path() / StrCat("weft_crash_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~CrashParkTest() override { std::filesystem::remove_all(dir_); }

  // Runs the child once, and records what it acknowledged in acknowledged_.
  void Round(uint64_t seed) {
    int ends[2];
    ASSERT_EQ(MakePipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) Child(model_, dir_, ends[1], seed, current_);
    close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(RandomBits(seed, 1) % static_cast<uint64_t>(longest_life_us_)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child gave up by itself: " << WEXITSTATUS(status);
    const int64_t before = n_messages_;
    Message message;
    while (read(ends[0], &message, sizeof(message)) == sizeof(message)) {
      ++n_messages_;
      if (message.kind == Message::kSaved) {
        acknowledged_[message.session] = message.n_tokens;
        continue;
      }
      acknowledged_.erase(message.session);
      for (int32_t& number : current_) {
        if (number == message.session) number += kSessions;
      }
    }
    close(ends[0]);
    // On a busy or slow machine, a child needs longer before its first save.
    const int64_t n_messages = n_messages_ - before;
    if (n_messages == 0) longest_life_us_ = std::min<int64_t>(2 * longest_life_us_, 4'000'000);
    if (n_messages > 4) longest_life_us_ = std::max<int64_t>(longest_life_us_ / 2, 60'000);
  }

  void VerifyFiles() {
    const auto directory = StateDirectory::Open(dir_);
    ASSERT_TRUE(directory.ok()) << directory.status();
    for (const auto& [number, n_tokens] : acknowledged_) {
      const auto reader = (*directory)->Load("", NameOf(number));
      ASSERT_TRUE(reader.ok()) << reader.status();
      const SessionHead& head = (*reader)->head();
      ASSERT_GE(static_cast<int64_t>(head.tokens.size()), n_tokens) << "tokens were lost";
      EXPECT_EQ(head.tokens, TokensOf(number, static_cast<int64_t>(head.tokens.size())));
      const Status state =
          (*reader)->ReadState([](int, int64_t, std::span<const std::byte>) { return OkStatus(); });
      EXPECT_TRUE(state.ok()) << state;
      // If a turn followed, the state is in the blocks.
      EXPECT_LE(head.state_tokens, static_cast<int64_t>(head.tokens.size()));
    }
    // No partly written files are left.
    const auto listed = (*directory)->ListAll();
    ASSERT_TRUE(listed.ok());
    for (const SavedSession& saved : *listed) EXPECT_TRUE(saved.health.ok()) << saved.health;
  }

  // The engine itself restores the sessions, and continues with the right bits.
  void VerifyByEngine() {
    auto engine = Engine::Start(model_, Options(dir_));
    ASSERT_TRUE(engine.ok()) << engine.status();
    for (const auto& [number, n_tokens] : acknowledged_) {
      const auto session = (*engine)->FindSession("", NameOf(number));
      ASSERT_TRUE(session.ok()) << session.status();
      // On a fork, so that the session is unchanged for later rounds.
      const auto fork = (*engine)->Fork(*session, -1, {});
      ASSERT_TRUE(fork.ok()) << fork.status();
      const auto went_on = testing::RunTurn(engine->get(), *fork, testing::Greedy({300}, 8));
      ASSERT_TRUE(went_on.done().status.ok()) << went_on.done().status;
      EXPECT_GE(went_on.started->prompt_tokens, n_tokens + 1);
      EXPECT_GE(went_on.started->cached_tokens, n_tokens);
      TurnOptions whole = testing::Greedy(TokensOf(number, went_on.started->prompt_tokens - 1), 8);
      whole.tokens.push_back(300);
      EXPECT_EQ(went_on.tokens(),
                testing::RunAlone(model_, Options(""), std::span(&whole, 1))[0].tokens());
      ASSERT_TRUE((*engine)->Close(*fork, true).ok());
    }
    const Status down = (*engine)->Shutdown(std::chrono::seconds(1));
    EXPECT_TRUE(down.ok()) << down;
  }

  const std::string dir_;
  const std::shared_ptr<const Model> model_ = testing::TinyModel(GetParam());
  std::vector<int32_t> current_ = {0, 1, 2};
  std::map<int32_t, int64_t> acknowledged_;  // tokens, by session
  int64_t n_messages_ = 0;
  int64_t longest_life_us_ = 60'000;
};

INSTANTIATE_TEST_SUITE_P(Models, CrashParkTest, ::testing::Values("llama", "recurrent-llama"),
                         [](const auto& info) {
                           return std::string(info.param) == "llama" ? "Llama" : "Recurrent";
                         });

TEST_P(CrashParkTest, NothingAcknowledgedIsLost) {
  const int rounds = std::string_view(GetParam()) == "llama" ? kRounds : kRounds / 4;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Round(static_cast<uint64_t>(round));
    VerifyFiles();
    if (round % 10 == 9) VerifyByEngine();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(n_messages_, rounds / 2) << "hardly anything was saved between the kills";
  RecordProperty("acknowledged", std::to_string(n_messages_));
}

}  // namespace
}  // namespace weft
