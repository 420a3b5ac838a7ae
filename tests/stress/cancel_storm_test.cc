// Many threads submit turns, cancel them, drop them, close their sessions and fork others.
// Undisturbed sessions must say the same as alone, and nothing may leak.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/engine_harness.h"
#include "tests/support/slow_build.h"

namespace weft {
namespace {

using testing::Greedy;
using testing::RandomTokens;
using testing::TurnOutcome;

constexpr int kTurns = testing::kSlowBuild ? 1500 : 10000;
constexpr int kThreads = 8;
constexpr uint64_t kConversations = 24;

// A conversation of two turns and its expected output.
struct Conversation {
  std::vector<TurnOptions> turns;
  std::vector<std::vector<int32_t>> said;
};

std::vector<Conversation> MakeConversations(const std::shared_ptr<const Model>& model,
                                            const EngineOptions& options) {
  std::vector<Conversation> conversations(kConversations);
  for (uint64_t i = 0; i < kConversations; ++i) {
    Conversation& one = conversations[i];
    // Groups of four begin with the same two pages.
    std::vector<int32_t> prompt = RandomTokens(32, 1000 + i / 4);
    for (const int32_t token : RandomTokens(static_cast<int64_t>(5 + 4 * i), i)) {
      prompt.push_back(token);
    }
    one.turns = {Greedy(prompt, 6), Greedy(RandomTokens(3, 2000 + i), 6)};
    if (i % 2 == 1) {
      for (TurnOptions& turn : one.turns) {
        turn.sampling = SamplingOptions();
        turn.sampling.seed = i;
      }
    }
    for (const TurnOutcome& outcome : testing::RunAlone(model, options, one.turns)) {
      one.said.push_back(outcome.tokens());
    }
  }
  return conversations;
}

class Storm {
 public:
  Storm(Engine* engine, const std::vector<Conversation>& conversations)
      : engine_(engine), conversations_(conversations) {}

  void Run(uint64_t seed) {
    std::mt19937_64 random(seed);
    while (turns_ < kTurns) {
      const Conversation& one = conversations_[random() % conversations_.size()];
      const int n_events = static_cast<int>(random() % 7);
      switch (random() % 6) {
        case 0:
          ReadAll(Submit(one.turns[0]), one.said[0]);
          break;
        case 1:
          CancelAfter(Submit(one.turns[0]), n_events, one.said[0]);
          break;
        case 2:
          ReadSome(Submit(one.turns[0]).get(), n_events);  // and drops the handle
          break;
        case 3:
          ForkAndGoOn(one);
          break;
        case 4:
          CloseWhileRunning(one, n_events);
          break;
        default:
          CancelAndTakeBack(one, n_events);
      }
    }
  }
  int survivors() const { return survivors_; }
  int turns() const { return turns_; }

 private:
  // Retries while the queue is full.
  template <typename Call>
  std::shared_ptr<Turn> Insist(Call call) {
    while (true) {
      auto turn = call();
      if (turn.ok()) {
        ++turns_;
        return *turn;
      }
      if (turn.status().code() != StatusCode::kResourceExhausted) {
        ADD_FAILURE() << turn.status();
        return nullptr;
      }
      std::this_thread::yield();
    }
  }
  std::shared_ptr<Turn> Submit(const TurnOptions& options) {
    return Insist([&] { return engine_->SubmitOnce("", options); });
  }
  std::shared_ptr<Turn> Submit(SessionId session, const TurnOptions& options) {
    return Insist([&] { return engine_->Submit(session, options); });
  }
  SessionId NewSession() {
    auto session = engine_->CreateSession({});
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *session : SessionId{};
  }
  void Close(SessionId session) {
    const Status closed = engine_->Close(session, true);
    EXPECT_TRUE(closed.ok()) << closed;
  }

