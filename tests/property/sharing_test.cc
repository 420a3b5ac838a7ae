// Counters show which state is shared and which is copied.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "model/model_spec.h"
#include "tests/property/oracle.h"
#include "tests/property/rounding_oracle.h"
#include "tests/property/test_models.h"
#include "tests/support/slow_build.h"

namespace weft::testing {
namespace {

std::vector<int32_t> MakeTokens(const Model& model, int64_t n, uint64_t seed) {
  std::vector<int32_t> tokens;
  uint64_t state = seed * 7919 + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(
        3 + static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(model.n_vocab() - 3)));
  }
  return tokens;
}

class SharingTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string_view name = GetParam();
    if (name.starts_with(kOnMlx)) {
      const auto mlx = FindBackend("mlx");
      if (!mlx.ok()) GTEST_SKIP() << "built without MLX";
      const std::string_view model = name.substr(kOnMlx.size());
      model_ = LoadTestModel(model, *mlx);
      oracle_ = std::make_unique<RoundingOracle>(LoadTestModel(model, *FindBackend("reference")));
    } else {
      model_ = LoadTestModel(name);
      oracle_ = std::make_unique<Oracle>(model_);
      is_short_ = kSlowBuild;
    }
    options_.n_threads = 2;
    options_.page_tokens = 32;
    options_.memory_bytes = int64_t{256} << 20;
  }
  void Start() {
    auto engine = Engine::Start(model_, options_);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    engine_ = *std::move(engine);
  }

  static TurnOptions Greedy(std::vector<int32_t> tokens, int64_t max_tokens) {
    TurnOptions turn;
    turn.tokens = std::move(tokens);
    turn.max_tokens = max_tokens;
    turn.sampling = SamplingOptions::Greedy();
    turn.top_logprobs = 2;
    turn.ignore_eos = true;
    return turn;
  }

  SessionId Create(const std::string& domain = "") {
    const auto id = engine_->CreateSession({.domain = domain});
    EXPECT_TRUE(id.ok());
    return id.ok() ? *id : SessionId{};
  }
  SessionId Fork(SessionId of) {
    const auto id = engine_->Fork(of, -1, {});
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    return id.ok() ? *id : SessionId{};
  }

  // Runs the turn, and compares its output with that of the session's whole context alone.
  TurnRecord RunAndCompare(SessionId session, const TurnOptions& options) {
    std::vector<int32_t> context = *engine_->Tokens(session);
    context.insert(context.end(), options.tokens.begin(), options.tokens.end());
    const auto turn = engine_->Submit(session, options);
    EXPECT_TRUE(turn.ok()) << turn.status().ToString();
    TurnRecord record = ReadTurn(turn->get(), 1);
    EXPECT_EQ(record.protocol_error, "");
    EXPECT_TRUE(record.choices[0].complete()) << record.choices[0].done->status.ToString();
    if (options.max_tokens != 0) {
      ExpectSaid(record, context, options);
    }
    EXPECT_TRUE(engine_->CheckIntegrity().ok());
    return record;
  }

  // Compares with the output of the whole context alone.
  void ExpectSaid(const TurnRecord& record, const std::vector<int32_t>& context,
                  const TurnOptions& options) {
    const auto difference =
        oracle_->Compare(options_.kv_type, context, options, 0, record.choices[0]);
    ASSERT_TRUE(difference.ok()) << difference.status().ToString();
    EXPECT_EQ(*difference, "");
  }

  // Lengths in tokens: of a session of whole pages, of a trunk to fork, of a prefix of a thousand
  // words.
  int64_t long_tokens() const { return is_short_ ? 320 : 4000; }
  int64_t trunk_tokens() const { return is_short_ ? 200 : 2000; }
  int64_t prefix_tokens() const { return is_short_ ? 150 : 1300; }

  // Kinds of layers with pages of their own.
  int64_t n_groups() const { return static_cast<int64_t>(model_->spec().kv_groups.size()); }

  static constexpr std::string_view kOnMlx = "mlx-";

  bool is_short_ = true;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Oracle> oracle_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

