// A draft model changes nothing but when tokens are computed.

#include "engine/engine_test_util.h"

namespace weft {
namespace {

EngineOptions Drafted(std::shared_ptr<const Model> draft) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  options.max_guesses = 6;
  options.draft_model = std::move(draft);
  options.draft_at_any_cost = true;
  return options;
}

EngineOptions Undrafted() {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kOff;
  return options;
}

TurnOptions DraftedTurn(float temperature, int64_t n_prompt, int64_t max_tokens) {
  TurnOptions turn = Greedy(RandomTokens(n_prompt, 1), max_tokens);
  turn.sampling.temperature = temperature;
  turn.sampling.seed = 17;
  return turn;
}

class EngineDraftTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineDraftTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

TEST_P(EngineDraftTest, AModelThatDraftsForItselfIsAlwaysRight) {
  const TurnOptions turn = DraftedTurn(0, 40, 60);
  const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
  auto engine = StartEngine(Drafted(model()), model());
  const int64_t before = engine->Stats().steps;
  const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
  ExpectSameAnswer(outcome, said);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.accepted_guesses, stats.guessed_tokens);
  EXPECT_EQ(outcome.done().usage.guessed_tokens, stats.guessed_tokens);
  EXPECT_LT(stats.steps - before, 30);
  EXPECT_GT(stats.draft_steps, 0);
  EXPECT_GT(stats.draft_weight_bytes, 0);
  EXPECT_GT(stats.draft_state_bytes, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDraftTest, WhateverIsDraftedNothingChanges) {
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    TurnOptions turn = DraftedTurn(temperature, 40, 50);
    turn.top_logprobs = 1;
    turn.sampling.repetition_penalty = 1.1f;
    turn.n_choices = 2;
    const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
    // Itself, and one that is hardly ever right, with and without state that cannot be cut.
    for (const auto& draft : {model(), TinyModel("llama", 5), TinyModel("recurrent-llama", 5)}) {
      auto engine = StartEngine(Drafted(draft), model());
      ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
      EXPECT_GT(engine->Stats().guessed_tokens, 0);
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

TEST_P(EngineDraftTest, ForksAndShorterHistoriesAreFollowed) {
  auto engine = StartEngine(Drafted(model()), model());
  auto plain = StartEngine(Undrafted(), model());
  const SessionId a = NewSession(engine.get()), b = NewSession(plain.get());
  const TurnOptions first = DraftedTurn(0, 60, 40);
  ExpectSameAnswer(RunTurn(engine.get(), a, first), RunTurn(plain.get(), b, first));
  for (const int64_t position : {97, 70, 33}) {
    const auto fork = engine->Fork(a, position, {});
    const auto plain_fork = plain->Fork(b, position, {});
    ASSERT_TRUE(fork.ok() && plain_fork.ok());
    const TurnOptions next = DraftedTurn(0, 3, 20);
    ExpectSameAnswer(RunTurn(engine.get(), *fork, next), RunTurn(plain.get(), *plain_fork, next));
  }
  EXPECT_OK(engine->Truncate(a, 50));
  EXPECT_OK(plain->Truncate(b, 50));
  const TurnOptions after = DraftedTurn(0.8f, 5, 30);
  const int64_t before = engine->Stats().draft_steps;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().draft_steps, before);
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.accepted_guesses, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDraftTest, OneBudgetHoldsForBoth) {
  EngineOptions options = Drafted(model());
  options.memory_bytes = int64_t{2} << 20;
  auto engine = StartEngine(options, model());
  std::vector<std::shared_ptr<Turn>> turns;
  const TurnOptions turn = DraftedTurn(0, 100, 40);
  const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
  turns.reserve(4);
  for (int i = 0; i < 4; ++i) {
    turns.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), turn));
  }
  for (const auto& each : turns) ExpectSameAnswer(Collect(each.get()), said);
  const EngineStats stats = engine->Stats();
  EXPECT_LE(testing::StateBytes(stats) + stats.draft_state_bytes, options.memory_bytes);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineDraftFaultsTest, WhenTheDraftFailsTheAnswersGoOn) {
  testing::FaultyBackend backend;
  const auto draft = TinyModel("llama", 1, &backend);
  const TurnOptions turn = DraftedTurn(0, 20, 250);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Undrafted(), std::span(&turn, 1))[0];
  for (const int64_t after : {0, 1, 5}) {
    EngineOptions options = Drafted(draft);
    auto engine = StartEngine(options);
    backend.faults().fail_forward = backend.faults().forwards + 1 + after;
    const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
    ExpectSameAnswer(outcome, said);
    EXPECT_GT(outcome.done().usage.accepted_guesses, 0) << "it came back";
    EXPECT_OK(engine->CheckIntegrity());
  }
  backend.faults().fail_grow = true;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), Drafted(draft)).status(),
              IsError(StatusCode::kResourceExhausted, "draft model"));
}

TEST(EngineDraftOptionsTest, ADraftModelMustFit) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "no draft model"));
  options.draft_model = TinyModel("tiny-bert");
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "writes no text"));
  options.draft_model = TinyModel("llama", 2);
  options.memory_bytes = 1000;
  EXPECT_THAT(Engine::Start(TinyModel("llama"), options).status(),
              IsError(StatusCode::kResourceExhausted, "memory budget"));
}

TEST(EngineDraftOptionsTest, WithoutForceThePlannerDecides) {
  EngineOptions options = Drafted(TinyModel("llama"));
  options.draft_at_any_cost = false;
  options.speculation = Speculation::kAuto;
  const TurnOptions turn = DraftedTurn(0.7f, 20, 200);
  const TurnOutcome said = RunAlone(TinyModel("llama"), Undrafted(), std::span(&turn, 1))[0];
  auto engine = StartEngine(options);
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
  EXPECT_OK(engine->CheckIntegrity());
}

}  // namespace
}  // namespace weft
