// A prediction head changes nothing but when tokens are computed.
#include "engine/engine_test_util.h"

namespace weft {
namespace {

std::shared_ptr<const Model> HeadOf(const std::shared_ptr<const Model>& model) {
  auto head = Model::LoadHead(*model, {.n_threads = 1});
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

EngineOptions Foretold(const std::shared_ptr<const Model>& model) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  options.max_guesses = 4;
  options.draft_model = HeadOf(model);
  options.draft_at_any_cost = true;
  return options;
}

EngineOptions Untold() {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kOff;
  return options;
}

TurnOptions ForetoldTurn(float temperature, int64_t n_prompt, int64_t max_tokens,
                         uint64_t seed = 1) {
  TurnOptions turn = Greedy(RandomTokens(n_prompt, seed), max_tokens);
  turn.sampling.temperature = temperature;
  turn.sampling.seed = 17;
  return turn;
}

// Heads that are hardly ever right, and ones that always are where no chance is in play.
class EngineHeadTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
  static bool foresees() { return std::string_view(GetParam()).starts_with("foreseeing-"); }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineHeadTest,
                         ::testing::Values("qwen35-mtp", "glm4moe-mtp", "recurrent-glm4moe-mtp",
                                           "foreseeing-qwen35-mtp", "foreseeing-glm4moe-mtp",
                                           "recurrent-foreseeing-glm4moe-mtp"),
                         kNameOfModel);

TEST_P(EngineHeadTest, WhateverItGuessesNothingChanges) {
  for (const float temperature : {0.0f, 1.0f, 1.5f}) {
    TurnOptions turn = ForetoldTurn(temperature, 40, 50);
    turn.top_logprobs = 1;
    turn.sampling.repetition_penalty = 1.1f;
    turn.n_choices = 2;
    const TurnOutcome said = RunAlone(model(), Untold(), std::span(&turn, 1))[0];
    auto engine = StartEngine(Foretold(model()), model());
    ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
    const EngineStats stats = engine->Stats();
    EXPECT_GT(stats.guessed_tokens, 0);
    EXPECT_GT(stats.draft_steps, 0);
    EXPECT_GT(stats.draft_state_bytes, 0);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

// Prompts in one step and in many, longer than what is kept for a head that waits.
TEST_P(EngineHeadTest, PromptsOfAnyLengthAreFollowed) {
  for (const int64_t n_prompt : {1, 2, 33, 450}) {
    for (const int64_t step_tokens : {16, 1024}) {
      EngineOptions options = Foretold(model()), plain = Untold();
      options.max_step_tokens = plain.max_step_tokens = step_tokens;
      options.memory_bytes = plain.memory_bytes = int64_t{64} << 20;
      const TurnOptions turn = ForetoldTurn(0, n_prompt, 20);
      const TurnOutcome said = RunAlone(model(), plain, std::span(&turn, 1))[0];
      auto engine = StartEngine(options, model());
      const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
      ExpectSameAnswer(outcome, said);
      EXPECT_GT(outcome.done().usage.guessed_tokens, 0) << n_prompt;
      if (foresees()) {
        EXPECT_EQ(outcome.done().usage.accepted_guesses, outcome.done().usage.guessed_tokens);
      }
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

TEST_P(EngineHeadTest, ForksUndoneTurnsAndFilesAreFollowed) {
  TestFolder folder;
  EngineOptions options = Foretold(model());
  options.state_dir = folder.path();
  auto engine = StartEngine(options, model());
  auto plain = StartEngine(Untold(), model());
  const SessionId a = NewSession(engine.get(), "kept"), b = NewSession(plain.get());
  const TurnOptions first = ForetoldTurn(0, 60, 40);
  ExpectSameAnswer(RunTurn(engine.get(), a, first), RunTurn(plain.get(), b, first));
  for (const int64_t position : {97, 70, 33}) {
    const auto fork = engine->Fork(a, position, {});
    const auto plain_fork = plain->Fork(b, position, {});
    ASSERT_TRUE(fork.ok() && plain_fork.ok());
    const TurnOptions next = ForetoldTurn(1, 3, 20);
    ExpectSameAnswer(RunTurn(engine.get(), *fork, next), RunTurn(plain.get(), *plain_fork, next));
  }
  EXPECT_OK(engine->Truncate(a, 50));
  EXPECT_OK(plain->Truncate(b, 50));
  const TurnOptions after = ForetoldTurn(0, 5, 30);
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_OK(engine->Park(a));
  EXPECT_OK(engine->DropPrefixes());
  const int64_t before = engine->Stats().guessed_tokens;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().guessed_tokens, before) << "though nothing is known of what was parked";
  EXPECT_OK(engine->CheckIntegrity());
}

// What another conversation computed is taken over by model and head alike.
TEST_P(EngineHeadTest, PrefixesAreFoundByBoth) {
  auto engine = StartEngine(Foretold(model()), model());
  TurnOptions turn = ForetoldTurn(0, 100, 30);
  const TurnOutcome said = RunAlone(model(), Untold(), std::span(&turn, 1))[0];
  ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
  const int64_t alone = engine->Stats().draft_steps;
  const TurnOutcome again = RunTurn(engine.get(), NewSession(engine.get()), turn);
  ExpectSameAnswer(again, said);
  EXPECT_GT(again.done().usage.cached_tokens, 0);
  EXPECT_GT(again.done().usage.guessed_tokens, 0);
  EXPECT_GT(engine->Stats().draft_steps, alone);
  if (foresees()) {
    EXPECT_EQ(engine->Stats().accepted_guesses, engine->Stats().guessed_tokens);
  }
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineHeadTest, ManyAtOnceInOneBudget) {
  EngineOptions options = Foretold(model());
  options.memory_bytes = int64_t{2} << 20;
  auto engine = StartEngine(options, model());
  std::vector<TurnOutcome> said;
  std::vector<std::shared_ptr<Turn>> turns;
  for (uint64_t i = 0; i < 6; ++i) {
    const TurnOptions turn = ForetoldTurn(i % 2 == 0 ? 0.0f : 1.0f, 40 + 20 * int64_t(i), 30, i);
    said.push_back(RunAlone(model(), Untold(), std::span(&turn, 1))[0]);
    turns.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), turn));
  }
  for (size_t i = 0; i < turns.size(); ++i) ExpectSameAnswer(Collect(turns[i].get()), said[i]);
  const EngineStats stats = engine->Stats();
  EXPECT_LE(testing::StateBytes(stats) + stats.draft_state_bytes, options.memory_bytes);
  EXPECT_GT(stats.guessed_tokens, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineHeadOptionsTest, AHeadMustBeTheModels) {
  EXPECT_THAT(Model::LoadHead(*TinyModel("llama"), {}).status(),
              IsError(StatusCode::kNotFound, "has no prediction head"));
  EngineOptions options = Foretold(TinyModel("glm4moe-mtp"));
  EXPECT_THAT(Engine::Start(TinyModel("qwen35-mtp"), options).status(),
              IsError(StatusCode::kInvalidArgument, "of another model"));
}

TEST(EngineHeadOptionsTest, WithoutForceThePlannerDecides) {
  const auto model = TinyModel("foreseeing-qwen35-mtp");
  for (const Speculation speculation : {Speculation::kDraft, Speculation::kAuto}) {
    EngineOptions options = Foretold(model);
    options.draft_at_any_cost = false;
    options.speculation = speculation;
    auto engine = StartEngine(options, model);
    std::vector<TurnOutcome> said;
    std::vector<std::shared_ptr<Turn>> turns;
    for (uint64_t i = 0; i < 5; ++i) {
      const TurnOptions turn = ForetoldTurn(i % 2 == 0 ? 0.0f : 0.7f, 20, 150, i);
      said.push_back(RunAlone(model, Untold(), std::span(&turn, 1))[0]);
      turns.push_back(SubmitTurn(engine.get(), NewSession(engine.get()), turn));
    }
    for (size_t i = 0; i < turns.size(); ++i) ExpectSameAnswer(Collect(turns[i].get()), said[i]);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

}  // namespace
}  // namespace weft
