// A failing backend, and too little memory.
#include "compute/backend.h"
#include "engine/engine_test_util.h"
#include "engine/sampling/random.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// --- a failing backend ---------------------------------------------------------------------

class EngineFaultsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> Start(const EngineOptions& options = SmallEngine()) {
    return StartEngine(options, TinyModel("llama", 1, &backend_));
  }
  testing::Faults& faults() { return backend_.faults(); }

  testing::FaultyBackend backend_;  // outlives the engines
};

TEST_F(EngineFaultsTest, AFailedForwardPoisonsItsSessionAndNoOther) {
  auto engine = Start();
  const SessionId bad = NewSession(engine.get(), "bad"), good = NewSession(engine.get(), "good");
  const TurnOptions first = Greedy(RandomTokens(40, 1), 0);
  RunTurn(engine.get(), bad, first);
  RunTurn(engine.get(), good, first);
  faults().fail_forward = faults().forwards + 1;
  const TurnOutcome failed = RunTurn(engine.get(), bad, Greedy(RandomTokens(10, 2), 10));
  EXPECT_EQ(failed.done().reason, FinishReason::kError);
  EXPECT_THAT(failed.done().status, IsError(StatusCode::kInternal, "device was lost"));
  EXPECT_EQ(StateOf(engine.get(), bad), SessionState::kPoisoned);
  EXPECT_EQ(StateOf(engine.get(), good), SessionState::kReady);
  EXPECT_EQ(engine->Stats().sessions_poisoned, 1);
  EXPECT_OK(engine->CheckIntegrity());
  // The engine keeps serving, with correct bits.
  const std::vector<TurnOptions> turns = {first, Greedy(RandomTokens(5, 3), 10)};
  EXPECT_EQ(RunTurn(engine.get(), good, turns[1]).tokens(),
            RunAlone(TinyModel("llama"), SmallEngine(), turns)[1].tokens());
}

TEST_F(EngineFaultsTest, APoisonedSessionCanOnlyBeResetForkedEarlierOrClosed) {
  TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  auto engine = Start(options);
  const SessionId session = NewSession(engine.get(), "s");
  const TurnOptions first = Greedy(RandomTokens(40, 1), 0);
  RunTurn(engine.get(), session, first);
  faults().fail_forward = faults().forwards + 1;
  RunTurn(engine.get(), session, Greedy(RandomTokens(10, 2), 10));
  const auto poisoned = IsError(StatusCode::kFailedPrecondition, "poisoned");
  EXPECT_THAT(engine->Submit(session, Greedy({5}, 1)).status(), poisoned);
  EXPECT_THAT(engine->Truncate(session, 10), poisoned);
  EXPECT_THAT(engine->Park(session), poisoned);
  EXPECT_THAT(engine->Save(session), poisoned);
  EXPECT_THAT(engine->Fork(session, 41, {}).status(), IsError(StatusCode::kOutOfRange, "sound"));
  const auto fork = engine->Fork(session, -1, {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  EXPECT_EQ(TokensOf(engine.get(), *fork), first.tokens) << "the failure was after token 40";
  const std::vector<TurnOptions> turns = {first, Greedy(RandomTokens(5, 3), 10)};
  const auto alone = RunAlone(TinyModel("llama"), SmallEngine(), turns);
  EXPECT_EQ(RunTurn(engine.get(), *fork, turns[1]).tokens(), alone[1].tokens());
  EXPECT_OK(engine->Reset(session));
  RunTurn(engine.get(), session, first);
  EXPECT_EQ(RunTurn(engine.get(), session, turns[1]).tokens(), alone[1].tokens());
  EXPECT_OK(engine->Close(session, true));
}

TEST_F(EngineFaultsTest, AFailureWhileDecodingKeepsWhatWasSaidToForkFrom) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  faults().fail_forward = faults().forwards + 6;
  const TurnOutcome failed = RunTurn(engine.get(), session, Greedy(RandomTokens(20, 1), 30));
  EXPECT_THAT(failed.tokens(), SizeIs(5));
  EXPECT_EQ(failed.done().reason, FinishReason::kError);
  const auto fork = engine->Fork(session, -1, {});
  ASSERT_TRUE(fork.ok());
  EXPECT_EQ(TokensOf(engine.get(), *fork).size(), 24u);
}

TEST_F(EngineFaultsTest, OnlyTheSessionsOfTheFailedStepAreTouched) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  auto engine = Start(options);
  const SessionId paused = NewSession(engine.get()), failing = NewSession(engine.get());
  const TurnOptions long_turn = Greedy(RandomTokens(20, 1), 100);
  auto turn = SubmitTurn(engine.get(), paused, long_turn);
  // It waits for its reader, so the next steps do not include it.
  ASSERT_TRUE(Eventually([&] { return engine->Inspect(paused)->n_tokens >= 23; }));
  const int64_t steps = engine->Stats().steps;
  faults().fail_forward = faults().forwards + 1;
  EXPECT_EQ(RunTurn(engine.get(), failing, Greedy(RandomTokens(20, 2), 5)).done().reason,
            FinishReason::kError);
  EXPECT_EQ(engine->Stats().steps, steps);
  EXPECT_EQ(Collect(turn.get()).tokens(),
            RunAlone(TinyModel("llama"), SmallEngine(), std::span(&long_turn, 1))[0].tokens());
}

