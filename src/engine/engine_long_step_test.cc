// Long prompts pause, and small requests do not wait for them.
#include "compute/backend.h"
#include "engine/engine_test_util.h"

namespace weft {
namespace {

class EngineLongStepTest : public ::testing::Test {
 protected:
  // Prompts of hundreds of tokens pause about a hundred times.
  static EngineOptions Options() {
    EngineOptions options = SmallEngine();
    options.max_step_tokens = 16;
    return options;
  }
  void Start(const EngineOptions& options = Options()) {
    engine_ = StartEngine(options, TinyModel("llama", 1, &backend_));
  }
  // A prompt being computed slowly.
  std::shared_ptr<Turn> SubmitLong(SessionId session) {
    faults().part_delay_us = 10000;
    const int64_t parts = faults().parts;
    auto turn = SubmitTurn(engine_.get(), session, long_turn_);
    EXPECT_TRUE(Eventually([&] { return faults().parts > parts + 2; }));
    return turn;
  }
  testing::Faults& faults() { return backend_.faults(); }
  static std::vector<int32_t> SaidAlone(const TurnOptions& turn) {
    return RunAlone(TinyModel("llama"), Options(), std::span(&turn, 1))[0].tokens();
  }

  const TurnOptions long_turn_ = Greedy(RandomTokens(440, 1), 5);
  testing::FaultyBackend backend_;  // outlives the engine
  std::unique_ptr<Engine> engine_;
};

bool HasEvents(Turn* turn) {
  bool finished = false;
  return turn->TryNext(&finished).has_value();
}

TEST_F(EngineLongStepTest, AShortRequestIsAnsweredWhileALongPromptIsComputed) {
  Start();
  auto long_turn = SubmitLong(NewSession(engine_.get()));
  const TurnOptions question = Greedy(RandomTokens(4, 2), 8);
  const TurnOutcome answer = RunTurn(engine_.get(), NewSession(engine_.get()), question);
  EXPECT_FALSE(HasEvents(long_turn.get()));
  faults().part_delay_us = 0;
  EXPECT_EQ(answer.tokens(), SaidAlone(question));
  EXPECT_EQ(Collect(long_turn.get()).tokens(), SaidAlone(long_turn_));
  EXPECT_OK(engine_->CheckIntegrity());
}

TEST_F(EngineLongStepTest, WhoeverDecodesGoesOnBetweenTheParts) {
  Start();
  const TurnOptions talk = Greedy(RandomTokens(4, 2), 100);
  auto decoding = SubmitTurn(engine_.get(), NewSession(engine_.get()), talk);
  TurnOutcome said;
  ReadToFirstToken(decoding.get(), &said);
  faults().part_delay_us = 2000;
  const int64_t parts = faults().parts;
  auto long_turn = SubmitTurn(engine_.get(), NewSession(engine_.get()), long_turn_);
  EXPECT_TRUE(Eventually([&] { return faults().parts > parts + 2; }));
  const size_t before = said.tokens().size();
  while (!HasEvents(long_turn.get())) {
    auto event = decoding->Next();
    if (!event) break;
    testing::AddEvent(*std::move(event), &said);
  }
  EXPECT_GT(said.tokens().size(), before + 10);
  while (auto event = decoding->Next()) testing::AddEvent(*std::move(event), &said);
  EXPECT_EQ(said.tokens(), SaidAlone(talk));
}

// Computes until it has to pause, and never ends.
class EndlessWork : public SideWork {
 public:
  bool Advance(const Executor&, const std::function<bool()>& pause) override {
    while (!pause()) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return false;
  }
};

// A piece of other work is longer than what a paused step gets between two short ones.
TEST_F(EngineLongStepTest, OtherWorkBesideADecodingSessionDoesNotStopAPrompt) {
  EngineOptions options = Options();
  options.step_ms = 20;
  Start(options);
  engine_->RunBeside(std::make_shared<EndlessWork>());
  const TurnOptions talk = Greedy(RandomTokens(4, 2), 450);
  auto decoding = SubmitTurn(engine_.get(), NewSession(engine_.get()), talk);
  TurnOutcome said;
  ReadToFirstToken(decoding.get(), &said);
  faults().part_delay_us = 1000;
  auto long_turn = SubmitTurn(engine_.get(), NewSession(engine_.get()), long_turn_);
  const int64_t before = engine_->Stats().prompt_tokens;
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(decoding->Next().has_value());
  EXPECT_GE(engine_->Stats().prompt_tokens, before + 32);
  faults().part_delay_us = 0;
  decoding->Cancel();
  EXPECT_EQ(Collect(long_turn.get()).tokens(), SaidAlone(long_turn_));
  EXPECT_OK(engine_->CheckIntegrity());
}

TEST_F(EngineLongStepTest, ACancelledStepIsGivenUpBetweenTwoParts) {
  Start();
  const SessionId session = NewSession(engine_.get());
  const TurnOptions before = Greedy(RandomTokens(20, 3), 0);
  RunTurn(engine_.get(), session, before);
  auto long_turn = SubmitLong(session);
  long_turn->Cancel();
  const int64_t parts = faults().parts;
  EXPECT_EQ(Collect(long_turn.get()).done().reason, FinishReason::kCancelled);
  EXPECT_LE(faults().parts, parts + 2);
  EXPECT_EQ(TokensOf(engine_.get(), session), before.tokens);
  EXPECT_OK(engine_->CheckIntegrity());
  faults().part_delay_us = 0;
  const std::vector<TurnOptions> turns = {before, long_turn_};
  EXPECT_EQ(RunTurn(engine_.get(), session, turns[1]).tokens(),
            RunAlone(TinyModel("llama"), Options(), turns)[1].tokens());
}

TEST_F(EngineLongStepTest, ADeadlineEndsAPausedStep) {
  Start();
  faults().part_delay_us = 10000;
  TurnOptions late = long_turn_;
  late.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  const TurnOutcome outcome = RunTurn(engine_.get(), NewSession(engine_.get()), late);
  EXPECT_THAT(outcome.done().status, IsError(StatusCode::kDeadlineExceeded, "deadline"));
  EXPECT_OK(engine_->CheckIntegrity());
}

TEST_F(EngineLongStepTest, ASessionInAPausedStepCanBeForkedAndClosed) {
  Start();
  const SessionId session = NewSession(engine_.get(), "parent");
  const std::vector<int32_t> known = RandomTokens(40, 3);
  RunTurn(engine_.get(), session, Greedy(known, 0));
  auto long_turn = SubmitLong(session);
  const auto fork = engine_->Fork(session, 39, {.name = "child"});
  ASSERT_TRUE(fork.ok()) << fork.status();
  const TurnOptions question = Greedy(RandomTokens(6, 4), 8);
  const TurnOutcome answer = RunTurn(engine_.get(), *fork, question);
  EXPECT_FALSE(HasEvents(long_turn.get()));
  EXPECT_OK(engine_->Close(session, /*forget=*/true));
  EXPECT_EQ(Collect(long_turn.get()).done().reason, FinishReason::kCancelled);
  EXPECT_OK(engine_->CheckIntegrity());
  const std::vector<TurnOptions> turns = {
      Greedy(std::vector<int32_t>(known.begin(), known.begin() + 39), 0), question};
  EXPECT_EQ(answer.tokens(), RunAlone(TinyModel("llama"), Options(), turns)[1].tokens());
}

TEST_F(EngineLongStepTest, AFailureInALongStepPoisonsItsSessionAlone) {
  Start();
  const SessionId bad = NewSession(engine_.get());
  faults().fail_forward = faults().forwards + 1;
  auto long_turn = SubmitLong(bad);
  const TurnOptions question = Greedy(RandomTokens(4, 2), 8);
  const TurnOutcome answer = RunTurn(engine_.get(), NewSession(engine_.get()), question);
  EXPECT_EQ(Collect(long_turn.get()).done().reason, FinishReason::kError);
  EXPECT_EQ(StateOf(engine_.get(), bad), SessionState::kPoisoned);
  EXPECT_EQ(answer.tokens(), SaidAlone(question));
  EXPECT_OK(engine_->CheckIntegrity());
}

TEST_F(EngineLongStepTest, ShutdownDoesNotWaitForTheStep) {
  Start();
  auto long_turn = SubmitLong(NewSession(engine_.get()));
  EXPECT_OK(engine_->Shutdown(std::chrono::milliseconds(0)));
  EXPECT_EQ(Collect(long_turn.get()).done().reason, FinishReason::kError);
}

}  // namespace
}  // namespace weft
