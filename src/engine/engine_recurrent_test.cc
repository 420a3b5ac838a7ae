// Sessions of models with recurrent state: slots, checkpoints, and where a session can resume.
#include <fstream>

#include "engine/engine_test_util.h"
#include "tests/support/recurrent_backend.h"

namespace weft {
namespace {

using ::testing::SizeIs;

constexpr int64_t kSlot = testing::RecurrentBackend::kSlotBytes;
constexpr TokenId kControl = 1;

class EngineRecurrentTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> Start(const EngineOptions& options = SmallEngine()) {
    return StartEngine(options, model());
  }
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }

  // The answer of a new session that gets all of this at once.
  static std::vector<int32_t> Alone(std::vector<int32_t> context, TurnOptions turn) {
    context.insert(context.end(), turn.tokens.begin(), turn.tokens.end());
    turn.tokens = std::move(context);
    return RunAlone(model(), SmallEngine(), std::span(&turn, 1))[0].tokens();
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineRecurrentTest,
                         ::testing::Values("recurrent-llama", "recurrent-gemma3"),
                         [](const auto& info) { return std::string(info.param).substr(10); });

TEST_P(EngineRecurrentTest, ASessionHoldsOneSlotOnceItHasComputedSomething) {
  EngineOptions options = SmallEngine();
  options.prefix_cache = false;
  auto engine = Start(options);
  EXPECT_EQ(engine->Stats().slots_used, 0) << "the warm-up leaves nothing behind";
  std::vector<SessionId> sessions;
  for (uint64_t i = 0; i < 3; ++i) {
    sessions.push_back(NewSession(engine.get()));
    EXPECT_EQ(engine->Inspect(sessions[i])->slot_bytes, 0);
    RunTurn(engine.get(), sessions[i], Greedy(RandomTokens(40, i), 5));
    const SessionInfo info = *engine->Inspect(sessions[i]);
    EXPECT_EQ(info.slot_bytes, kSlot);
    EXPECT_GT(info.state_bytes, kSlot) << "its pages count too";
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.slots_used, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(stats.slot_bytes, stats.slots_used * kSlot);
    EXPECT_EQ(stats.checkpoints, 0);
    EXPECT_EQ(stats.checkpoint_bytes, 0);
  }
  for (const SessionId session : sessions) EXPECT_OK(engine->Close(session, true));
  EXPECT_EQ(engine->Stats().slots_used, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, AForkAtTheEndCopiesTheSlotWhenItGoesOn) {
  auto engine = Start();
  const SessionId trunk = NewSession(engine.get());
  const TurnOptions first = Greedy(RandomTokens(70, 1), 5);
  RunTurn(engine.get(), trunk, first);
  const std::vector<int32_t> said = TokensOf(engine.get(), trunk);
  const EngineStats before = engine->Stats();
  std::vector<SessionId> forks;
  for (int i = 0; i < 4; ++i) forks.push_back(*engine->Fork(trunk, -1, {}));
  EXPECT_EQ(engine->Stats().slots_used, before.slots_used) << "a fork costs no slot";
  for (size_t i = 0; i < forks.size(); ++i) {
    const TurnOptions next = Greedy(RandomTokens(3, 10 + i), 12);
    const TurnOutcome outcome = RunTurn(engine.get(), forks[i], next);
    EXPECT_EQ(outcome.started->cached_tokens, 74);
    EXPECT_EQ(outcome.tokens(), Alone(said, next));
    EXPECT_EQ(TokensOf(engine.get(), trunk), said);
  }
  const TurnOptions last = Greedy(RandomTokens(3, 20), 12);
  EXPECT_EQ(RunTurn(engine.get(), trunk, last).tokens(), Alone(said, last));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, AForkAnywhereStartsFromTheNearestCheckpoint) {
  EngineOptions options = SmallEngine();
  options.checkpoint_tokens = 64;
  auto engine = Start(options);
  const SessionId trunk = NewSession(engine.get());
  RunTurn(engine.get(), trunk, Greedy(RandomTokens(300, 1), 30));
  const std::vector<int32_t> said = TokensOf(engine.get(), trunk);
  ASSERT_THAT(said, SizeIs(330));
  // Every 64 tokens, at the end of the prompt, and at the end of the turn and its last whole page.
  const auto nearest = [](int64_t position) {
    int64_t best = position / 64 * 64;
    for (const int64_t checkpoint : {299, 320, 329}) {
      if (position >= checkpoint) best = std::max(best, checkpoint);
    }
    return best;
  };
  for (const int64_t position : {1, 63, 64, 65, 200, 298, 299, 300, 319, 320, 325, 329, 330}) {
    const auto fork = engine->Fork(trunk, position, {});
    ASSERT_TRUE(fork.ok()) << fork.status();
    EXPECT_EQ(engine->Inspect(*fork)->n_computed, nearest(position)) << position;
    const TurnOptions next = Greedy(RandomTokens(2, 7), 8);
    const TurnOutcome outcome = RunTurn(engine.get(), *fork, next);
    EXPECT_EQ(outcome.started->cached_tokens, nearest(position)) << position;
    EXPECT_EQ(outcome.tokens(), Alone({said.begin(), said.begin() + position}, next)) << position;
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_OK(engine->Close(*fork, true));
  }
  EXPECT_EQ(engine->Inspect(trunk)->n_computed, 329) << "the trunk is as it was";
}

TEST_P(EngineRecurrentTest, UndoGoesBackToTheNearestCheckpoint) {
  EngineOptions options = SmallEngine();
  options.checkpoint_tokens = 64;
  auto engine = Start(options);
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, Greedy(RandomTokens(200, 1), 20));
  const std::vector<int32_t> said = TokensOf(engine.get(), session);
  EXPECT_OK(engine->Truncate(session, 150));
  EXPECT_EQ(engine->Inspect(session)->n_computed, 128);
  const TurnOptions next = Greedy(RandomTokens(5, 2), 20);
  const TurnOutcome outcome = RunTurn(engine.get(), session, next);
  EXPECT_EQ(outcome.started->cached_tokens, 128);
  EXPECT_EQ(outcome.tokens(), Alone({said.begin(), said.begin() + 150}, next));
  // A context that diverges from the conversation is an undo too.
  TurnOptions whole = Greedy({said.begin(), said.begin() + 80}, 10);
  whole.tokens_are_whole_context = true;
  const TurnOutcome again = RunTurn(engine.get(), session, whole);
  EXPECT_EQ(again.started->cached_tokens, 64);
  EXPECT_EQ(again.tokens(), Alone({}, whole));
  EXPECT_OK(engine->Truncate(session, 0));
  EXPECT_EQ(engine->Inspect(session)->slot_bytes, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, TheSamePromptAgainLeavesOneTokenToCompute) {
  for (const int64_t length : {int64_t{17}, int64_t{63}, int64_t{64}, int64_t{65}, int64_t{300}}) {
    auto engine = Start();
    const TurnOptions turn = Greedy(RandomTokens(length, 1), 5);
    const TurnOutcome first = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(first.started->cached_tokens, 0);
    const TurnOutcome second = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(second.started->cached_tokens, length - 1);
    EXPECT_EQ(second.tokens(), first.tokens());
    EXPECT_EQ(first.tokens(), Alone({}, turn));
    EXPECT_EQ(Collect(engine->SubmitOnce("other", turn)->get()).started->cached_tokens, 0)
        << "nothing of one domain is found by another";
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EngineRecurrentTest, AHistoryThatComesBackIsFoundWhereItsTurnEnded) {
  auto engine = Start();
  TurnOptions turn = Greedy(RandomTokens(50, 1), 61);
  const TurnOutcome first = Collect(engine->SubmitOnce("", turn)->get());
  // 110 are computed. Of the checkpoints on the way one is kept, besides the prompt's and the last.
  EXPECT_EQ(engine->Stats().checkpoints, 3);
  const auto& reply = first.tokens();
  turn.tokens.insert(turn.tokens.end(), reply.begin(), reply.end());
  const auto more = RandomTokens(20, 2);
  turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
  const TurnOutcome second = Collect(engine->SubmitOnce("", turn)->get());
  EXPECT_EQ(second.started->cached_tokens, 110);
  EXPECT_EQ(second.tokens(), Alone({}, turn));
}

// The prompts of an agent: messages begin with a control token and two tokens for the role.
class AgentPrompt {
 public:
  void Add(int64_t n, uint64_t seed) {
    start_ = std::ssize(tokens_) + 1;
    tokens_.insert(tokens_.end(), {kControl, 301, 302});
    const auto text = RandomTokens(n, seed);
    tokens_.insert(tokens_.end(), text.begin(), text.end());
  }
  void AddReply(const std::vector<int32_t>& reply) {
    tokens_.insert(tokens_.end(), reply.begin(), reply.end());
  }
  std::vector<int32_t> WithHeader(const std::vector<int32_t>& header = {kControl, 303, 304}) const {
    std::vector<int32_t> prompt = tokens_;
    prompt.insert(prompt.end(), header.begin(), header.end());
    return prompt;
  }
  int64_t size() const { return std::ssize(tokens_); }
  int64_t start() const { return start_; }  // where the last message begins

 private:
  std::vector<int32_t> tokens_;
  int64_t start_ = 0;
};

TEST_P(EngineRecurrentTest, TheTurnsOfAnAgentHitWhatTheyHaveInCommonToTheToken) {
  auto engine = Start();
  const auto ask = [&](std::vector<int32_t> prompt, int64_t n) {
    const TurnOptions turn = Greedy(std::move(prompt), n);
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(outcome.tokens(), Alone({}, turn));
    EXPECT_OK(engine->CheckIntegrity());
    return outcome;
  };
  AgentPrompt agent;
  agent.Add(200, 1);
  int64_t computed = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    const AgentPrompt before = agent;
    agent.Add(30 + static_cast<int64_t>(i) * 13, 10 + i);
    const auto prompt = agent.WithHeader();
    const TurnOutcome outcome = ask(prompt, 7 + static_cast<int64_t>(i) * 5);
    EXPECT_EQ(outcome.started->cached_tokens, computed);
    // The same prompt again, and with another header: it leaves after the control token.
    EXPECT_EQ(ask(prompt, 2).started->cached_tokens, std::ssize(prompt) - 2);
    EXPECT_EQ(ask(agent.WithHeader({kControl, 305, 306, 307, 308, 309}), 2).started->cached_tokens,
              agent.size() + 1);
    // Another last message of the same role.
    AgentPrompt other = before;
    other.Add(50, 100 + i);
    // In later turns the last turn's end lies 2 tokens before that, and serves.
    EXPECT_EQ(ask(other.WithHeader(), 2).started->cached_tokens, agent.start() - (i > 0 ? 2 : 0));
    agent.AddReply({kControl, 303, 304});
    agent.AddReply(outcome.tokens());
    computed = agent.size() - 1;
  }
}

TEST_P(EngineRecurrentTest, WhereKnownPrefixesPartACheckpointIsKept) {
  auto engine = Start();
  const auto prompt = [](uint64_t seed) {
    std::vector<int32_t> tokens = RandomTokens(170, 1);
    const auto tail = RandomTokens(40, seed);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return tokens;
  };
  const auto cached = [&](uint64_t seed) {
    const TurnOptions turn = Greedy(prompt(seed), 3);
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(outcome.tokens(), Alone({}, turn));
    return outcome.started->cached_tokens;
  };
  EXPECT_EQ(cached(10), 0);
  EXPECT_EQ(cached(11), 0) << "nobody knew yet that the first 170 would come again";
  EXPECT_EQ(cached(12), 170);
}

TEST_P(EngineRecurrentTest, SiblingsComputeTheirCommonPrefixOnce) {
  EngineOptions options = SmallEngine();
  options.max_running = 8;
  options.max_step_tokens = 48;
  auto engine = Start(options);
  const int64_t computed_before = engine->Stats().prompt_tokens;
  std::vector<TurnOptions> turns;
  std::vector<std::shared_ptr<Turn>> running;
  for (uint64_t i = 0; i < 8; ++i) {
    // They diverge where the last message starts, so the first one's own checkpoint also serves
    // late arrivals.
    std::vector<int32_t> tokens = RandomTokens(321, 1);
    tokens.push_back(kControl);
    const auto tail = RandomTokens(10, 40 + i);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    turns.push_back(Greedy(tokens, 4));
    running.push_back(*engine->SubmitOnce("", turns.back()));
  }
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(Collect(running[i].get()).tokens(), Alone({}, turns[i]));
  }
  EXPECT_EQ(engine->Stats().prompt_tokens - computed_before, 8 * 332 - 7 * 322);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, ASiblingThatIsCancelledHandsOver) {
  EngineOptions options = SmallEngine();
  options.max_running = 4;
  options.max_step_tokens = 16;
  options.checkpoint_tokens = 64;
  auto engine = Start(options);
  const TurnOptions turn = Greedy(RandomTokens(400, 1), 4);
  std::vector<std::shared_ptr<Turn>> running;
  for (int i = 0; i < 4; ++i) running.push_back(*engine->SubmitOnce("", turn));
  running[0]->Cancel();
  const auto expected = Alone({}, turn);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(Collect(running[i].get()).tokens(), expected);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, ChoicesForkWithSlotsOfTheirOwn) {
  TurnOptions turn = Greedy(RandomTokens(64, 1), 40);
  turn.sampling = SamplingOptions();
  turn.sampling.seed = 3;
  turn.n_choices = 4;
  auto engine = Start();
  const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
  ASSERT_THAT(outcome.choices, SizeIs(4));
  EngineOptions one_by_one = SmallEngine();
  one_by_one.memory_bytes = 8 * testing::PageBytes(*model(), one_by_one) + kSlot;
  auto tight = Start(one_by_one);
  const TurnOutcome slow = Collect(tight->SubmitOnce("", turn)->get());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_OK(slow.choices[i].done->status);
    EXPECT_EQ(slow.choices[i].tokens, outcome.choices[i].tokens) << i;
  }
  EXPECT_GT(tight->Stats().preemptions, 0);
  EXPECT_OK(tight->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, PromptsAreScoredTheSameWhateverIsKnownOfThem) {
  TurnOptions turn = Greedy(RandomTokens(150, 1), 4);
  turn.prompt_logprobs = true;
  const auto alone = RunAlone(model(), SmallEngine(), std::span(&turn, 1));
  auto engine = Start();
  for (int i = 0; i < 2; ++i) {
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    ASSERT_THAT(outcome.started->prompt_logprobs, SizeIs(150));
    for (size_t t = 0; t < 150; ++t) {
      EXPECT_EQ(outcome.started->prompt_logprobs[t].token.logprob,
                alone[0].started->prompt_logprobs[t].token.logprob);
    }
    EXPECT_EQ(outcome.tokens(), alone[0].tokens());
  }
}

TEST_P(EngineRecurrentTest, AFailedForwardLeavesTheCheckpointsToForkFrom) {
  static const testing::RecurrentBackend recurrent(*FindBackend("cpu"));
  testing::FaultyBackend backend(&recurrent);
  EngineOptions options = SmallEngine();
  options.checkpoint_tokens = 64;
  auto engine = StartEngine(options, TinyModel(GetParam(), 1, &backend));
  const SessionId session = NewSession(engine.get());
  const TurnOptions first = Greedy(RandomTokens(150, 1), 1);
  RunTurn(engine.get(), session, first);
  for (const bool nan : {false, true}) {
    const SessionId bad = *engine->Fork(session, -1, {});
    (nan ? backend.faults().nan_forward : backend.faults().fail_forward) =
        backend.faults().forwards + 1;
    // Too few tokens for a checkpoint, so that they are one step.
    EXPECT_EQ(RunTurn(engine.get(), bad, Greedy(RandomTokens(3, 2), 10)).done().reason,
              FinishReason::kError);
    EXPECT_EQ(StateOf(engine.get(), bad), SessionState::kPoisoned);
    EXPECT_OK(engine->CheckIntegrity());
    for (const int64_t position : {100, 150}) {
      const auto fork = engine->Fork(bad, position, {});
      ASSERT_TRUE(fork.ok()) << fork.status();
      EXPECT_EQ(engine->Inspect(*fork)->n_computed, position == 150 ? 150
                                                    : nan           ? 100
                                                                    : 64)
          << "the first fork's turn left a checkpoint at 100";
      const TurnOptions next = Greedy(RandomTokens(5, 3), 10);
      EXPECT_EQ(RunTurn(engine.get(), *fork, next).tokens(),
                Alone({first.tokens.begin(), first.tokens.begin() + position}, next));
    }
  }
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
}

TEST_P(EngineRecurrentTest, ADeviceWithoutMemoryForACopyHarmsNobody) {
  static const testing::RecurrentBackend recurrent(*FindBackend("cpu"));
  testing::FaultyBackend backend(&recurrent);
  auto engine = StartEngine(SmallEngine(), TinyModel(GetParam(), 1, &backend));
  const SessionId session = NewSession(engine.get());
  const TurnOptions first = Greedy(RandomTokens(40, 1), 0), second = Greedy(RandomTokens(2, 2), 5);
  RunTurn(engine.get(), session, first);
  const SessionId fork = *engine->Fork(session, 40, {});
  const auto expected = Alone(first.tokens, second);
  backend.faults().fail_copy = true;
  EXPECT_THAT(RunTurn(engine.get(), fork, second).done().status,
              IsError(StatusCode::kInternal, "copy failed"));
  backend.faults().fail_copy = false;
  EXPECT_OK(engine->CheckIntegrity());
  EXPECT_EQ(RunTurn(engine.get(), fork, second).tokens(), expected);
  EXPECT_EQ(RunTurn(engine.get(), session, second).tokens(), expected);
}

// --- memory --------------------------------------------------------------------------------

TEST_P(EngineRecurrentTest, CheckpointsTakeNoMoreThanTheirShare) {
  EngineOptions options = SmallEngine();
  options.checkpoint_tokens = 16;
  options.memory_bytes = 100 * kSlot;
  options.checkpoint_share = 0.1;
  auto engine = Start(options);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TurnOptions turn = Greedy(RandomTokens(200, seed), 4);
    EXPECT_EQ(Collect(engine->SubmitOnce("", turn)->get()).tokens(), Alone({}, turn));
    EXPECT_LE(engine->Stats().checkpoints, 10);
    EXPECT_LE(engine->Stats().checkpoint_bytes, 10 * kSlot);
    EXPECT_OK(engine->CheckIntegrity());
  }
  EXPECT_EQ(engine->Stats().checkpoints, 10);
  EXPECT_GT(engine->Stats().evicted_checkpoints, 0);
}

