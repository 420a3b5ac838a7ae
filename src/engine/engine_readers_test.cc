// Reading an engine without waiting for it.
#include <atomic>
#include <set>
#include <thread>

#include "compute/backend.h"
#include "engine/engine_test_util.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class EngineReadersTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Start(const EngineOptions& options = SmallEngine()) {
    return StartEngine(options, TinyModel("llama", 1, &backend_));
  }
  static std::vector<std::string> Names(Engine* engine) {
    std::vector<std::string> names;
    const auto infos = engine->ListSessions("");
    for (const SessionInfo& info : infos.value()) names.push_back(info.name);
    return names;
  }

  testing::FaultyBackend backend_;  // outlives the engines
};

TEST_F(EngineReadersTest, NobodyWhoLooksWaitsForAStep) {
  auto engine = Start();
  const SessionId idle = NewSession(engine.get(), "idle"), busy = NewSession(engine.get(), "busy");
  RunTurn(engine.get(), idle, Greedy(RandomTokens(40, 1), 0));
  const int64_t steps = engine->Stats().steps;
  testing::HeldSteps held(&backend_.faults());
  TurnOptions options = Greedy(RandomTokens(150, 2), 5);
  options.label = "request-1";
  auto turn = SubmitTurn(engine.get(), busy, options);
  ASSERT_TRUE(held.WaitForOne());
  EXPECT_EQ(engine->Stats().steps, steps);
  EXPECT_EQ(engine->Stats().turns_running + engine->Stats().turns_queued, 1);
  EXPECT_EQ(engine->Stats().sessions_running, 1);
  EXPECT_THAT(Names(engine.get()), ElementsAre("busy", "idle"));
  EXPECT_EQ(StateOf(engine.get(), busy), SessionState::kRunning);
  EXPECT_EQ(engine->Inspect(idle)->n_tokens, 40);
  EXPECT_EQ(*engine->FindSession("", "idle"), idle);
  EXPECT_EQ(engine->FindSession("other", "idle").status().code(), StatusCode::kNotFound);
  const auto turns = engine->Turns();
  ASSERT_THAT(turns, SizeIs(1));
  EXPECT_EQ(turns[0].session_name, "busy");
  EXPECT_EQ(turns[0].stage, TurnInfo::Stage::kReading);
  EXPECT_EQ(turns[0].label, "request-1");
  EXPECT_EQ(turns[0].prompt_tokens, 150);
  EXPECT_EQ(turns[0].done_tokens, 0);
  EXPECT_TRUE(held.holds()) << "or the reads waited until the step was let go";
  held.Release();
  EXPECT_THAT(Collect(turn.get()).tokens(), SizeIs(5));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineReadersTest, ATurnIsSeenFromTheQueueToItsEnd) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_pending_events = 4;  // the first is held up by its reader
  auto engine = Start(options);
  auto first = *engine->SubmitOnce("mine", Greedy(RandomTokens(20, 1), 40));
  auto second = *engine->SubmitOnce("", Greedy(RandomTokens(30, 2), 2));
  ASSERT_TRUE(Eventually([&] {
    const auto turns = engine->Turns();
    return turns.size() == 2 && turns[0].generated_tokens >= 3;
  }));
  auto turns = engine->Turns();
  EXPECT_EQ(turns[0].stage, TurnInfo::Stage::kWriting);
  EXPECT_EQ(turns[0].domain, "mine");
  EXPECT_EQ(turns[0].done_tokens, 20);
  EXPECT_GT(turns[0].prompt_us, 0);
  EXPECT_GT(turns[0].PromptTokensPerSecond(), 0);
  EXPECT_EQ(turns[0].PromptSecondsLeft(), 0);
  EXPECT_EQ(turns[1].stage, TurnInfo::Stage::kQueued);
  EXPECT_EQ(turns[1].prompt_tokens, 30);
  EXPECT_LT(turns[0].id, turns[1].id);
  Collect(first.get());
  Collect(second.get());
  EXPECT_THAT(engine->Turns(), SizeIs(0));
}

