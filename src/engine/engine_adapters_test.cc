// LoRA adapters in the engine: whose tokens they are computed with, and what of that is found
// again.
#include "engine/engine_test_util.h"
#include "tools/make_adapter.h"

namespace weft {
namespace {

using Scales = std::vector<AdapterScale>;

class EngineAdaptersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string base = testing::TinyModelFile("llama");
    for (const uint64_t seed : {1, 2}) {
      const std::string path = StrCat(folder_.path(), "/", seed, ".gguf");
      ASSERT_THAT(tools::MakeAdapter(base, {.rank = 4, .seed = seed}, path), IsOk());
      paths_.push_back(path);
    }
    model_ = Load({{"law", paths_[0]}, {"rhyme", paths_[1]}});
  }

  static std::shared_ptr<const Model> Load(std::vector<ModelOptions::AdapterFile> adapters) {
    ModelOptions options;
    options.n_threads = 1;
    options.adapters = std::move(adapters);
    auto model = Model::Load(testing::TinyModelFile("llama"), options);
    EXPECT_OK(model);
    return model.ok() ? *std::move(model) : nullptr;
  }
  EngineOptions FilesOptions() const {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path() + "/state";
    return options;
  }
  static TurnOptions With(Scales adapters, std::vector<int32_t> tokens, int64_t max_tokens = 12) {
    TurnOptions turn = Greedy(std::move(tokens), max_tokens);
    turn.top_logprobs = 2;
    turn.adapters = std::move(adapters);
    turn.adapters_are_default = false;
    return turn;
  }
  std::vector<TurnOutcome> Alone(std::span<const TurnOptions> turns) const {
    return RunAlone(model_, SmallEngine(), turns);
  }
  TurnOutcome Alone(const TurnOptions& turn) const { return Alone(std::span(&turn, 1))[0]; }
  static TurnOutcome Ask(Engine* engine, const TurnOptions& turn, std::string domain = "") {
    const auto running = engine->SubmitOnce(domain, turn);
    EXPECT_OK(running);
    return running.ok() ? Collect(running->get()) : TurnOutcome();
  }

  const TestFolder folder_;
  std::vector<std::string> paths_;
  std::shared_ptr<const Model> model_;
  const std::vector<Scales> mixes_ = {
      {}, {{"law", 1}}, {{"rhyme", 1}}, {{"law", 0.5f}}, {{"rhyme", 0.5f}, {"law", -0.5f}}};
};

TEST_F(EngineAdaptersTest, TurnsRunTogetherAsEachAlone) {
  EngineOptions options = SmallEngine();
  options.n_threads = 2;
  auto engine = StartEngine(options, model_);
  std::vector<TurnOptions> turns;
  std::vector<std::shared_ptr<Turn>> running;
  const std::vector<int32_t> prompt = RandomTokens(50, 1);
  for (const Scales& mix : mixes_) {
    for (const int64_t n : {50, 20}) {
      turns.push_back(With(mix, {prompt.begin(), prompt.begin() + n}));
    }
  }
  for (const TurnOptions& turn : turns) running.push_back(*engine->SubmitOnce("", turn));
  std::vector<TurnOutcome> outcomes;
  for (const auto& turn : running) outcomes.push_back(Collect(turn.get()));
  for (size_t i = 0; i < turns.size(); ++i) {
    ExpectSameAnswer(outcomes[i], Alone(turns[i]));
    for (size_t j = i % 2; j < i; j += 2) {
      EXPECT_NE(outcomes[i].choices[0].events[0].logprob, outcomes[j].choices[0].events[0].logprob)
          << "other adapters, other answers";
    }
  }
  // A scale of 0 is no adapter.
  ExpectSameAnswer(Ask(engine.get(), With({{"law", 0}}, prompt)), Alone(With({}, prompt)));
  // The base answers as if none were loaded.
  const TurnOptions plain = With({}, prompt);
  ExpectSameAnswer(Ask(engine.get(), plain),
                   RunAlone(TinyModel("llama"), SmallEngine(), std::span(&plain, 1))[0]);
}