TEST_F(EngineFaultsTest, LogitsThatAreNoNumbersPoisonAndAreNotKeptAsAPrefix) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  const TurnOptions turn = Greedy(RandomTokens(40, 1), 10);
  faults().nan_forward = faults().forwards + 1;
  EXPECT_THAT(RunTurn(engine.get(), session, turn).done().status,
              IsError(StatusCode::kInternal, "not finite"));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kPoisoned);
  EXPECT_EQ(engine->Stats().pages_in_index, 0);
  const auto next = engine->SubmitOnce("", turn);
  const TurnOutcome outcome = Collect(next->get());
  EXPECT_EQ(outcome.started->cached_tokens, 0);
  EXPECT_EQ(outcome.tokens(),
            RunAlone(TinyModel("llama"), SmallEngine(), std::span(&turn, 1))[0].tokens());
}

TEST_F(EngineFaultsTest, WhenTheDeviceHasNoMemoryForACopyNoHalfCopiedPageIsUsed) {
  for (const bool grow : {false, true}) {
    auto engine = Start();
    const SessionId session = NewSession(engine.get());
    const TurnOptions first = Greedy(RandomTokens(40, 1), 0);
    RunTurn(engine.get(), session, first);
    const SessionId fork = *engine->Fork(session, 40, {});  // shares a partly filled page
    (grow ? faults().fail_grow : faults().fail_copy) = true;
    const TurnOptions second = Greedy(RandomTokens(2, 2), 5);
    const std::vector<TurnOptions> turns = {first, second};
    const auto alone = RunAlone(TinyModel("llama"), SmallEngine(), turns);
    const TurnOutcome outcome = RunTurn(engine.get(), fork, second);
    if (grow) {  // the idle session releases the page, so no copy is needed
      EXPECT_EQ(outcome.tokens(), alone[1].tokens());
      EXPECT_OK(engine->Truncate(fork, 40));
    } else {
      EXPECT_THAT(outcome.done().status, IsError(StatusCode::kInternal, "copy failed"));
    }
    faults().fail_grow = faults().fail_copy = false;
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_EQ(TokensOf(engine.get(), fork), first.tokens);
    EXPECT_EQ(RunTurn(engine.get(), fork, second).tokens(), alone[1].tokens());
    EXPECT_EQ(RunTurn(engine.get(), session, second).tokens(), alone[1].tokens());
  }
}