// A runs, B runs, A continues: none of A's state was moved, copied or touched.
TEST_P(SharingTest, OneSessionAfterAnother) {
  Start();
  const SessionId a = Create("one"), b = Create("two");
  RunAndCompare(a, Greedy(MakeTokens(*model_, 45, 1), 3));
  const SessionInfo before = *engine_->Inspect(a);
  RunAndCompare(b, Greedy(MakeTokens(*model_, 50, 2), 3));
  const SessionInfo after = *engine_->Inspect(a);
  EXPECT_EQ(after.pages, before.pages);
  EXPECT_EQ(after.n_computed, before.n_computed);
  EXPECT_EQ(after.shared_pages, before.shared_pages);
  const TurnRecord record = RunAndCompare(a, Greedy(MakeTokens(*model_, 5, 3), 8));
  // Only new tokens were computed.
  EXPECT_EQ(record.started->cached_tokens, before.n_computed);
  // A checkpoint of recurrent state in the middle of a page keeps that page, too.
  const EngineStats stats = engine_->Stats();
  EXPECT_LE(stats.pages_copied, stats.slots_copied * n_groups());
}

TEST_P(SharingTest, AForkOfALongSessionCopiesNoMoreThanItsLastPage) {
  options_.max_step_tokens = 512;
  Start();
  const SessionId trunk = Create();
  RunAndCompare(trunk, Greedy(MakeTokens(*model_, long_tokens(), 4), 0));
  const EngineStats before = engine_->Stats();
  const SessionId fork = Fork(trunk);
  const EngineStats forked = engine_->Stats();
  EXPECT_EQ(forked.pages_copied, before.pages_copied);
  EXPECT_EQ(forked.pages_used, before.pages_used);
  EXPECT_EQ(forked.page_bytes, before.page_bytes);
  // Ten more: the last page is partly filled, so that writing needs a copy of it.
  RunAndCompare(trunk, Greedy(MakeTokens(*model_, 10, 5), 0));
  const SessionId partial = Fork(trunk);
  const EngineStats between = engine_->Stats();
  RunAndCompare(partial, Greedy({5, 6, 7}, 4));
  const EngineStats written = engine_->Stats();
  EXPECT_GE(written.pages_copied - between.pages_copied, std::min<int64_t>(1, n_groups()));
  EXPECT_LE(written.pages_copied - between.pages_copied, n_groups());
  EXPECT_LE(written.prompt_tokens - between.prompt_tokens, 4);
  EXPECT_EQ(engine_->Close(fork, true).code(), StatusCode::kOk);
  RunAndCompare(trunk, Greedy({8, 9}, 4));
}

TEST_P(SharingTest, EightForksHoldTheTrunkOnce) {
  options_.max_running = 8;
  Start();
  const SessionId trunk = Create();
  RunAndCompare(trunk, Greedy(MakeTokens(*model_, trunk_tokens(), 6), 0));
  const EngineStats before = engine_->Stats();
  std::vector<SessionId> forks;
  for (int i = 0; i < 8; ++i) forks.push_back(Fork(trunk));
  EXPECT_EQ(engine_->Stats().pages_used, before.pages_used);
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<TurnOptions> options;
  for (int i = 0; i < 8; ++i) {
    options.push_back(Greedy(MakeTokens(*model_, 6, 20 + static_cast<uint64_t>(i)), 4));
    const auto turn = engine_->Submit(forks[static_cast<size_t>(i)], options.back());
    ASSERT_TRUE(turn.ok()) << turn.status().ToString();
    turns.push_back(*turn);
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const TurnRecord record = ReadTurn(turns[i].get(), 1);
    std::vector<int32_t> context = MakeTokens(*model_, trunk_tokens(), 6);
    context.insert(context.end(), options[i].tokens.begin(), options[i].tokens.end());
    ExpectSaid(record, context, options[i]);
  }
  // Each fork has only one page of its own per group: the one where it left the trunk.
  const EngineStats after = engine_->Stats();
  EXPECT_LE(after.pages_used, before.pages_used + 8 * n_groups());
  EXPECT_LE(after.pages_copied - before.pages_copied, 8 * n_groups());
  EXPECT_LE(after.slots_copied - before.slots_copied, 8);
  EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, 8 * 6);
  EXPECT_TRUE(engine_->CheckIntegrity().ok());
}