TEST_F(EngineReadersTest, APromptIsSeenStepByStep) {
  auto engine = Start();
  auto turn = *engine->SubmitOnce("", [] {
    TurnOptions options = Greedy(RandomTokens(200, 1), 1);
    options.prompt_chunks = {50};
    return options;
  }());
  // One look per step sees the state after the previous step.
  std::set<int64_t> seen;
  ASSERT_TRUE(Eventually([&] {
    for (const TurnInfo& info : engine->Turns()) {
      if (info.stage == TurnInfo::Stage::kReading) seen.insert(info.done_tokens);
    }
    return engine->Turns().empty();
  }));
  for (const int64_t done : seen) EXPECT_EQ(done % 50, 0) << done;
  Collect(turn.get());
}

TEST_F(EngineReadersTest, WhoeverReadTheEndOfATurnSeesWhatItLeft) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  // Another turn always runs next to it, so that the engine is never idle.
  std::atomic<bool> stop{false};
  std::thread beside([&] {
    while (!stop) Collect(engine->SubmitOnce("", Greedy(RandomTokens(30, 9), 30))->get());
  });
  int64_t tokens = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    const int64_t finished = engine->Stats().turns_finished;
    auto turn = SubmitTurn(engine.get(), session, Greedy(RandomTokens(3, i), 2));
    while (auto event = turn->Next()) {
      if (std::holds_alternative<DoneEvent>(*event)) break;
    }
    tokens += 5;
    const auto info = engine->Inspect(session);
    EXPECT_EQ(info->state, SessionState::kReady);
    EXPECT_EQ(info->n_tokens, tokens);
    EXPECT_GT(engine->Stats().turns_finished, finished);
  }
  stop = true;
  beside.join();
}

TEST_F(EngineReadersTest, WhateverACallDidIsSeenWhenItReturns) {
  TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  auto engine = Start(options);
  // More than one publication rechecks.
  constexpr int kSessions = 200;
  std::vector<SessionId> sessions;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(NewSession(engine.get(), StrCat("s", i)));
    EXPECT_EQ(*engine->FindSession("", StrCat("s", i)), sessions.back());
  }
  const SessionId session = sessions[150];
  RunTurn(engine.get(), session, Greedy(RandomTokens(40, 1), 0));
  const auto fork = engine->Fork(session, -1, {.name = "fork"});
  EXPECT_EQ(engine->Inspect(*fork)->n_tokens, 40);
  EXPECT_GT(engine->Inspect(*fork)->shared_pages, 0);
  EXPECT_TRUE(Eventually([&] { return engine->Inspect(session)->shared_pages > 0; }));
  EXPECT_OK(engine->Truncate(session, 20));
  EXPECT_EQ(engine->Inspect(session)->n_tokens, 20);
  EXPECT_OK(engine->Rename(session, "renamed"));
  EXPECT_EQ(*engine->FindSession("", "renamed"), session);
  EXPECT_FALSE(engine->FindSession("", "s150").ok());
  EXPECT_OK(engine->Save(session));
  EXPECT_TRUE(engine->Inspect(session)->saved);
  EXPECT_OK(engine->Park(session));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kParked);
  EXPECT_EQ(engine->Inspect(session)->n_tokens, 20);
  EXPECT_OK(engine->Restore(session));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
  EXPECT_OK(engine->Reset(session));
  EXPECT_EQ(engine->Inspect(session)->n_tokens, 0);
  EXPECT_OK(engine->Close(session, /*forget=*/true));
  EXPECT_THAT(engine->Inspect(session).status(), IsError(StatusCode::kNotFound, "closed"));
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(kSessions));
  EXPECT_EQ(*engine->CloseIdle("", std::chrono::microseconds(0)), kSessions);
  EXPECT_THAT(engine->ListSessions("").value(), SizeIs(0));
  EXPECT_EQ(engine->Stats().sessions_ready, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineReadersTest, AfterTheEndThereAreCountsAndNoSessions) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, Greedy(RandomTokens(40, 1), 3));
  EXPECT_OK(engine->Shutdown(std::chrono::seconds(1)));
  const auto down = IsError(StatusCode::kUnavailable, "shut down");
  EXPECT_THAT(engine->Inspect(session).status(), down);
  EXPECT_THAT(engine->FindSession("", "s").status(), down);
  EXPECT_EQ(engine->Stats().turns_finished, 1);
  EXPECT_THAT(engine->Turns(), SizeIs(0));
}

}  // namespace
}  // namespace weft