TEST_F(EngineFaultsTest, AnEngineThatCannotComputeDoesNotStart) {
  const auto model = TinyModel("llama", 1, &backend_);
  faults().fail_executor = true;
  EXPECT_THAT(Engine::Start(model, SmallEngine()).status(),
              IsError(StatusCode::kInternal, "no such device"));
  faults().fail_executor = false;
  faults().fail_forward = 1;
  EXPECT_THAT(Engine::Start(model, SmallEngine()).status(),
              IsError(StatusCode::kInternal, "warm-up"));
  faults().fail_forward = 0;
  EngineOptions nonsense = SmallEngine();
  nonsense.max_running = 0;
  EXPECT_EQ(Engine::Start(model, nonsense).status().code(), StatusCode::kInvalidArgument);
  nonsense = SmallEngine();
  nonsense.page_tokens = 17;
  EXPECT_EQ(Engine::Start(model, nonsense).status().code(), StatusCode::kInvalidArgument);
  nonsense = SmallEngine();
  nonsense.memory_bytes = 100;
  EXPECT_THAT(Engine::Start(model, nonsense).status(),
              IsError(StatusCode::kResourceExhausted, "--memory"));
  EXPECT_TRUE(Engine::Start(model, SmallEngine()).ok());
}

// --- memory pressure -------------------------------------------------------------------------

class EnginePressureTest : public ::testing::TestWithParam<const char*> {
 protected:
  // An engine with room for the pages of `n_pages` * 16 tokens and two slots.
  std::unique_ptr<Engine> Start(int64_t n_pages, EngineOptions options = SmallEngine()) {
    const auto model = TinyModel(GetParam());
    options.memory_bytes = n_pages * testing::PageBytes(*model, options) +
                           2 * testing::LayoutOf(*model, options).slot_bytes;
    budget_ = options.memory_bytes;
    return StartEngine(options, model);
  }
  std::vector<int32_t> Alone(const TurnOptions& turn) {
    return RunAlone(TinyModel(GetParam()), SmallEngine(), std::span(&turn, 1))[0].tokens();
  }
  int64_t budget_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Models, EnginePressureTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

TEST_P(EnginePressureTest, UnheldPrefixesGoFirst) {
  auto engine = Start(12);
  const SessionId held = NewSession(engine.get());
  RunTurn(engine.get(), held, Greedy(RandomTokens(30, 100), 0));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TurnOptions turn = Greedy(RandomTokens(100, seed), 4);
    const auto once = engine->SubmitOnce("", turn);
    ASSERT_TRUE(once.ok());
    EXPECT_EQ(Collect(once->get()).tokens(), Alone(turn));
    EXPECT_LE(testing::StateBytes(engine->Stats()), budget_);
  }
  EXPECT_GT(engine->Stats().index_evicted_pages, 0);
  EXPECT_EQ(engine->Stats().sessions_dropped, 0) << "no session lost its state to a prefix";
  EXPECT_EQ(engine->Inspect(held)->n_computed, 30);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePressureTest, ThenTheSessionThatIdledLongestIsDroppedAndComesBackTheSame) {
  auto engine = Start(16);
  std::vector<SessionId> sessions;
  std::vector<std::vector<TurnOptions>> turns;
  for (uint64_t i = 0; i < 6; ++i) {
    sessions.push_back(NewSession(engine.get(), StrCat("s", i)));
    turns.push_back({Greedy(RandomTokens(80, i), 4), Greedy(RandomTokens(4, 100 + i), 8)});
    EXPECT_OK(RunTurn(engine.get(), sessions[i], turns[i][0]).done().status);
    EXPECT_LE(testing::StateBytes(engine->Stats()), budget_);
  }
  EXPECT_GT(engine->Stats().sessions_dropped, 0);
  EXPECT_EQ(engine->Inspect(sessions[0])->n_computed, 0) << "the one used longest ago";
  EXPECT_GT(engine->Inspect(sessions[5])->n_computed, 0);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(RunTurn(engine.get(), sessions[i], turns[i][1]).tokens(),
              RunAlone(TinyModel(GetParam()), SmallEngine(), turns[i])[1].tokens());
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EnginePressureTest, WithAStateDirectoryIdleSessionsAreParkedInstead) {
  TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  auto engine = Start(16, options);
  std::vector<SessionId> sessions;
  std::vector<std::vector<TurnOptions>> turns;
  for (uint64_t i = 0; i < 6; ++i) {
    sessions.push_back(NewSession(engine.get(), StrCat("s", i)));
    turns.push_back({Greedy(RandomTokens(80, i), 4), Greedy(RandomTokens(4, 100 + i), 8)});
    EXPECT_OK(RunTurn(engine.get(), sessions[i], turns[i][0]).done().status);
  }
  EXPECT_TRUE(Eventually([&] { return engine->Stats().sessions_parked > 0; }));
  EXPECT_EQ(StateOf(engine.get(), sessions[0]), SessionState::kParked);
  EXPECT_EQ(engine->Inspect(sessions[0])->n_tokens, 84);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(RunTurn(engine.get(), sessions[i], turns[i][1]).tokens(),
              RunAlone(TinyModel(GetParam()), SmallEngine(), turns[i])[1].tokens());
    EXPECT_LE(testing::StateBytes(engine->Stats()), budget_);
    EXPECT_OK(engine->CheckIntegrity());
  }
  EXPECT_GT(engine->Stats().restores, 0);
}