TEST_P(SharingTest, SiblingsComputeTheirCommonPrefixOnce) {
  options_.max_running = 8;
  options_.max_step_tokens = 64;
  Start();
  // They diverge within the last page: a checkpoint of recurrent state there also serves late
  // arrivals.
  constexpr int64_t kTail = 7;
  const int64_t shared = prefix_tokens() / options_.page_tokens * options_.page_tokens;
  const EngineStats before = engine_->Stats();
  std::vector<std::shared_ptr<Turn>> turns;
  std::vector<std::vector<int32_t>> contexts;
  for (uint64_t i = 0; i < 8; ++i) {
    std::vector<int32_t> context = MakeTokens(*model_, prefix_tokens(), 9);
    const std::vector<int32_t> tail = MakeTokens(*model_, kTail, 40 + i);
    context.insert(context.end(), tail.begin(), tail.end());
    contexts.push_back(context);
    const auto turn = engine_->SubmitOnce("", Greedy(context, 4));
    ASSERT_TRUE(turn.ok()) << turn.status().ToString();
    turns.push_back(*turn);
  }
  int64_t cached = 0;
  for (size_t i = 0; i < turns.size(); ++i) {
    const TurnRecord record = ReadTurn(turns[i].get(), 1);
    ASSERT_TRUE(record.started.has_value());
    cached += record.started->cached_tokens;
    ExpectSaid(record, contexts[i], Greedy(contexts[i], 4));
  }
  // Nobody waits for tokens after the last whole page that the first one has yet to compute.
  EXPECT_GE(cached, 7 * shared);
  EXPECT_LE(cached, 7 * prefix_tokens());
  const EngineStats after = engine_->Stats();
  EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, 8 * (prefix_tokens() + kTail) - cached);
  EXPECT_EQ(after.cached_tokens - before.cached_tokens, cached);
}

TEST_P(SharingTest, ARestartComputesNothingAgain) {
  const TempDir dir;
  options_.state_dir = dir.path();
  std::vector<int32_t> said;
  for (const bool restarted : {false, true}) {
    Start();
    if (!restarted) {
      const SessionId session = *engine_->CreateSession({.name = "kept"});
      RunAndCompare(session, Greedy(MakeTokens(*model_, prefix_tokens(), 11), 30));
      said = *engine_->Tokens(session);
    } else {
      const SessionId session = *engine_->FindSession("", "kept");
      EXPECT_EQ(*engine_->Tokens(session), said);
      const TurnRecord record = RunAndCompare(session, Greedy(MakeTokens(*model_, 5, 12), 10));
      EXPECT_EQ(record.started->cached_tokens, static_cast<int64_t>(said.size()) - 1);
      EXPECT_EQ(engine_->Stats().prompt_tokens, 6) << "the last one said, and what is new";
    }
    EXPECT_TRUE(engine_->Shutdown(std::chrono::milliseconds(0)).ok());
    engine_.reset();
  }
}

TEST_P(SharingTest, AfterARestartGoingBackComputesNoMoreThanACheckpointDistance) {
  constexpr int64_t kDistance = 32;
  constexpr int64_t kMaxSaved = 32;
  const TempDir dir;
  options_.state_dir = dir.path();
  options_.checkpoint_tokens = kDistance;
  Start();
  const SessionId kept = *engine_->CreateSession({.name = "kept"});
  RunAndCompare(kept, Greedy(MakeTokens(*model_, prefix_tokens(), 13), 40));
  const int64_t n = static_cast<int64_t>(engine_->Tokens(kept)->size());
  EXPECT_TRUE(engine_->Shutdown(std::chrono::milliseconds(0)).ok());
  engine_.reset();
  Start();
  const SessionId session = *engine_->FindSession("", "kept");
  EXPECT_TRUE(engine_->Restore(session).ok());
  EXPECT_LE(engine_->Stats().checkpoints, kMaxSaved);
  // The file lacks positions before the window.
  const auto& groups = model_->spec().kv_groups;
  const bool windowed =
      std::any_of(groups.begin(), groups.end(), [](const auto& group) { return group.window > 0; });
  const auto computes_little = [&](const TurnRecord& record, int64_t position) {
    EXPECT_LE(record.started->cached_tokens, position);
    if (!windowed) {
      EXPECT_GE(record.started->cached_tokens, position - kDistance) << position;
    }
  };
  const int64_t oldest = std::max<int64_t>(0, n - kMaxSaved * kDistance);
  for (const int64_t position : {oldest + 70, (oldest + n) / 2, n - 45, n - 2}) {
    const auto fork = engine_->Fork(session, position, {});
    ASSERT_TRUE(fork.ok()) << fork.status().ToString();
    computes_little(RunAndCompare(*fork, Greedy(MakeTokens(*model_, 3, 14), 4)), position);
  }
  const int64_t back = (oldest + n) / 2 + 90;
  EXPECT_TRUE(engine_->Truncate(session, back).ok());
  computes_little(RunAndCompare(session, Greedy(MakeTokens(*model_, 3, 15), 4)), back);
}

INSTANTIATE_TEST_SUITE_P(Models, SharingTest,
                         ::testing::Values("tiny-llama", "tiny-gemma3", "tiny-lfm2", "tiny-qwen35",
                                           "tiny-mamba2", "recurrent-tiny-gemma3", "mlx-tiny-llama",
                                           "mlx-tiny-gemma3", "mlx-tiny-qwen35", "mlx-tiny-mamba2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace weft::testing
