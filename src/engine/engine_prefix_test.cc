// How much of a prompt a turn finds already computed: to the token, from any source, with the same
// bits.
#include "engine/engine_test_util.h"

namespace weft {
namespace {

constexpr int64_t kPageTokens = 16;

class EnginePrefixTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> Start(const EngineOptions& options = SmallEngine()) {
    return StartEngine(options, model());
  }
  static std::shared_ptr<const Model> model() { return TinyModel(GetParam()); }

  // The first `common` tokens, then different ones.
  static std::vector<int32_t> Leaving(const std::vector<int32_t>& tokens, int64_t common,
                                      int64_t n_others, uint64_t seed) {
    std::vector<int32_t> other(tokens.begin(), tokens.begin() + common);
    for (const int32_t token : RandomTokens(n_others, seed)) other.push_back(token);
    if (n_others > 0 && common < std::ssize(tokens)) {
      int32_t& first = other[static_cast<size_t>(common)];
      if (first == tokens[static_cast<size_t>(common)]) first = first == 300 ? 301 : 300;
    }
    return other;
  }
  static void ExpectAsAlone(const TurnOutcome& outcome, const TurnOptions& turn) {
    EXPECT_EQ(outcome.tokens(), RunAlone(model(), SmallEngine(), std::span(&turn, 1))[0].tokens());
  }
  // Runs the turn again and returns how many tokens were cached.
  static int64_t Ask(Engine* engine, const TurnOptions& turn, bool compare = true) {
    const auto running = engine->SubmitOnce("", turn);
    EXPECT_OK(running);
    if (!running.ok()) return -1;
    const TurnOutcome outcome = Collect(running->get());
    if (compare) ExpectAsAlone(outcome, turn);
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_EQ(outcome.done().usage.cached_tokens, outcome.started->cached_tokens);
    return outcome.started->cached_tokens;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, EnginePrefixTest, ::testing::Values("llama", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EnginePrefixTest, ARequestFindsAllThatItHasInCommonButItsLastToken) {
  const std::vector<int32_t> first = RandomTokens(3 * kPageTokens + 5, 1);
  for (const bool ends_there : {false, true}) {
    auto engine = Start();
    EXPECT_EQ(Ask(engine.get(), Greedy(first, 3)), 0);
    for (int64_t k = 1; k <= 3 * kPageTokens; ++k) {
      const auto prompt = Leaving(first, k, ends_there ? 0 : 6, 100 + static_cast<uint64_t>(k));
      const int64_t n = std::ssize(prompt);
      EXPECT_EQ(Ask(engine.get(), Greedy(prompt, 2), k % 5 == 0), std::min(k, n - 1)) << k;
    }
  }
}

TEST_P(EnginePrefixTest, AHistoryThatComesBackIsKnownButForTheLastTokenSaid) {
  auto engine = Start();
  std::vector<int32_t> history;
  for (uint64_t i = 0; i < 6; ++i) {
    const int64_t known = std::max<int64_t>(0, std::ssize(history) - 1);
    for (const int32_t token : RandomTokens(7 + static_cast<int64_t>(i), i)) {
      history.push_back(token);
    }
    const TurnOptions turn = Greedy(history, 9);
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(outcome.started->cached_tokens, known);
    ExpectAsAlone(outcome, turn);
    history.insert(history.end(), outcome.tokens().begin(), outcome.tokens().end());
  }
  // One page per page of tokens, and one where the first turns were repeated: partial pages at
  // earlier ends grew into those of later turns.
  const int64_t pages = engine->Stats().pages_in_index;
  const int64_t groups = std::ssize(model()->spec().kv_groups);
  EXPECT_EQ(pages, groups * ((std::ssize(history) - 1 + kPageTokens - 1) / kPageTokens));
}

TEST_P(EnginePrefixTest, EveryChoiceIsKnownToItsEnd) {
  auto engine = Start();
  TurnOptions turn = Greedy(RandomTokens(21, 1), 8);
  turn.n_choices = 3;
  turn.sampling.temperature = 1;
  turn.sampling.seed = 5;
  const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
  for (const ChoiceOutcome& choice : outcome.choices) {
    std::vector<int32_t> history = turn.tokens;
    history.insert(history.end(), choice.tokens.begin(), choice.tokens.end());
    history.push_back(300);
    EXPECT_EQ(Ask(engine.get(), Greedy(history, 3)), 21 + 8 - 1);
  }
}

TEST_P(EnginePrefixTest, WhatARunningTurnHasIsFoundBeforeItEnds) {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  auto engine = Start(options);
  const TurnOptions first = Greedy(RandomTokens(40, 1), 30);
  const SessionId session = NewSession(engine.get());
  auto running = SubmitTurn(engine.get(), session, first);
  // It waits for its reader in the middle of a page.
  ASSERT_TRUE(Eventually([&] { return engine->Inspect(session)->n_tokens >= 42; }));
  for (const int64_t k : {39, 40}) {
    EXPECT_EQ(Ask(engine.get(), Greedy(Leaving(first.tokens, k, 9, 50), 5)), k);
  }
  const auto other = engine->SubmitOnce("other", Greedy(first.tokens, 3));
  EXPECT_EQ(Collect(other->get()).started->cached_tokens, 0) << "nothing crosses domains";
  ExpectAsAlone(Collect(running.get()), first);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePrefixTest, SiblingsShareToTheTokenWhereTheyPart) {
  EngineOptions options = SmallEngine();
  options.max_step_tokens = 128;
  auto engine = Start(options);
  const std::vector<int32_t> trunk = RandomTokens(76, 1);
  std::vector<TurnOptions> turns;
  std::vector<std::shared_ptr<Turn>> running;
  for (uint64_t i = 0; i < 4; ++i) {
    turns.push_back(Greedy(Leaving(trunk, 75, 7, 10 + i), 4));
    turns.back().tokens[75] = 400 + static_cast<int32_t>(i);
    running.push_back(*engine->SubmitOnce("", turns.back()));
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    const TurnOutcome outcome = Collect(running[i].get());
    EXPECT_EQ(outcome.started->cached_tokens, i == 0 ? 0 : 75);
    ExpectAsAlone(outcome, turns[i]);
  }
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EnginePrefixTest, ASessionThatGoesOnHasItsLastPageBackAndCopiesNothing) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  std::vector<int32_t> said;
  for (uint64_t i = 0; i < 5; ++i) {
    const TurnOptions turn = Greedy(RandomTokens(6, i), 5);
    RunTurn(engine.get(), session, turn);
    said = TokensOf(engine.get(), session);
    EXPECT_EQ(engine->Stats().pages_copied, 0);
    EXPECT_OK(engine->CheckIntegrity());
  }
  // A turn with the same tokens finds them, and the session is unchanged.
  const std::vector<int32_t> before = said;
  said.push_back(300);
  EXPECT_EQ(Ask(engine.get(), Greedy(said, 3)), std::ssize(before) - 1);
  EXPECT_EQ(TokensOf(engine.get(), session), before);
  // A fork that diverges in the middle of a page, and the prefix that it leaves.
  const auto fork = engine->Fork(session, 37, {});
  ASSERT_TRUE(fork.ok());
  const TurnOptions other = Greedy(RandomTokens(4, 77), 6);
  EXPECT_EQ(RunTurn(engine.get(), *fork, other).started->cached_tokens, 37);
  std::vector<int32_t> of_fork = TokensOf(engine.get(), *fork);
  EXPECT_OK(engine->Close(*fork, true));
  of_fork.push_back(301);
  EXPECT_EQ(Ask(engine.get(), Greedy(of_fork, 3)), std::ssize(of_fork) - 2);
  EXPECT_EQ(Ask(engine.get(), Greedy(Leaving(before, 37, 5, 78), 3)), 37);
}

TEST_P(EnginePrefixTest, WhereThereIsNoRoomForACopyThePageIsTaken) {
  EngineOptions options = SmallEngine();
  // Room for exactly one prompt of four pages and its answer.
  options.memory_bytes = 4 * testing::PageBytes(*model(), options);
  auto engine = Start(options);
  const TurnOptions first = Greedy(RandomTokens(60, 1), 4);
  EXPECT_EQ(Ask(engine.get(), first), 0);
  for (const int64_t k : {37, 20, 50, 5, 59}) {
    const TurnOptions turn = Greedy(Leaving(first.tokens, k, 60 - k, 9), 4);
    const int64_t cached = Ask(engine.get(), turn);
    EXPECT_LE(cached, 59);
    EXPECT_GE(cached, 0);
  }
  EXPECT_EQ(engine->Stats().turns_failed, 0);
  EXPECT_OK(engine->DropPrefixes());
  EXPECT_EQ(engine->Stats().pages_used, 0);
}

TEST_P(EnginePrefixTest, AfterEvictionsWhatIsLeftIsFoundToTheToken) {
  EngineOptions options = SmallEngine();
  options.memory_bytes = 24 * testing::PageBytes(*model(), options);
  auto engine = Start(options);
  std::vector<std::vector<int32_t>> prompts;
  for (uint64_t i = 0; i < 40; ++i) {
    const int64_t k = static_cast<int64_t>(i * 29 % 61);
    prompts.push_back(prompts.empty() ? RandomTokens(70, 1)
                                      : Leaving(prompts[i / 2], k, 70 - k, 200 + i));
    const int64_t cached = Ask(engine.get(), Greedy(prompts.back(), 3), i % 4 == 0);
    EXPECT_LT(cached, 70);
    // The same prompt is still complete: it was used last.
    EXPECT_EQ(Ask(engine.get(), Greedy(prompts.back(), 3), false), 69);
    EXPECT_EQ(Ask(engine.get(), Greedy(Leaving(prompts.back(), 66, 3, 3), 1), false), 66);
  }
  EXPECT_GT(engine->Stats().index_evicted_pages, 0);
}

}  // namespace
}  // namespace weft
