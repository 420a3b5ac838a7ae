// Sessions through the public interface: names, handles, forks, states.
#include "engine/engine_test_util.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

TEST(EngineSessionsTest, CreateFindRenameClose) {
  auto engine = StartEngine();
  const SessionId kitchen = NewSession(engine.get(), "kitchen", "home");
  EXPECT_EQ(*engine->FindSession("home", "kitchen"), kitchen);
  EXPECT_THAT(engine->CreateSession({.name = "kitchen", .domain = "home"}).status(),
              IsError(StatusCode::kAlreadyExists, "kitchen"));
  EXPECT_OK(engine->Rename(kitchen, "cellar"));
  EXPECT_THAT(engine->FindSession("home", "kitchen").status(),
              IsError(StatusCode::kNotFound, "kitchen"));
  EXPECT_EQ(*engine->FindSession("home", "cellar"), kitchen);
  EXPECT_OK(engine->Close(kitchen, false));
  EXPECT_EQ(engine->FindSession("home", "cellar").status().code(), StatusCode::kNotFound);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST(EngineSessionsTest, DomainsDoNotSeeEachOther) {
  auto engine = StartEngine();
  const SessionId a = NewSession(engine.get(), "same", "a");
  const SessionId b = NewSession(engine.get(), "same", "b");
  EXPECT_FALSE(a == b);
  EXPECT_EQ(engine->FindSession("c", "same").status().code(), StatusCode::kNotFound);
  const auto listed = engine->ListSessions("a");
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ((*listed)[0].id, a);
  EXPECT_THAT(*engine->ListSessions("c"), IsEmpty());
  EXPECT_EQ(engine->Fork(a, -1, {.domain = "b"}).status().code(), StatusCode::kPermissionDenied);
}

TEST(EngineSessionsTest, AClosedHandleIsRefusedByEveryCall) {
  auto engine = StartEngine();
  const SessionId session = NewSession(engine.get(), "x");
  EXPECT_OK(engine->Close(session, true));
  NewSession(engine.get(), "x");  // reuses the closed one's place
  const EngineStats before = engine->Stats();
  const auto closed = IsError(StatusCode::kNotFound, "closed");
  EXPECT_THAT(engine->Submit(session, Greedy({5}, 1)).status(), closed);
  EXPECT_THAT(engine->Fork(session, -1, {}).status(), closed);
  EXPECT_THAT(engine->Truncate(session, 0), closed);
  EXPECT_THAT(engine->Reset(session), closed);
  EXPECT_THAT(engine->Rename(session, "y"), closed);
  EXPECT_THAT(engine->Park(session), closed);
  EXPECT_THAT(engine->Restore(session), closed);
  EXPECT_THAT(engine->Save(session), closed);
  EXPECT_THAT(engine->Close(session, true), closed);
  EXPECT_THAT(engine->Inspect(session).status(), closed);
  EXPECT_THAT(engine->Tokens(session).status(), closed);
  EXPECT_EQ(engine->Stats().sessions_ready, before.sessions_ready);
  EXPECT_EQ(engine->Stats().steps, before.steps);
}

TEST(EngineSessionsTest, AHandleOfAnotherEngineIsRefused) {
  auto one = StartEngine();
  auto two = StartEngine(SmallEngine(), TinyModel("gemma3"));
  const SessionId session = NewSession(one.get(), "x");
  NewSession(two.get(), "x");
  const auto foreign = IsError(StatusCode::kFailedPrecondition, "another engine");
  EXPECT_THAT(two->Submit(session, Greedy({5}, 1)).status(), foreign);
  EXPECT_THAT(two->Close(session, true), foreign);
  EXPECT_THAT(two->Truncate(session, 0), foreign);
  EXPECT_EQ(two->Stats().steps, 0);
  EXPECT_THAT(two->Inspect(SessionId{}).status(),
              IsError(StatusCode::kFailedPrecondition, "another engine"));
}

TEST(EngineSessionsTest, TwoEnginesOnTwoModelsAtOnceSayWhatEachSaysAlone) {
  const TurnOptions turn = Greedy(RandomTokens(100, 1), 40);
  std::vector<std::vector<int32_t>> alone, together(2);
  for (const char* name : {"llama", "gemma3"}) {
    alone.push_back(RunAlone(TinyModel(name), SmallEngine(), std::span(&turn, 1))[0].tokens());
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      auto engine = StartEngine(SmallEngine(), TinyModel(i == 0 ? "llama" : "gemma3"));
      together[i] = RunTurn(engine.get(), NewSession(engine.get()), turn).tokens();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

// Pages kept by the prefix cache belong to no conversation.
TEST(EngineSessionsTest, PagesAreSharedWithConversationsOnly) {
  for (const char* architecture : {"llama", "gemma3"}) {
    auto engine = StartEngine(SmallEngine(), TinyModel(architecture));
    const auto sharing = [&](SessionId id) {
      const auto info = engine->Inspect(id);
      return std::pair(info->shared_pages > 0, info->shared_with);
    };
    const auto becomes = [&](SessionId id, int64_t with) {
      return Eventually([&] { return sharing(id) == std::pair(with > 0, with); });
    };
    const SessionId trunk = NewSession(engine.get(), "trunk");
    RunTurn(engine.get(), trunk, Greedy(RandomTokens(70, 1), 5));
    ASSERT_GT(engine->Stats().pages_in_index, 0);
    EXPECT_EQ(sharing(trunk), std::pair(false, int64_t{0}));
    // A session with the same tokens finds them in the cache.
    const SessionId twin = NewSession(engine.get(), "twin");
    RunTurn(engine.get(), twin, Greedy(RandomTokens(70, 1), 1));
    EXPECT_EQ(sharing(twin), std::pair(true, int64_t{1}));
    EXPECT_TRUE(becomes(trunk, 1));
    const auto fork = engine->Fork(trunk, 70, {.name = "fork"});
    ASSERT_TRUE(fork.ok()) << fork.status();
    EXPECT_TRUE(becomes(*fork, 2) && becomes(trunk, 2) && becomes(twin, 2));
    EXPECT_OK(engine->Close(*fork, true));
    EXPECT_OK(engine->Close(twin, true));
    EXPECT_TRUE(becomes(trunk, 0));
    EXPECT_OK(engine->CheckIntegrity());
  }
}

// Pages in the prefix cache that a session holds cannot be evicted.
TEST(EngineSessionsTest, WhatSessionsHoldOfTheCacheIsInUse) {
  for (const char* architecture : {"llama", "gemma3"}) {
    auto engine = StartEngine(SmallEngine(), TinyModel(architecture));
    const SessionId trunk = NewSession(engine.get(), "trunk");
    RunTurn(engine.get(), trunk, Greedy(RandomTokens(200, 1), 5));
    const int64_t held = engine->Inspect(trunk)->pages;
    const EngineStats stats = engine->Stats();
    ASSERT_GT(held, 0);
    ASSERT_GT(stats.page_budget, 0);
    EXPECT_GT(stats.pages_in_index, stats.pages_evictable);
    const double usage = static_cast<double>(held) / static_cast<double>(stats.page_budget);
    EXPECT_DOUBLE_EQ(stats.kv_usage(), usage);
    const auto fork = engine->Fork(trunk, 200, {.name = "fork"});
    ASSERT_TRUE(fork.ok()) << fork.status();
    EXPECT_DOUBLE_EQ(engine->Stats().kv_usage(), usage) << "shared pages count once";
    EXPECT_OK(engine->Close(trunk, true));
    EXPECT_GT(engine->Stats().kv_usage(), 0);
    EXPECT_OK(engine->Close(*fork, true));
    EXPECT_EQ(engine->Stats().kv_usage(), 0);
    EXPECT_GT(engine->Stats().pages_in_index, 0) << "the prefix stays in the cache";
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST(EngineSessionsTest, AForkSharesPagesAndGoesItsOwnWay) {
  for (const char* architecture : {"llama", "gemma3", "recurrent-llama", "recurrent-gemma3"}) {
    auto engine = StartEngine(SmallEngine(), TinyModel(architecture));
    const SessionId trunk = NewSession(engine.get(), "trunk");
    const TurnOptions first = Greedy(RandomTokens(70, 1), 5);
    RunTurn(engine.get(), trunk, first);
    const int64_t pages = engine->Stats().pages_used, copied = engine->Stats().pages_copied;
    const auto fork = engine->Fork(trunk, 70, {.name = "fork"});
    ASSERT_TRUE(fork.ok()) << fork.status();
    EXPECT_EQ(engine->Stats().pages_used, pages) << "a fork costs no page";
    EXPECT_EQ(engine->Stats().pages_copied, copied);
    EXPECT_GT(engine->Inspect(*fork)->shared_pages, 0);
    EXPECT_EQ(engine->Inspect(*fork)->shared_with, 1);
    const TurnOptions second = Greedy(RandomTokens(10, 2), 20);
    const auto forked = RunTurn(engine.get(), *fork, second);
    // The fork's answer equals that of a session with the same tokens from the start.
    TurnOptions whole = second;
    whole.tokens = first.tokens;
    whole.tokens.insert(whole.tokens.end(), second.tokens.begin(), second.tokens.end());
    const auto alone = RunAlone(TinyModel(architecture), SmallEngine(), std::span(&whole, 1));
    EXPECT_EQ(forked.tokens(), alone[0].tokens());
    EXPECT_EQ(TokensOf(engine.get(), trunk).size(), 75u) << "the trunk is as it was";
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST(EngineSessionsTest, ForkAndTruncateOutsideTheSessionAreRefused) {
  auto engine = StartEngine();
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, Greedy(RandomTokens(20, 1), 0));
  EXPECT_EQ(engine->Fork(session, 21, {}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(engine->Truncate(session, 21).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(engine->Truncate(session, -1).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(TokensOf(engine.get(), session).size(), 20u);
}

TEST(EngineSessionsTest, AfterTruncateASessionGoesOnAsIfTheRestWasNeverSaid) {
  for (const char* architecture : {"llama", "gemma3", "recurrent-llama", "recurrent-gemma3"}) {
    auto engine = StartEngine(SmallEngine(), TinyModel(architecture));
    const SessionId session = NewSession(engine.get());
    TurnOptions first = Greedy(RandomTokens(90, 1), 30);
    RunTurn(engine.get(), session, first);
    EXPECT_OK(engine->Truncate(session, 50));
    const TurnOptions second = Greedy(RandomTokens(3, 2), 20);
    const auto said = RunTurn(engine.get(), session, second);
    TurnOptions whole = second;
    whole.tokens.assign(first.tokens.begin(), first.tokens.begin() + 50);
    whole.tokens.insert(whole.tokens.end(), second.tokens.begin(), second.tokens.end());
    EXPECT_EQ(said.tokens(),
              RunAlone(TinyModel(architecture), SmallEngine(), std::span(&whole, 1))[0].tokens());
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST(EngineSessionsTest, ResetForgetsEverything) {
  auto engine = StartEngine();
  const SessionId session = NewSession(engine.get());
  RunTurn(engine.get(), session, Greedy(RandomTokens(40, 1), 5));
  EXPECT_OK(engine->Reset(session));
  EXPECT_THAT(TokensOf(engine.get(), session), IsEmpty());
  EXPECT_EQ(engine->Inspect(session)->pages, 0);
  EXPECT_THAT(RunTurn(engine.get(), session, Greedy({}, 5)).done().status,
              IsError(StatusCode::kInvalidArgument, "empty prompt"));
}

// A turn whose consumer does not read is paused, so its session stays running.
EngineOptions PausingEngine() {
  EngineOptions options = SmallEngine();
  options.max_pending_events = 4;
  return options;
}

TEST(EngineSessionsTest, ARunningSessionRefusesWhatWouldChangeIt) {
  TestFolder folder;
  EngineOptions options = PausingEngine();
  options.state_dir = folder.path();
  auto engine = StartEngine(options);
  const SessionId session = NewSession(engine.get(), "busy");
  const auto turn = SubmitTurn(engine.get(), session, Greedy(RandomTokens(30, 1), 100));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kRunning);
  const auto running = IsError(StatusCode::kFailedPrecondition, "turn");
  EXPECT_THAT(engine->Submit(session, Greedy({5}, 1)).status(), running);
  EXPECT_THAT(engine->Truncate(session, 0), running);
  EXPECT_THAT(engine->Reset(session), running);
  EXPECT_THAT(engine->Park(session), running);
  EXPECT_THAT(engine->Save(session), running);
  EXPECT_OK(engine->Rename(session, "still busy"));
  EXPECT_EQ(Collect(turn.get()).tokens().size(), 100u);
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
  EXPECT_OK(engine->Truncate(session, 0));
}

TEST(EngineSessionsTest, ARunningSessionCanBeForked) {
  auto engine = StartEngine(PausingEngine());
  const SessionId session = NewSession(engine.get());
  const TurnOptions turn_options = Greedy(RandomTokens(40, 1), 60);
  const auto turn = SubmitTurn(engine.get(), session, turn_options);
  TurnOutcome outcome;
  ReadToFirstToken(turn.get(), &outcome);
  const auto fork = engine->Fork(session, 40, {});
  ASSERT_TRUE(fork.ok()) << fork.status();
  const auto forked = RunTurn(engine.get(), *fork, Greedy({}, 60));
  while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_EQ(outcome.tokens().size(), 60u);
  EXPECT_EQ(forked.tokens(), outcome.tokens());
}

TEST(EngineSessionsTest, ClosingARunningSessionEndsItsTurn) {
  auto engine = StartEngine(PausingEngine());
  const SessionId session = NewSession(engine.get(), "busy");
  const auto turn = SubmitTurn(engine.get(), session, Greedy(RandomTokens(30, 1), 400));
  TurnOutcome outcome;
  ReadToFirstToken(turn.get(), &outcome);
  EXPECT_OK(engine->Close(session, true));
  while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_EQ(outcome.done().reason, FinishReason::kCancelled);
  EXPECT_EQ(engine->Inspect(session).status().code(), StatusCode::kNotFound);
  EXPECT_OK(engine->DropPrefixes());
  EXPECT_EQ(engine->Stats().pages_used, 0);
}

TEST(EngineSessionsTest, ParkingWithoutAStateDirectoryIsRefused) {
  auto engine = StartEngine();
  const SessionId session = NewSession(engine.get(), "x");
  const auto none = IsError(StatusCode::kFailedPrecondition, "state");
  EXPECT_THAT(engine->Park(session), none);
  EXPECT_THAT(engine->Save(session), none);
  EXPECT_OK(engine->Restore(session)) << "it is in memory already";
}

TEST(EngineSessionsTest, ASessionHoldsThePagesOfItsTokensAndTheSecondOneNoMore) {
  auto engine = StartEngine();
  EXPECT_EQ(engine->Stats().pages_used, 0) << "the warm-up leaves nothing behind";
  for (int n = 1; n <= 3; ++n) {
    // Different prompts, so that nothing is shared.
    const auto seed = static_cast<uint64_t>(n);
    RunTurn(engine.get(), NewSession(engine.get()), Greedy(RandomTokens(100, seed), 0));
    EXPECT_EQ(engine->Stats().pages_used, n * 7) << "ceil(100 / 16) pages each";
  }
}

TEST(EngineSessionsTest, PrefixesAreSharedWithinADomainAndNotBeyond) {
  for (const bool open : {false, true}) {
    EngineOptions options = SmallEngine();
    options.share_prefixes_across_domains = open;
    auto engine = StartEngine(options);
    const TurnOptions turn = Greedy(RandomTokens(100, 1), 0);
    const auto cached = [&](const char* domain) {
      return RunTurn(engine.get(), NewSession(engine.get(), "", domain), turn)
          .started->cached_tokens;
    };
    EXPECT_EQ(cached("a"), 0);
    EXPECT_EQ(cached("a"), 99);
    EXPECT_EQ(cached("b"), open ? 99 : 0);
  }
}

TEST(EngineSessionsTest, WithoutPrefixCacheNothingIsSharedAndNothingStays) {
  EngineOptions options = SmallEngine();
  options.prefix_cache = false;
  auto engine = StartEngine(options);
  for (int i = 0; i < 2; ++i) {
    auto turn = engine->SubmitOnce("", Greedy(RandomTokens(100, 1), 3));
    ASSERT_TRUE(turn.ok());
    EXPECT_EQ(Collect(turn->get()).started->cached_tokens, 0);
  }
  EXPECT_EQ(engine->Stats().pages_used, 0);
}

}  // namespace
}  // namespace weft