TEST_F(EngineAdaptersTest, APrefixIsFoundWithEqualAdaptersOnly) {
  const std::vector<int32_t> prompt = RandomTokens(60, 3);
  for (const bool share : {false, true}) {
    EngineOptions options = SmallEngine();
    options.share_prefixes_across_domains = share;
    auto engine = StartEngine(options, model_);
    for (const Scales& mix : mixes_) {
      const TurnOptions turn = With(mix, prompt);
      EXPECT_EQ(Ask(engine.get(), turn, "a").started->cached_tokens, 0);
      EXPECT_EQ(Ask(engine.get(), turn, "a").started->cached_tokens, 59);
      EXPECT_EQ(Ask(engine.get(), turn, "b").started->cached_tokens, share ? 59 : 0);
    }
    // In another order it is the same.
    Scales turned = mixes_.back();
    std::ranges::reverse(turned);
    EXPECT_EQ(Ask(engine.get(), With(turned, prompt), "a").started->cached_tokens, 59);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_F(EngineAdaptersTest, ForksAndChoicesKeepThem) {
  auto engine = StartEngine(SmallEngine(), model_);
  const SessionId session = NewSession(engine.get(), "s");
  std::vector<TurnOptions> turns = {With(mixes_[4], RandomTokens(40, 4)),
                                    With(mixes_[4], RandomTokens(9, 5))};
  const std::vector<TurnOutcome> alone = Alone(turns);
  ExpectSameAnswer(RunTurn(engine.get(), session, turns[0]), alone[0]);
  const auto fork = engine->Fork(session, -1, {});
  ASSERT_THAT(fork, IsOk());
  turns[1].adapters.clear();
  turns[1].adapters_are_default = true;
  ExpectSameAnswer(RunTurn(engine.get(), *fork, turns[1]), alone[1]);
  TurnOptions several = With(mixes_[1], RandomTokens(30, 6));
  several.n_choices = 3;
  const TurnOutcome outcome = Ask(engine.get(), several);
  several.n_choices = 1;
  for (const ChoiceOutcome& choice : outcome.choices) {
    EXPECT_EQ(choice.tokens, Alone(several).tokens());
  }
}

TEST_F(EngineAdaptersTest, ASessionWithTokensTakesNoOthers) {
  auto engine = StartEngine(SmallEngine(), model_);
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, With(mixes_[1], RandomTokens(20, 7)));
  for (const Scales& other : {mixes_[0], mixes_[2], mixes_[3]}) {
    const auto refused = engine->Submit(session, With(other, RandomTokens(5, 8)));
    EXPECT_THAT(refused.status(), IsError(StatusCode::kFailedPrecondition, "law at 1"));
  }
  EXPECT_OK(engine->Reset(session));
  const TurnOptions turn = With(mixes_[2], RandomTokens(20, 7));
  ExpectSameAnswer(RunTurn(engine.get(), session, turn), Alone(turn));
}

TEST_F(EngineAdaptersTest, WhatIsNotThereIsRefusedByName) {
  auto engine = StartEngine(SmallEngine(), model_);
  const auto refusal = [&](Scales scales) {
    return engine->SubmitOnce("", With(std::move(scales), RandomTokens(5, 9))).status();
  };
  EXPECT_THAT(refusal({{"verse", 1}}), IsError(StatusCode::kNotFound, "there are"));
  EXPECT_THAT(refusal({{"law", 1}, {"law", 2}}), IsError(StatusCode::kInvalidArgument, "twice"));
  EXPECT_THAT(refusal({{"law", std::numeric_limits<float>::quiet_NaN()}}),
              IsError(StatusCode::kInvalidArgument, "finite"));
  ModelOptions options;
  options.adapters = {{"law", paths_[0]}, {"law", paths_[1]}};
  EXPECT_THAT(Model::Load(testing::TinyModelFile("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "two adapters"));
  options.adapters = {{"law", paths_[0]}};
  EXPECT_THAT(Model::Load(testing::TinyModelFile("gemma3"), options).status(),
              IsError(StatusCode::kInvalidArgument, "gemma3"));
  options.adapters = {{"law", testing::TinyModelFile("llama")}};
  EXPECT_THAT(Model::Load(testing::TinyModelFile("llama"), options).status(),
              IsError(StatusCode::kInvalidArgument, "general.type"));
  EXPECT_GT(model_->weight_bytes(), TinyModel("llama")->weight_bytes());
}

// A session's file says which they are; their names do not matter.
TEST_F(EngineAdaptersTest, ARestoredSessionGoesOnWithThemOrNotAtAll) {
  std::vector<TurnOptions> turns;
  for (uint64_t i = 0; i < 4; ++i) turns.push_back(With(mixes_[4], RandomTokens(30, 10 + i)));
  const std::vector<TurnOutcome> alone = Alone(turns);
  {
    auto engine = StartEngine(FilesOptions(), model_);
    const SessionId session = NewSession(engine.get(), "s");
    ExpectSameAnswer(RunTurn(engine.get(), session, turns[0]), alone[0]);
    EXPECT_OK(engine->Park(session));
    ExpectSameAnswer(RunTurn(engine.get(), session, turns[1]), alone[1]);
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
  }
  {
    auto engine = StartEngine(FilesOptions(), Load({{"rhyme", paths_[1]}}));
    const auto session = engine->FindSession("", "s");
    ASSERT_THAT(session, IsOk());
    EXPECT_THAT(engine->Restore(*session), IsError(StatusCode::kFailedPrecondition, "law"));
    const TurnOutcome refused = RunTurn(engine.get(), *session, Greedy(RandomTokens(5, 20), 3));
    EXPECT_THAT(refused.done().status, IsError(StatusCode::kFailedPrecondition, "--lora law=FILE"));
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
  }
  {
    auto engine = StartEngine(FilesOptions(), Load({{"poem", paths_[1]}, {"code", paths_[0]}}));
    const auto session = engine->FindSession("", "s");
    ASSERT_THAT(session, IsOk());
    // Asked for before the file is read, and others.
    TurnOptions others = turns[2];
    others.adapters = {{"poem", 1}};
    EXPECT_THAT(RunTurn(engine.get(), *session, others).done().status,
                IsError(StatusCode::kFailedPrecondition, "asks for poem at 1"));
    TurnOptions plain = turns[2];
    plain.adapters.clear();
    plain.adapters_are_default = true;
    const TurnOutcome said = RunTurn(engine.get(), *session, plain);
    ExpectSameAnswer(said, alone[2]);
    EXPECT_GT(said.started->cached_tokens, 60) << "its state is found, too";
    TurnOptions renamed = turns[3];
    renamed.adapters = {{"code", -0.5f}, {"poem", 0.5f}};
    ExpectSameAnswer(RunTurn(engine.get(), *session, renamed), alone[3]);
  }
}

// Prompts on disk, too, belong to their adapters.
TEST_F(EngineAdaptersTest, BlocksOnDiskAreFoundWithEqualAdaptersOnly) {
  const std::vector<int32_t> prompt = RandomTokens(200, 30);
  const auto run = [&](const Scales& mix) {
    auto engine = StartEngine(FilesOptions(), model_);
    const SessionId session = NewSession(engine.get(), StrCat("named"));
    const TurnOutcome outcome = RunTurn(engine.get(), session, With(mix, prompt, 2));
    EXPECT_OK(engine->Park(session));
    EXPECT_TRUE(Eventually([&] { return engine->Stats().disk_pending == 0; }));
    EXPECT_OK(engine->Close(session, /*forget=*/true));
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(0)));
    return outcome.started->cached_tokens;
  };
  EXPECT_EQ(run(mixes_[1]), 0);
  EXPECT_EQ(run(mixes_[3]), 0);
  EXPECT_GT(run(mixes_[1]), 150);
  EXPECT_EQ(run(mixes_[0]), 0);
}

}  // namespace
}  // namespace weft