TEST_P(EnginePressureTest, RunningTurnsAreSetBackAndSayTheSame) {
  auto engine = Start(14);
  std::vector<TurnOptions> turns;
  for (uint64_t i = 0; i < 5; ++i) {
    turns.push_back(Greedy(RandomTokens(60, i), 100));
    turns.back().sampling = SamplingOptions();
    turns.back().sampling.seed = i;
  }
  // If this thread is starved, one turn may end before the next arrives; then retry.
  for (int attempt = 0; attempt < 10 && engine->Stats().preemptions == 0; ++attempt) {
    std::vector<std::shared_ptr<Turn>> running;
    for (const TurnOptions& turn : turns) running.push_back(*engine->SubmitOnce("", turn));
    for (size_t i = 0; i < turns.size(); ++i) {
      const TurnOutcome outcome = Collect(running[i].get());
      EXPECT_OK(outcome.done().status);
      EXPECT_EQ(outcome.tokens(), Alone(turns[i]));
    }
  }
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_LE(testing::StateBytes(stats), budget_);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePressureTest, ChoicesThatDoNotFitTogetherRunOneAfterTheOther) {
  TurnOptions turn = Greedy(RandomTokens(50, 1), 100);
  turn.sampling = SamplingOptions();
  turn.sampling.seed = 3;
  turn.n_choices = 4;
  // Room for one and a half.
  auto engine = Start(15);
  const auto once = engine->SubmitOnce("", turn);
  ASSERT_TRUE(once.ok());
  const TurnOutcome outcome = Collect(once->get());
  auto roomy = Start(200);
  const TurnOutcome expected = Collect(roomy->SubmitOnce("", turn)->get());
  ASSERT_THAT(outcome.choices, SizeIs(4));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_OK(outcome.choices[i].done->status);
    EXPECT_EQ(outcome.choices[i].tokens, expected.choices[i].tokens) << i;
  }
}

TEST_P(EnginePressureTest, PromptRowsAreGivenOnceEvenWhenTheTurnIsSetBack) {
  auto engine = Start(20);
  std::vector<std::shared_ptr<Turn>> others;
  for (uint64_t i = 0; i < 2; ++i) {
    others.push_back(*engine->SubmitOnce("", Greedy(RandomTokens(60, i), 90)));
  }
  TurnOptions scored = Greedy(RandomTokens(150, 7), 20);
  scored.prompt_logprobs = true;
  scored.prompt_chunks = {2};
  std::vector<int64_t> positions;
  scored.on_prompt_logits = [&](int64_t position, std::span<const float>) {
    positions.push_back(position);
  };
  const TurnOutcome outcome = Collect(engine->SubmitOnce("", scored)->get());
  for (auto& other : others) EXPECT_OK(Collect(other.get()).done().status);
  EXPECT_OK(outcome.done().status);
  ASSERT_THAT(positions, SizeIs(150));
  for (int64_t i = 0; i < 150; ++i) EXPECT_EQ(positions[static_cast<size_t>(i)], i);
  EXPECT_THAT(outcome.started->prompt_logprobs, SizeIs(150));
}

