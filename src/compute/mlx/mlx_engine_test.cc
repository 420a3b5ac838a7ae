// Sessions on the mlx backend: their memory by MLX's own count, and that no session sees another's
// state, whatever ends at the same time. Random programs are in tests/property.
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "compute/mlx/mlx_include.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/engine_harness.h"
#include "tests/support/model_runner.h"

namespace weft::mlx {
namespace {

using testing::Greedy;
using testing::RandomTokens;
using testing::RunTurn;
using testing::TurnOutcome;

constexpr int64_t kPageTokens = 32;
constexpr double kTolerance = 2e-3;

std::shared_ptr<const Model> OnMlx(const std::string& path) {
  ModelOptions options;
  options.backend_object = *FindBackend("mlx");
  options.context_tokens = testing::kTinyContext;
  auto model = Model::Load(path, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : nullptr;
}

std::shared_ptr<const Model> TinyLlama() { return OnMlx(testing::TinyModelFile("llama")); }

EngineOptions Options() {
  EngineOptions options;
  options.n_threads = 1;
  options.kv_type = KvType::kF32;
  options.page_tokens = kPageTokens;
  options.memory_bytes = int64_t{16} << 20;
  return options;
}

std::unique_ptr<Engine> StartEngine(std::shared_ptr<const Model> model,
                                    const EngineOptions& options) {
  auto engine = Engine::Start(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

TurnOptions Turn(std::vector<TokenId> tokens, int64_t max_tokens) {
  TurnOptions turn = Greedy(std::move(tokens), max_tokens);
  turn.top_logprobs = 0;
  return turn;
}

int64_t ReportedBytes() { return static_cast<int64_t>(mx::get_active_memory()); }

// MLX's overhead per array, in addition to its contents.
constexpr int64_t kArrayOverheadBytes = 64;

// --- memory ----------------------------------------------------------------------------

TEST(MlxMemoryTest, WeightsTakeWhatTheySay) {
  const int64_t before = ReportedBytes();
  const auto model = testing::LoadModel("mlx", testing::TinyModelFile("llama"), 64);
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t bytes = model->weights->memory_bytes();
  EXPECT_GE(ReportedBytes() - before, bytes);
  EXPECT_LE(ReportedBytes() - before, bytes + bytes / 100);
}

// N sessions take exactly N times the state of one, and steps leak nothing.
TEST(MlxMemoryTest, SessionsHaveOneCopyOfTheirState) {
  constexpr int64_t kTokens = 3 * kPageTokens;
  const auto model = testing::LoadModel("mlx", testing::TinyModelFile("llama"), 256);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto taken_by = [&](int64_t n_sessions, int64_t* of_one) {
    const int64_t before = ReportedBytes();
    testing::RunnerOptions options;
    options.state.page_tokens = kPageTokens;
    options.pool_pages = n_sessions * kTokens / kPageTokens;
    const auto runner = testing::ModelRunner::New(*model, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    *of_one = (*runner)->state().layout().page_bytes[0] * kTokens / kPageTokens;
    // One session's prompt in one step, then all sessions in the same steps.
    std::vector<testing::ModelRunner::Part> parts;
    std::vector<std::vector<TokenId>> tokens;
    for (int64_t i = 0; i < n_sessions; ++i) tokens.push_back(RandomTokens(kTokens, 7));
    for (int64_t i = 0; i < n_sessions; ++i) {
      const int sequence = (*runner)->Add();
      const std::span<const TokenId> all = tokens[static_cast<size_t>(i)];
      EXPECT_TRUE((*runner)->Feed(sequence, all.first(kTokens - 1)).ok());
      parts.push_back({sequence, all.last(1)});
    }
    EXPECT_TRUE((*runner)->Step(parts).ok());
    EXPECT_EQ((*runner)->state().held_bytes(), n_sessions * *of_one);
    return ReportedBytes() - before;
  };
  int64_t of_one = 0;
  const int64_t one = taken_by(1, &of_one), eight = taken_by(8, &of_one);
  const int64_t n_layers = std::ssize(model->weights->spec().kv_layers);
  EXPECT_GE(one, of_one);
  EXPECT_LE(one, of_one + 2 * n_layers * kArrayOverheadBytes);
  EXPECT_EQ(eight - one, 7 * of_one);
}

// The engine's memory figures match MLX's, and forks copy nothing.
TEST(MlxMemoryTest, TheEnginesFiguresAreMlxs) {
  const auto model = TinyLlama();
  ASSERT_NE(model, nullptr);
  const int64_t before = ReportedBytes();
  const auto engine = StartEngine(model, Options());
  ASSERT_NE(engine, nullptr);
  std::vector<SessionId> sessions;
  for (uint64_t i = 0; i < 4; ++i) {
    sessions.push_back(*engine->CreateSession({}));
    ASSERT_TRUE(RunTurn(engine.get(), sessions.back(), Turn(RandomTokens(90, i), 4)).started);
  }
  ASSERT_TRUE(engine->CheckIntegrity().ok());  // between steps, no step's arrays are left
  const EngineStats stats = engine->Stats();
  const int64_t held = ReportedBytes() - before;
  // Pools grow by a quarter more than requested.
  EXPECT_GE(held, testing::StateBytes(stats));
  const int64_t page_bytes = testing::PageBytes(*model, Options());
  EXPECT_LE(held, testing::StateBytes(stats) * 5 / 4 + 4 * page_bytes);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(engine->Fork(sessions[0], -1, {}).ok());
  EXPECT_EQ(ReportedBytes() - before, held);
}

// --- sessions --------------------------------------------------------------------------

void ExpectSame(const TurnOutcome& got, const TurnOutcome& wanted) {
  ASSERT_EQ(got.done().status.ToString(), wanted.done().status.ToString());
  ASSERT_FALSE(got.choices[0].events.empty());
  // Compare only the first token: a near tie may change everything after it.
  EXPECT_NEAR(got.choices[0].events[0].logprob, wanted.choices[0].events[0].logprob, kTolerance);
}

TEST(MlxEngineTest, TwoSessionsTakeTurns) {
  const auto model = TinyLlama();
  ASSERT_NE(model, nullptr);
  std::vector<TurnOptions> turns[2];
  for (uint64_t i = 0; i < 10; ++i) turns[i % 2].push_back(Turn(RandomTokens(11 + i, i), 1));
  const auto engine = StartEngine(model, Options());
  ASSERT_NE(engine, nullptr);
  const SessionId sessions[] = {*engine->CreateSession({}), *engine->CreateSession({})};
  std::vector<TurnOutcome> together[2];
  for (size_t round = 0; round < turns[0].size(); ++round) {
    for (size_t s = 0; s < 2; ++s) {
      together[s].push_back(RunTurn(engine.get(), sessions[s], turns[s][round]));
    }
  }
  for (size_t s = 0; s < 2; ++s) {
    const auto alone = testing::RunAlone(model, Options(), turns[s]);
    for (size_t i = 0; i < alone.size(); ++i) ExpectSame(together[s][i], alone[i]);
  }
}

// A handle belongs to one engine; a file to one backend and one form of state.
TEST(MlxEngineTest, ForeignStateIsRefused) {
  const auto model = TinyLlama();
  ASSERT_NE(model, nullptr);
  const std::string dir = (std::filesystem::temp_directory_path() / "weft-mlx-XXXXXX").string();
  std::string state_dir = dir;
  ASSERT_NE(mkdtemp(state_dir.data()), nullptr);
  EngineOptions options = Options();
  options.state_dir = state_dir;
  const auto tokens = RandomTokens(80, 3);
  SessionId foreign;
  {
    const auto engine = StartEngine(testing::TinyModel("llama"), options);
    foreign = *engine->CreateSession({.name = "kept"});
    ASSERT_TRUE(RunTurn(engine.get(), foreign, Turn(tokens, 0)).started);
    ASSERT_TRUE(engine->Park(foreign).ok());
    ASSERT_TRUE(engine->Shutdown(std::chrono::milliseconds(0)).ok());
  }
  {
    const auto engine = StartEngine(model, options);
    EXPECT_FALSE(engine->Inspect(foreign).ok());
    EXPECT_FALSE(engine->Submit(foreign, Turn({5}, 1)).ok());
    // The tokens match the model, but the pages are another backend's, so the state is computed
    // again.
    const SessionId found = *engine->FindSession("", "kept");
    const TurnOutcome outcome = RunTurn(engine.get(), found, Turn({9, 8}, 1));
    ASSERT_TRUE(outcome.started) << outcome.done().status;
    EXPECT_EQ(outcome.started->cached_tokens, 0);
    std::vector<TokenId> whole = tokens;
    whole.insert(whole.end(), {9, 8});
    const TurnOptions alone[] = {Turn(whole, 1)};
    ExpectSame(outcome, testing::RunAlone(model, Options(), alone)[0]);
  }
  std::filesystem::remove_all(state_dir);
}

TEST(MlxEngineTest, LongerThanTheContextIsAnError) {
  const auto model = TinyLlama();
  ASSERT_NE(model, nullptr);
  const auto engine = StartEngine(model, Options());
  const SessionId session = *engine->CreateSession({});
  const auto turn =
      RunTurn(engine.get(), session, Turn(RandomTokens(testing::kTinyContext + 1, 1), 1));
  EXPECT_FALSE(turn.done().status.ok());
  EXPECT_TRUE(RunTurn(engine.get(), session, Turn(RandomTokens(20, 2), 1)).done().status.ok());
}

TEST(MlxEngineTest, DestroyedWhileItComputes) {
  const auto model = TinyLlama();
  ASSERT_NE(model, nullptr);
  const auto kept_turn = Turn(RandomTokens(60, 5), 20);
  const TurnOptions alone[] = {kept_turn};
  const auto wanted = testing::RunAlone(model, Options(), alone);
  auto engine = StartEngine(model, Options());
  const SessionId doomed = *engine->CreateSession({}), kept = *engine->CreateSession({});
  const auto dying = engine->Submit(doomed, Turn(RandomTokens(400, 4), 100));
  const auto living = engine->Submit(kept, kept_turn);
  ASSERT_TRUE(dying.ok() && living.ok());
  EXPECT_TRUE(engine->Close(doomed, true).ok());
  EXPECT_EQ(testing::Collect(dying->get()).done().reason, FinishReason::kCancelled);
  ExpectSame(testing::Collect(living->get()), wanted[0]);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
  // Destroy the engine itself during a turn.
  const auto last = engine->Submit(kept, Turn(RandomTokens(300, 6), 100));
  ASSERT_TRUE(last.ok());
  engine.reset();
  const TurnOutcome ended = testing::Collect(last->get());
  EXPECT_TRUE(ended.done().reason == FinishReason::kCancelled ||
              ended.done().reason == FinishReason::kError);
}

}  // namespace
}  // namespace weft::mlx
