// Turns on named sessions.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "engine/engine_test_util.h"

namespace weft {
namespace {

using ::testing::SizeIs;

constexpr NamedTurnPolicy kRefuse;
constexpr auto kAnonymous = NamedTurnPolicy::Otherwise::kAnonymous;
constexpr NamedTurnPolicy kWish = {.busy = kAnonymous, .unusable = kAnonymous, .full = kAnonymous};

TurnOptions Whole(std::vector<int32_t> tokens, int64_t max_tokens) {
  TurnOptions options = Greedy(std::move(tokens), max_tokens);
  options.tokens_are_whole_context = true;
  return options;
}

StatusOr<NamedTurn> Submit(Engine* engine, const std::string& name, const TurnOptions& options,
                           const NamedTurnPolicy& policy = kRefuse) {
  return engine->SubmitNamed({.name = name}, options, policy);
}

// Runs a turn to its end.
Status RunNamed(Engine* engine, const std::string& name, const NamedTurnPolicy& policy = kRefuse) {
  auto named = Submit(engine, name, Whole({5, 6}, 1), policy);
  if (named.ok()) Collect(named->turn.get());
  return named.status();
}

TEST(EngineNamedTest, TheSessionIsMadeOnceAndGoesOnWhereItWas) {
  auto engine = StartEngine();
  std::vector<int32_t> tokens = RandomTokens(40, 1);
  auto first = Submit(engine.get(), "kitchen", Whole(tokens, 5));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->is_anonymous);
  EXPECT_EQ(first->turn->session(), *engine->FindSession("", "kitchen"));
  const TurnOutcome outcome = Collect(first->turn.get());
  tokens.insert(tokens.end(), outcome.tokens().begin(), outcome.tokens().end());
  tokens.push_back(7);
  auto second = Submit(engine.get(), "kitchen", Whole(tokens, 1));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->turn->session(), first->turn->session());
  EXPECT_GE(Collect(second->turn.get()).started->cached_tokens, 44);
  auto nameless = Submit(engine.get(), "", Whole({5, 6}, 1));
  ASSERT_TRUE(nameless.ok());
  Collect(nameless->turn.get());
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(1));
}

TEST(EngineNamedTest, CallsNeedNotWait) {
  auto engine = StartEngine();
  const auto caller = std::this_thread::get_id();
  std::promise<StatusOr<NamedTurn>> submitted;
  engine->SubmitNamed({{.name = "kitchen"}, Whole({5, 6}, 3), kRefuse},
                      [&](StatusOr<NamedTurn> turn) {
                        EXPECT_NE(std::this_thread::get_id(), caller);
                        EXPECT_TRUE(engine->FindSession("", "kitchen").ok()) << "readers see it";
                        submitted.set_value(std::move(turn));
                      });
  const StatusOr<NamedTurn> named = submitted.get_future().get();
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(Collect(named->turn.get()).tokens().size(), 3u);
  const SessionId session = named->turn->session();
  std::promise<StatusOr<std::vector<int32_t>>> tokens;
  engine->Tokens(session, [&](auto answer) { tokens.set_value(std::move(answer)); });
  EXPECT_THAT(*tokens.get_future().get(), SizeIs(5));
  std::promise<Status> reset;
  engine->Reset(session, [&](Status status) { reset.set_value(std::move(status)); });
  EXPECT_OK(reset.get_future().get());
  EXPECT_THAT(TokensOf(engine.get(), session), SizeIs(0));

  EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
  Status late;
  engine->Reset(session, [&](Status status) { late = std::move(status); });
  EXPECT_EQ(late.code(), StatusCode::kUnavailable) << "or nobody answers any more";
}

TEST(EngineNamedTest, OneThatRunsIsBusy) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;  // nobody reads, so it does not end
  auto engine = StartEngine(options);
  auto first = Submit(engine.get(), "kitchen", Whole({5, 6}, 400));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Submit(engine.get(), "kitchen", Whole({5, 6}, 1)).status(),
              IsError(StatusCode::kFailedPrecondition, "running"));
  auto wish = Submit(engine.get(), "kitchen", Whole({5, 6}, 1), kWish);
  ASSERT_TRUE(wish.ok()) << wish.status();
  EXPECT_TRUE(wish->is_anonymous);
  EXPECT_FALSE(wish->turn->session() == first->turn->session());
  EXPECT_THAT(Collect(wish->turn.get()).tokens(), SizeIs(1));
}

