// Drafts, from a model or an MTP head, change only when tokens are computed.
#include <string_view>

#include "engine/engine_test_util.h"

namespace weft {
namespace {

EngineOptions Drafted(std::shared_ptr<const Model> draft) {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kDraft;
  options.max_guesses = 5;
  options.draft_model = std::move(draft);
  options.draft_at_any_cost = true;
  return options;
}

EngineOptions Undrafted() {
  EngineOptions options = SmallEngine();
  options.speculation = Speculation::kOff;
  return options;
}

std::shared_ptr<const Model> HeadOf(const Model& model) {
  auto head = Model::LoadHead(model, {.n_threads = 1});
  EXPECT_TRUE(head.ok()) << head.status();
  return *head;
}

TurnOptions DraftedTurn(float temperature, int64_t n_prompt, int64_t max_tokens,
                        uint64_t seed = 1) {
  TurnOptions turn = Greedy(RandomTokens(n_prompt, seed), max_tokens);
  turn.sampling.temperature = temperature;
  turn.sampling.seed = 17;
  return turn;
}

// Several turns at once on the engine, each with the same answer as alone without drafts.
void ExpectSameAnswersTogether(Engine* engine, const std::shared_ptr<const Model>& model,
                               std::span<const TurnOptions> turns) {
  std::vector<std::shared_ptr<Turn>> submitted;
  submitted.reserve(turns.size());
  for (const TurnOptions& turn : turns) {
    submitted.push_back(SubmitTurn(engine, NewSession(engine), turn));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    ExpectSameAnswer(Collect(submitted[i].get()),
                     RunAlone(model, Undrafted(), turns.subspan(i, 1))[0]);
  }
}

// A model with a prediction head drafts with that, any other one for itself.
class EngineDraftTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }
  static bool has_head() { return std::string_view(GetParam()).ends_with("-mtp"); }
  static std::shared_ptr<const Model> draft() { return has_head() ? HeadOf(*model()) : model(); }
  // Whether drafts are always right where no chance is in play; the other heads hardly ever are.
  static bool foresees() {
    return !has_head() || std::string_view(GetParam()).starts_with("foreseeing-");
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EngineDraftTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama", "recurrent-gemma3",
                                           "qwen35-mtp", "glm4moe-mtp", "recurrent-glm4moe-mtp",
                                           "foreseeing-qwen35-mtp", "foreseeing-glm4moe-mtp",
                                           "recurrent-foreseeing-glm4moe-mtp"),
                         kNameOfModel);