  static TurnOutcome ReadSome(Turn* turn, int n_events) {
    TurnOutcome outcome;
    for (int i = 0; turn != nullptr && i < n_events; ++i) {
      auto event = turn->Next();
      if (!event) break;
      testing::AddEvent(*std::move(event), &outcome);
    }
    return outcome;
  }
  void ReadAll(const std::shared_ptr<Turn>& turn, const std::vector<int32_t>& expected) {
    if (turn == nullptr) return;
    const TurnOutcome outcome = testing::Collect(turn.get());
    ASSERT_FALSE(outcome.choices.empty());
    EXPECT_TRUE(outcome.done().status.ok()) << outcome.done().status;
    EXPECT_EQ(outcome.tokens(), expected);
    ++survivors_;
  }
  // Tokens before the end are a prefix of the output alone.
  static void ReadRest(Turn* turn, TurnOutcome outcome, const std::vector<int32_t>& expected) {
    while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
    ASSERT_TRUE(!outcome.choices.empty() && outcome.choices[0].done.has_value());
    EXPECT_NE(outcome.done().reason, FinishReason::kError) << outcome.done().status;
    const std::vector<int32_t>& said = outcome.tokens();
    ASSERT_LE(said.size(), expected.size());
    EXPECT_TRUE(std::equal(said.begin(), said.end(), expected.begin()));
  }
  void CancelAfter(const std::shared_ptr<Turn>& turn, int n_events,
                   const std::vector<int32_t>& expected) {
    if (turn == nullptr) return;
    TurnOutcome outcome = ReadSome(turn.get(), n_events);
    turn->Cancel();
    ReadRest(turn.get(), std::move(outcome), expected);
  }
  void ForkAndGoOn(const Conversation& one) {
    const SessionId parent = NewSession();
    ReadAll(Submit(parent, one.turns[0]), one.said[0]);
    const auto fork = engine_->Fork(parent, -1, {});
    Close(parent);
    ASSERT_TRUE(fork.ok()) << fork.status();
    ReadAll(Submit(*fork, one.turns[1]), one.said[1]);
    Close(*fork);
  }
  void CloseWhileRunning(const Conversation& one, int n_events) {
    const SessionId session = NewSession();
    const auto turn = Submit(session, one.turns[0]);
    if (turn == nullptr) return;
    TurnOutcome outcome = ReadSome(turn.get(), n_events);
    Close(session);
    ReadRest(turn.get(), std::move(outcome), one.said[0]);
    EXPECT_EQ(engine_->Inspect(session).status().code(), StatusCode::kNotFound);
  }
  void CancelAndTakeBack(const Conversation& one, int n_events) {
    const SessionId session = NewSession();
    ReadAll(Submit(session, one.turns[0]), one.said[0]);
    CancelAfter(Submit(session, one.turns[1]), n_events, one.said[1]);
    const int64_t before = static_cast<int64_t>(one.turns[0].tokens.size() + one.said[0].size());
    const Status back = engine_->Truncate(session, before);
    EXPECT_TRUE(back.ok()) << back;
    ReadAll(Submit(session, one.turns[1]), one.said[1]);
    Close(session);
  }

  Engine* const engine_;
  const std::vector<Conversation>& conversations_;
  std::atomic<int> turns_{0};
  std::atomic<int> survivors_{0};
};

class CancelStormTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, CancelStormTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CancelStormTest, SurvivorsSayTheSameAndNothingIsLeftBehind) {
  const auto model = testing::TinyModel(GetParam());
  EngineOptions options;
  options.n_threads = 2;
  options.page_tokens = 16;
  options.max_running = 6;
  options.max_queued = 4;
  options.max_step_tokens = 128;
  const auto conversations = MakeConversations(model, options);
  // Less memory than the running turns and the prefix cache would use.
  options.memory_bytes = 40 * testing::PageBytes(*model, options);
  auto started = Engine::Start(model, options);
  ASSERT_TRUE(started.ok()) << started.status();
  Engine* const engine = started->get();

  Storm storm(engine, conversations);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { storm.Run(t); });
  std::atomic<bool> over{false};
  std::thread checker([&] {
    while (!over) {
      const Status sound = engine->CheckIntegrity();
      EXPECT_TRUE(sound.ok()) << sound;
      EXPECT_LE(engine->Stats().page_bytes, options.memory_bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  checker.join();

  EXPECT_GE(storm.turns(), kTurns);
  EXPECT_GT(storm.survivors(), kTurns / 4);
  // A dropped turn ends at the next step.
  const auto gone = [&] {
    const EngineStats stats = engine->Stats();
    return stats.sessions_ready + stats.sessions_running + stats.turns_queued +
               stats.turns_running ==
           0;
  };
  for (int i = 0; i < 10000 && !gone(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(gone());
  EXPECT_TRUE(engine->DropPrefixes().ok());
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.pages_used, 0);
  EXPECT_EQ(stats.page_bytes, 0);
  EXPECT_EQ(stats.index_nodes, 0);
  EXPECT_EQ(stats.turns_finished + stats.turns_cancelled + stats.turns_failed, storm.turns());
  EXPECT_EQ(stats.turns_failed, 0);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

}  // namespace
}  // namespace weft