TEST(EngineNamedTest, OfManyAtOnceOneHasTheSession) {
  auto engine = StartEngine();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> named{0}, anonymous{0};
    std::vector<std::shared_ptr<Turn>> turns(6);
    std::vector<std::thread> threads;
    for (auto& turn : turns) {
      threads.emplace_back([&] {
        // Long enough that none ends before the last has started.
        auto mine = Submit(engine.get(), StrCat("s", round), Whole({5, 6}, 400), kWish);
        ASSERT_TRUE(mine.ok()) << mine.status();
        ++(mine->is_anonymous ? anonymous : named);
        turn = mine->turn;
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_GE(named, 1);
    EXPECT_EQ(named + anonymous, 6);
    for (auto& turn : turns) turn->Cancel();
    for (auto& turn : turns) Collect(turn.get());
  }
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(20));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineNamedTest, ATurnThatIsRefusedLeavesNoSessionBehind) {
  auto engine = StartEngine();
  for (const NamedTurnPolicy& policy : {kRefuse, kWish}) {
    EXPECT_THAT(Submit(engine.get(), "kitchen", Whole({-1}, 1), policy).status(),
                IsError(StatusCode::kInvalidArgument, "vocabulary"));
    EXPECT_THAT(Submit(engine.get(), std::string(200, 'x'), Whole({5}, 1), policy).status(),
                IsError(StatusCode::kInvalidArgument, "name"));
  }
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(0));
}

TEST(EngineNamedTest, APoisonedSessionIsNotUsable) {
  testing::FaultyBackend backend;
  auto engine = StartEngine(SmallEngine(), TinyModel("llama", 1, &backend));
  ASSERT_TRUE(RunNamed(engine.get(), "s").ok());
  backend.faults().fail_forward = backend.faults().forwards + 1;
  ASSERT_TRUE(RunNamed(engine.get(), "s").ok());
  EXPECT_EQ(StateOf(engine.get(), *engine->FindSession("", "s")), SessionState::kPoisoned);
  EXPECT_THAT(RunNamed(engine.get(), "s"), IsError(StatusCode::kFailedPrecondition, "poisoned"));
  auto wish = Submit(engine.get(), "s", Whole({5, 6}, 1), kWish);
  ASSERT_TRUE(wish.ok()) << wish.status();
  EXPECT_TRUE(wish->is_anonymous);
  Collect(wish->turn.get());
}

TEST(EngineNamedTest, TheLongestIdleOneOfTheDomainMakesRoom) {
  EngineOptions options = SmallEngine();
  options.max_sessions = 3;
  auto engine = StartEngine(options);
  for (int i = 0; i < 10; ++i) EXPECT_OK(RunNamed(engine.get(), StrCat("s", i)));
  EXPECT_TRUE(engine->FindSession("", "s9").ok());
  EXPECT_FALSE(engine->FindSession("", "s6").ok());
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(3));

  const auto full = IsError(StatusCode::kResourceExhausted, "3 sessions");
  NamedTurnPolicy policy;
  policy.close_idle_when_full = false;
  EXPECT_THAT(RunNamed(engine.get(), "new", policy), full);
  const SessionOptions other = {.name = "s", .domain = "other"};
  EXPECT_THAT(engine->SubmitNamed(other, Whole({5, 6}, 1), kRefuse).status(),
              IsError(StatusCode::kResourceExhausted, "no room for another session"))
      << "nobody pays for another's sessions";
  auto wish = engine->SubmitNamed(other, Whole({5, 6}, 1), kWish);
  ASSERT_TRUE(wish.ok()) << wish.status();
  EXPECT_TRUE(wish->is_anonymous);
  Collect(wish->turn.get());
}

class EngineNamedFilesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Start() {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path();
    return StartEngine(options);
  }
  TestFolder folder_;
};

TEST_F(EngineNamedFilesTest, AParkedSessionIsBroughtBackForAllWhoWaitForIt) {
  auto engine = Start();
  ASSERT_TRUE(RunNamed(engine.get(), "s").ok());
  const SessionId session = *engine->FindSession("", "s");
  for (int round = 0; round < 10; ++round) {
    EXPECT_OK(engine->Park(session));
    std::atomic<int> named{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        auto mine = Submit(engine.get(), "s", Whole({5, 6}, 1), kWish);
        ASSERT_TRUE(mine.ok()) << mine.status();
        if (!mine->is_anonymous) ++named;
        EXPECT_EQ(Collect(mine->turn.get()).done().reason, FinishReason::kLength);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_GE(named, 1);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_F(EngineNamedFilesTest, AFileThatCannotBeReadIsToldBeforeTheTurn) {
  {
    auto engine = Start();
    ASSERT_TRUE(RunNamed(engine.get(), "s").ok());
  }  // parked when the engine shuts down
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (file.is_regular_file() && file.path().extension() != ".lock" && file.file_size() > 0) {
      std::fstream(file.path(), std::ios::in | std::ios::out).write("damaged damaged", 15);
    }
  }
  auto engine = Start();
  EXPECT_THAT(RunNamed(engine.get(), "s"),
              IsError(StatusCode::kFailedPrecondition, "reset or deleted"));
  auto wish = Submit(engine.get(), "s", Whole({5, 6}, 1), kWish);
  ASSERT_TRUE(wish.ok()) << wish.status();
  EXPECT_TRUE(wish->is_anonymous);
  Collect(wish->turn.get());
  EXPECT_OK(engine->Reset(*engine->FindSession("", "s")));
  EXPECT_OK(RunNamed(engine.get(), "s"));
}

}  // namespace
}  // namespace weft