TEST_P(EnginePressureTest, TurnsThatTakeEachOthersMemoryAllEnd) {
  EngineOptions options = SmallEngine();
  options.max_running = 4;
  options.max_step_tokens = 40;  // so that some of them get no rows in a step
  options.share_weights = {{"b", 2.5}};
  auto engine = Start(5, options);
  for (uint64_t round = 0; round < 40; ++round) {
    std::vector<TurnOptions> turns;
    std::vector<std::shared_ptr<Turn>> running;
    for (uint64_t i = 0; i < 6; ++i) {
      const uint64_t seed = round * 6 + i;
      const int64_t length = 20 + static_cast<int64_t>(RandomBits(seed, 0) % 45);
      turns.push_back(Greedy(RandomTokens(length, seed), 8));
      turns.back().n_choices = 1 + static_cast<int>(seed % 2);
      if (round % 4 > 0) turns.back().tenant = std::string(1, "abc"[RandomBits(seed, 1) % 3]);
      turns.back().priority = static_cast<int>(RandomBits(seed, 2) % 2);
      running.push_back(*engine->SubmitOnce("", turns.back()));
    }
    for (size_t i = 0; i < 6; ++i) {
      const TurnOutcome outcome = Collect(running[i].get());
      EXPECT_OK(outcome.done().status);
      if (round % 8 < 2) {
        EXPECT_EQ(outcome.tokens(), Alone(turns[i]));
      }
    }
  }
  EXPECT_GT(engine->Stats().preemptions, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePressureTest, ATurnThatCanNeverFitFailsAloneAndClearly) {
  auto engine = Start(5);
  const SessionId idle = NewSession(engine.get());
  RunTurn(engine.get(), idle, Greedy(RandomTokens(30, 1), 0));
  const SessionId session = NewSession(engine.get());
  const TurnOutcome outcome = RunTurn(engine.get(), session, Greedy(RandomTokens(400, 2), 4));
  EXPECT_EQ(outcome.done().status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(outcome.done().status)), HasSubstr("memory"));
  EXPECT_THAT(TokensOf(engine.get(), session), SizeIs(0));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
  EXPECT_EQ(engine->Inspect(idle)->n_computed, 30) << "it cost nobody anything";
  // Small ones are still served.
  const TurnOptions small = Greedy(RandomTokens(40, 3), 5);
  EXPECT_EQ(RunTurn(engine.get(), session, small).tokens(), Alone(small));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePressureTest, ALongPromptIsTakenInSmallerStepsWhenMemoryIsShort) {
  if (!std::string(GetParam()).ends_with("gemma3"))
    GTEST_SKIP() << "all of its layers see everything";
  auto engine = Start(8);
  const TurnOptions turn = Greedy(RandomTokens(400, 1), 10);
  const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
  EXPECT_OK(outcome.done().status);
  EXPECT_EQ(outcome.tokens(), Alone(turn));
  EXPECT_LE(testing::StateBytes(engine->Stats()), budget_);
}

TEST_P(EnginePressureTest, AStalledTurnGivesItsPagesToOthersAndGoesOnUnchanged) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  auto engine = Start(14, options);
  const TurnOptions turn = Greedy(RandomTokens(100, 1), 60);
  auto stalled = *engine->SubmitOnce("", turn);
  TurnOutcome outcome;
  ReadToFirstToken(stalled.get(), &outcome);
  const TurnOptions other = Greedy(RandomTokens(150, 2), 20);
  EXPECT_EQ(Collect(engine->SubmitOnce("", other)->get()).tokens(), Alone(other));
  while (auto event = stalled->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_OK(outcome.done().status);
  EXPECT_EQ(outcome.tokens(), Alone(turn));
}

}  // namespace
}  // namespace weft