TEST_P(EngineRecurrentTest, WithoutCheckpointsASessionThatGoesBackStartsOver) {
  for (const bool share : {false, true}) {
    EngineOptions options = SmallEngine();
    options.prefix_cache = share;
    options.checkpoint_share = share ? 0 : 0.5;
    auto engine = Start(options);
    const SessionId session = NewSession(engine.get());
    RunTurn(engine.get(), session, Greedy(RandomTokens(100, 1), 10));
    const std::vector<int32_t> said = TokensOf(engine.get(), session);
    EXPECT_EQ(engine->Stats().checkpoints, 0);
    const TurnOptions next = Greedy(RandomTokens(5, 2), 10);
    const SessionId end = *engine->Fork(session, -1, {}), middle = *engine->Fork(session, 60, {});
    const TurnOutcome at_end = RunTurn(engine.get(), end, next);
    EXPECT_EQ(at_end.started->cached_tokens, 109);
    EXPECT_EQ(at_end.tokens(), Alone(said, next));
    const TurnOutcome in_middle = RunTurn(engine.get(), middle, next);
    EXPECT_EQ(in_middle.started->cached_tokens, 0);
    EXPECT_EQ(in_middle.tokens(), Alone({said.begin(), said.begin() + 60}, next));
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_P(EngineRecurrentTest, MemoryForOneSessionServesOneSession) {
  EngineOptions options = SmallEngine();
  // One slot and the pages of 112 tokens: a checkpoint is dropped when its session continues.
  options.memory_bytes = 7 * testing::PageBytes(*model(), options) + kSlot;
  options.checkpoint_share = 1;
  auto engine = Start(options);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const TurnOptions turn = Greedy(RandomTokens(90, seed), 20);
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_OK(outcome.done().status);
    EXPECT_EQ(outcome.tokens(), Alone({}, turn));
    EXPECT_LE(testing::StateBytes(engine->Stats()), options.memory_bytes);
    EXPECT_OK(engine->CheckIntegrity());
  }
  options.memory_bytes = kSlot;
  EXPECT_THAT(Engine::Start(model(), options).status(),
              IsError(StatusCode::kResourceExhausted, "recurrent state"));
}

TEST_P(EngineRecurrentTest, NonsensicalCheckpointsAreRefused) {
  EngineOptions options = SmallEngine();
  options.checkpoint_share = 1.5;
  EXPECT_THAT(Engine::Start(model(), options).status(),
              IsError(StatusCode::kInvalidArgument, "checkpoint_share"));
  options.checkpoint_share = 0.5;
  options.checkpoint_tokens = -1;
  EXPECT_EQ(Engine::Start(model(), options).status().code(), StatusCode::kInvalidArgument);
}

// --- files ---------------------------------------------------------------------------------

TEST_P(EngineRecurrentTest, AParkedSessionGoesOnAfterARestartWithoutComputingAnythingAgain) {
  TestFolder folder;
  EngineOptions options = SmallEngine();
  options.state_dir = folder.path();
  const std::vector<TurnOptions> turns = {Greedy(RandomTokens(120, 1), 10),
                                          Greedy(RandomTokens(10, 2), 20)};
  {
    auto engine = Start(options);
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns[0]);
    EXPECT_OK(engine->Park(session));
    EXPECT_EQ(engine->Inspect(session)->state_bytes, 0);
    EXPECT_OK(engine->DropPrefixes());
    EXPECT_EQ(engine->Stats().slots_used, 0);
  }
  auto engine = Start(options);
  const SessionId session = *engine->FindSession("", "s");
  const TurnOutcome said = RunTurn(engine.get(), session, turns[1]);
  EXPECT_EQ(said.started->cached_tokens, 129);
  EXPECT_EQ(said.tokens(), RunAlone(model(), SmallEngine(), turns)[1].tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineRecurrentTest, DamagedStateIsComputedAgainFromTheTokens) {
  const std::vector<TurnOptions> turns = {Greedy(RandomTokens(120, 1), 10),
                                          Greedy(RandomTokens(10, 2), 20)};
  const auto expected = RunAlone(model(), SmallEngine(), turns)[1].tokens();
  // Without checkpoints the slot's section is the last one before the end mark, a header of 40
  // bytes; with checkpoints, the last one's section is.
  for (const int64_t checkpoint_tokens : {512, 64}) {
    TestFolder folder;
    EngineOptions options = SmallEngine();
    options.checkpoint_tokens = checkpoint_tokens;
    options.state_dir = folder.path();
    options.state_disk_bytes = -1;  // only the session file
    {
      auto engine = Start(options);
      const SessionId session = NewSession(engine.get(), "s");
      RunTurn(engine.get(), session, turns[0]);
      EXPECT_OK(engine->Park(session));
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      if (entry.path().extension() != ".session") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(entry.file_size()) - 45);
      file.put('x');
    }
    auto engine = Start(options);
    const SessionId session = *engine->FindSession("", "s");
    EXPECT_OK(engine->Restore(session));
    EXPECT_THAT(engine->Inspect(session)->note,
                ::testing::HasSubstr(checkpoint_tokens == 64 ? "checkpoint" : "recurrent state"));
    EXPECT_EQ(engine->Inspect(session)->n_computed, 0);
    const TurnOutcome said = RunTurn(engine.get(), session, turns[1]);
    EXPECT_EQ(said.started->cached_tokens, 0);
    EXPECT_EQ(said.tokens(), expected);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

class SavedCheckpointsTest : public EngineRecurrentTest {
 protected:
  void SetUp() override {
    options_.checkpoint_tokens = 64;
    options_.state_dir = folder_.path();
    options_.state_disk_bytes = -1;
    auto engine = Start(options_);
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, Greedy(RandomTokens(300, 1), 30));
    said_ = TokensOf(engine.get(), session);
    EXPECT_OK(engine->Park(session));
  }
  static bool windowed() { return std::string_view(GetParam()) == "recurrent-gemma3"; }

  // Forks at the position and continues; returns where it resumed.
  int64_t ForkAt(Engine* engine, SessionId session, int64_t position) {
    const auto fork = engine->Fork(session, position, {});
    EXPECT_TRUE(fork.ok()) << fork.status();
    const TurnOptions next = Greedy(RandomTokens(2, 7), 8);
    const TurnOutcome outcome = RunTurn(engine, *fork, next);
    EXPECT_EQ(outcome.tokens(), Alone({said_.begin(), said_.begin() + position}, next)) << position;
    EXPECT_OK(engine->CheckIntegrity());
    return outcome.started->cached_tokens;
  }

  TestFolder folder_;
  EngineOptions options_ = SmallEngine();
  std::vector<int32_t> said_;  // 330 tokens, 329 of them computed
};
INSTANTIATE_TEST_SUITE_P(Models, SavedCheckpointsTest,
                         ::testing::Values("recurrent-llama", "recurrent-gemma3"),
                         [](const auto& info) { return std::string(info.param).substr(10); });

TEST_P(SavedCheckpointsTest, ForksAndUndoStartFromThemAfterARestart) {
  auto engine = Start(options_);
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_OK(engine->Restore(session));
  EXPECT_EQ(engine->Inspect(session)->n_computed, 329);
  if (windowed()) {
    // The file has only the pages still in the window.
    EXPECT_EQ(engine->Stats().checkpoints, 1);
    EXPECT_EQ(ForkAt(engine.get(), session, 325), 320);
    EXPECT_EQ(ForkAt(engine.get(), session, 319), 0);
    return;
  }
  // The fewest checkpoints at page ends that leave no gap of more than 64.
  EXPECT_EQ(engine->Stats().checkpoints, 5);
  EXPECT_EQ(ForkAt(engine.get(), session, 63), 0);
  EXPECT_EQ(ForkAt(engine.get(), session, 64), 64);
  EXPECT_EQ(ForkAt(engine.get(), session, 200), 192);
  EXPECT_EQ(ForkAt(engine.get(), session, 255), 192);
  EXPECT_EQ(ForkAt(engine.get(), session, 329), 329);
  EXPECT_EQ(ForkAt(engine.get(), session, 325), 320);
  EXPECT_OK(engine->Truncate(session, 150));
  EXPECT_EQ(engine->Inspect(session)->n_computed, 128);
  const TurnOptions next = Greedy(RandomTokens(5, 2), 20);
  EXPECT_EQ(RunTurn(engine.get(), session, next).tokens(),
            Alone({said_.begin(), said_.begin() + 150}, next));
}

TEST_P(SavedCheckpointsTest, ARenamedAndParkedSessionKeepsThem) {
  for (const char* name : {"t", "u"}) {
    auto engine = Start(options_);
    const SessionId session = *engine->FindSession("", name[0] == 't' ? "s" : "t");
    EXPECT_OK(engine->Rename(session, name));
    EXPECT_OK(engine->Restore(session));
    EXPECT_OK(engine->Park(session));
    EXPECT_OK(engine->Restore(session));
  }
  auto engine = Start(options_);
  EXPECT_EQ(ForkAt(engine.get(), *engine->FindSession("", "u"), 325), 320);
}

TEST_P(SavedCheckpointsTest, OnlyThoseThatHaveRoomComeBack) {
  options_.memory_bytes = 200 * kSlot;
  options_.checkpoint_share = 0.01;
  auto engine = Start(options_);
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_OK(engine->Restore(session));
  EXPECT_EQ(engine->Stats().checkpoints, windowed() ? 1 : 2);
  EXPECT_EQ(ForkAt(engine.get(), session, 325), 320);
  options_.checkpoint_share = 0;
  engine.reset();
  engine = Start(options_);
  const SessionId again = *engine->FindSession("", "s");
  EXPECT_EQ(ForkAt(engine.get(), again, 329), 329);
  EXPECT_EQ(ForkAt(engine.get(), again, 325), 0);
  EXPECT_EQ(engine->Stats().checkpoints, 0);
}

}  // namespace
}  // namespace weft