TEST_P(EngineDraftTest, WhateverIsDraftedNothingChanges) {
  std::vector<std::shared_ptr<const Model>> drafts = {draft()};
  if (!has_head()) {
    // Ones that are hardly ever right, with and without state that cannot be cut.
    drafts.push_back(TinyModel("llama", 5));
    drafts.push_back(TinyModel("recurrent-llama", 5));
  }
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    TurnOptions turn = DraftedTurn(temperature, 40, 50);
    turn.top_logprobs = 1;
    turn.sampling.repetition_penalty = 1.1f;
    turn.n_choices = 2;
    const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
    for (const auto& draft : drafts) {
      auto engine = StartEngine(Drafted(draft), model());
      ExpectSameAnswer(RunTurn(engine.get(), NewSession(engine.get()), turn), said);
      const EngineStats stats = engine->Stats();
      EXPECT_GT(stats.guessed_tokens, 0);
      EXPECT_GT(stats.draft_steps, 0);
      EXPECT_GT(stats.draft_weight_bytes, 0);
      EXPECT_GT(stats.draft_state_bytes, 0);
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

// Prompts in one step and in many, longer than the hidden values kept for a waiting MTP head.
TEST_P(EngineDraftTest, PromptsOfAnyLengthAreFollowed) {
  for (const int64_t n_prompt : {1, 2, 33, 450}) {
    for (const int64_t step_tokens : {16, 1024}) {
      EngineOptions options = Drafted(draft()), plain = Undrafted();
      options.max_step_tokens = plain.max_step_tokens = step_tokens;
      options.memory_bytes = plain.memory_bytes = int64_t{64} << 20;
      const TurnOptions turn = DraftedTurn(0, n_prompt, 20);
      const TurnOutcome said = RunAlone(model(), plain, std::span(&turn, 1))[0];
      auto engine = StartEngine(options, model());
      const int64_t before = engine->Stats().steps;
      const TurnOutcome outcome = RunTurn(engine.get(), NewSession(engine.get()), turn);
      ExpectSameAnswer(outcome, said);
      const TurnUsage& usage = outcome.done().usage;
      EXPECT_GT(usage.guessed_tokens, 0) << n_prompt;
      EXPECT_EQ(usage.guessed_tokens, engine->Stats().guessed_tokens);
      if (foresees()) {
        EXPECT_EQ(usage.accepted_guesses, usage.guessed_tokens);
        EXPECT_LT(engine->Stats().steps - before, 10 + n_prompt / step_tokens);
      }
      EXPECT_OK(engine->CheckIntegrity());
    }
  }
}

TEST_P(EngineDraftTest, ForksUndoneTurnsAndFilesAreFollowed) {
  TestFolder folder;
  EngineOptions options = Drafted(draft());
  options.state_dir = folder.path();
  auto engine = StartEngine(options, model());
  auto plain = StartEngine(Undrafted(), model());
  const SessionId a = NewSession(engine.get(), "kept"), b = NewSession(plain.get());
  const TurnOptions first = DraftedTurn(0, 60, 40);
  ExpectSameAnswer(RunTurn(engine.get(), a, first), RunTurn(plain.get(), b, first));
  for (const int64_t position : {97, 70, 33}) {
    const auto fork = engine->Fork(a, position, {});
    const auto plain_fork = plain->Fork(b, position, {});
    ASSERT_TRUE(fork.ok() && plain_fork.ok());
    const TurnOptions next = DraftedTurn(position == 70 ? 1 : 0, 3, 20);
    ExpectSameAnswer(RunTurn(engine.get(), *fork, next), RunTurn(plain.get(), *plain_fork, next));
  }
  EXPECT_OK(engine->Truncate(a, 50));
  EXPECT_OK(plain->Truncate(b, 50));
  const TurnOptions after = DraftedTurn(0.8f, 5, 30);
  int64_t before = engine->Stats().guessed_tokens;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().guessed_tokens, before);
  EXPECT_OK(engine->Park(a));
  EXPECT_OK(engine->DropPrefixes());
  before = engine->Stats().guessed_tokens;
  ExpectSameAnswer(RunTurn(engine.get(), a, after), RunTurn(plain.get(), b, after));
  EXPECT_GT(engine->Stats().guessed_tokens, before) << "though nothing is known of what was parked";
  if (foresees()) {
    EXPECT_GT(engine->Stats().accepted_guesses, 0);
  }
  EXPECT_OK(engine->CheckIntegrity());
}

// What another conversation computed is taken over by the model and its draft alike.
TEST_P(EngineDraftTest, PrefixesAreFoundByBoth) {
  auto engine = StartEngine(Drafted(draft()), model());
  const TurnOptions turn = DraftedTurn(0, 100, 30);
  const TurnOutcome said = RunAlone(model(), Undrafted(), std::span(&turn, 1))[0];
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

TEST_P(EngineDraftTest, ManyAtOnceInOneBudget) {
  EngineOptions options = Drafted(draft());
  options.memory_bytes = int64_t{2} << 20;
  auto engine = StartEngine(options, model());
  std::vector<TurnOptions> turns;
  for (uint64_t i = 0; i < 6; ++i) {
    turns.push_back(DraftedTurn(i % 2 == 0 ? 0.0f : 1.0f, 40 + 20 * int64_t(i), 30, i));
  }
  ExpectSameAnswersTogether(engine.get(), model(), turns);
  const EngineStats stats = engine->Stats();
  EXPECT_LE(testing::StateBytes(stats) + stats.draft_state_bytes, options.memory_bytes);
  EXPECT_GT(stats.guessed_tokens, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDraftTest, WithoutForceThePlannerDecides) {
  for (const Speculation speculation : {Speculation::kDraft, Speculation::kAuto}) {
    EngineOptions options = Drafted(draft());
    options.draft_at_any_cost = false;
    options.speculation = speculation;
    auto engine = StartEngine(options, model());
    std::vector<TurnOptions> turns;
    for (uint64_t i = 0; i < 5; ++i) {
      turns.push_back(DraftedTurn(i % 2 == 0 ? 0.0f : 0.7f, 20, 150, i));
    }
    ExpectSameAnswersTogether(engine.get(), model(), turns);
    EXPECT_OK(engine->CheckIntegrity());
  }
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

// The settled option tells the engine and every reader the same.
TEST(EngineDraftOptionsTest, WhatIsGuessedIsSettledAtTheStart) {
  class Loose : public testing::WrappedBackend {
   public:
    Loose() : capabilities_(WrappedBackend::capabilities()) { capabilities_.same_bits = false; }
    const BackendCapabilities& capabilities() const override { return capabilities_; }

   private:
    BackendCapabilities capabilities_;
  } loose;
  const auto model = TinyModel("llama", 1, &loose);
  EngineOptions options = Drafted(TinyModel("llama"));
  for (const Speculation speculation : {Speculation::kDraft, Speculation::kLookup}) {
    options.speculation = speculation;
    const auto engine = StartEngine(options, model);
    EXPECT_EQ(engine->options().speculation, Speculation::kOff);
    EXPECT_EQ(engine->options().draft_model, nullptr);
    const TurnOptions turn = DraftedTurn(0, 20, 20);
    EXPECT_EQ(RunTurn(engine.get(), NewSession(engine.get()), turn).done().usage.guessed_tokens, 0);
    EXPECT_EQ(engine->Stats().draft_weight_bytes, 0);
  }
  options.speculation = Speculation::kDraft;
  EXPECT_EQ(StartEngine(options)->options().speculation, Speculation::kDraft);
  options.max_guesses = 0;
  EXPECT_EQ(StartEngine(options)->options().speculation, Speculation::kOff);
  // What does not fit is refused though it would not be used.
  options.draft_model = TinyModel("tiny-bert");
  EXPECT_THAT(Engine::Start(model, options).status(),
              IsError(StatusCode::kInvalidArgument, "writes no text"));
  options.draft_model = nullptr;
  EXPECT_THAT(Engine::Start(model, options).status(),
              IsError(StatusCode::kInvalidArgument, "no draft model"));
}

TEST(EngineDraftOptionsTest, AHeadMustBeTheModels) {
  EXPECT_THAT(Model::LoadHead(*TinyModel("llama"), {}).status(),
              IsError(StatusCode::kNotFound, "has no prediction head"));
  const EngineOptions options = Drafted(HeadOf(*TinyModel("glm4moe-mtp")));
  EXPECT_THAT(Engine::Start(TinyModel("qwen35-mtp"), options).status(),
              IsError(StatusCode::kInvalidArgument, "of another model"));
}

}  // namespace
}  // namespace weft
