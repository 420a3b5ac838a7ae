// Several engines over one shared store, as servers on several machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_test_util.h"
#include "engine/state/session_trouble.h"
#include "engine/state/shared_head.h"
#include "engine/storage/object_store_test_util.h"

namespace weft {
namespace {

using Fault = MemoryObjectStore::Fault;
using ::testing::SizeIs;

class EngineSharedTest : public ::testing::TestWithParam<const char*> {
 protected:
  EngineOptions OptionsOf(const std::string& server, int lease_ms = 60000) const {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path() + "/" + server;
    options.shared = {.objects = store_,
                      .worker_url = "http://" + server,
                      .lease = std::chrono::milliseconds(lease_ms)};
    return options;
  }
  std::unique_ptr<Engine> Server(const std::string& name, int lease_ms = 60000) const {
    return StartEngine(OptionsOf(name, lease_ms), TinyModel(GetParam()));
  }

  TestFolder folder_;
  const std::shared_ptr<MemoryObjectStore> store_ = std::make_shared<MemoryObjectStore>();
};
INSTANTIATE_TEST_SUITE_P(Models, EngineSharedTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama"), kNameOfModel);

// The end of a turn on the named session, or why it did not begin.
struct Answer {
  Status status;
  TurnOutcome outcome;
};
Answer RunNamed(Engine* engine, const std::string& name, std::vector<int32_t> tokens,
                int64_t max_tokens = 4) {
  auto named = engine->SubmitNamed({.name = name}, Greedy(std::move(tokens), max_tokens), {});
  if (!named.ok()) return {named.status(), {}};
  Answer answer{.outcome = Collect(named->turn.get())};
  answer.status = answer.outcome.done().status;
  return answer;
}

StatusOr<SessionId> Find(Engine* engine, const std::string& name) {
  std::promise<StatusOr<SessionId>> found;
  engine->FindShared({.name = name}, [&](auto id) { found.set_value(std::move(id)); });
  return found.get_future().get();
}

Status Release(Engine* engine, const std::string& name) {
  const auto id = Find(engine, name);
  if (!id.ok()) return id.status();
  std::promise<Status> released;
  engine->Release(*id, [&](Status status) { released.set_value(std::move(status)); });
  return released.get_future().get();
}

// Once the engine may have it.
std::vector<int32_t> TextOf(Engine* engine, const std::string& name) {
  StatusOr<std::vector<int32_t>> tokens = Unavailable("not asked");
  EXPECT_TRUE(Eventually([&] {
    const auto id = Find(engine, name);
    tokens = id.ok() ? engine->Tokens(*id) : id.status();
    return TroubleOf(tokens.status()) == SessionTrouble::kNone;
  })) << tokens.status();
  return tokens.ok() ? *tokens : std::vector<int32_t>();
}

TEST_P(EngineSharedTest, AConversationMovesWithItsBits) {
  const auto first = RandomTokens(300, 1), second = RandomTokens(20, 2);
  const std::vector<TurnOptions> turns = {Greedy(first, 4), Greedy(second, 4)};
  const auto alone = RunAlone(TinyModel(GetParam()), SmallEngine(), turns);
  auto a = Server("a"), b = Server("b");
  const Answer one = RunNamed(a.get(), "s", first);
  ASSERT_OK(one.status);
  ExpectSameAnswer(one.outcome, alone[0]);
  const Status elsewhere = RunNamed(b.get(), "s", second).status;
  EXPECT_EQ(TroubleOf(elsewhere), SessionTrouble::kElsewhere) << elsewhere;
  EXPECT_EQ(OwnerOf(elsewhere), "http://a");
  EXPECT_THAT(b->ListSessions("").value(), SizeIs(0)) << "it is not here";
  ASSERT_OK(Release(a.get(), "s"));
  EXPECT_THAT(a->ListSessions("").value(), SizeIs(0));
  const Answer two = RunNamed(b.get(), "s", second);
  ASSERT_OK(two.status);
  ExpectSameAnswer(two.outcome, alone[1]);
  // The last token had no state.
  EXPECT_EQ(two.outcome.started->disk_tokens, 303) << "nothing of it is computed again";
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "s", second).status), SessionTrouble::kElsewhere);
}

TEST_P(EngineSharedTest, ASessionWhoseServerIsGoneGoesOnElsewhere) {
  auto a = Server("a", 300), b = Server("b", 300);
  const Answer one = RunNamed(a.get(), "s", RandomTokens(40, 1));
  ASSERT_OK(one.status);
  ASSERT_TRUE(Eventually([&] { return RunNamed(b.get(), "s", {5}, 1).status.ok(); }));
  EXPECT_THAT(TextOf(b.get(), "s"), SizeIs(40 + 4 + 1 + 1));
  // The first server still has the old text in its memory.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_TRUE(Eventually([&] { return RunNamed(a.get(), "s", {6}, 1).status.ok(); }));
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(48));
}

TEST_P(EngineSharedTest, OfTwoTurnsAtOnceOneCounts) {
  EngineOptions slow = OptionsOf("a", 1);
  slow.max_pending_events = 4;  // nobody reads, so it does not end
  auto a = StartEngine(slow, TinyModel(GetParam()));
  auto b = Server("b", 1);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  auto turn = a->SubmitNamed({.name = "s"}, Greedy({7}, 30), {});
  ASSERT_TRUE(turn.ok()) << turn.status();
  ASSERT_TRUE(turn->turn->Next().has_value());
  // The lease is over at once; renewals and the other server take turns.
  ASSERT_TRUE(Eventually([&] { return RunNamed(b.get(), "s", {8}, 1).status.ok(); }));
  const TurnOutcome late = Collect(turn->turn.get());
  EXPECT_EQ(late.done().reason, FinishReason::kError);
  EXPECT_EQ(TroubleOf(late.done().status), SessionTrouble::kMoved) << late.done().status;
  const auto text = TextOf(b.get(), "s");
  EXPECT_THAT(text, SizeIs(8));
  EXPECT_EQ(TextOf(a.get(), "s"), text);
  EXPECT_OK(a->CheckIntegrity());
}

TEST_P(EngineSharedTest, WithoutTheStoreNamedTurnsFailAndOthersGoOn) {
  auto a = Server("a", 1);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  store_->SetFault(Fault::kAway);
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "s", {7}).status), SessionTrouble::kUnavailable);
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "new", {7}).status), SessionTrouble::kUnavailable);
  EXPECT_OK(RunNamed(a.get(), "", {7}).status);
  store_->SetFault(Fault::kNone);
  EXPECT_OK(RunNamed(a.get(), "s", {7}).status);
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(6 + 5));
  EXPECT_THAT(a->ListSessions("").value(), SizeIs(1)) << "the new one was not made";
}

TEST_P(EngineSharedTest, ATurnThatCannotBeCommittedIsNotKept) {
  auto a = Server("a", 100);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  store_->SetFault([](bool is_put, const std::string& name) {
    return is_put && name.starts_with("sessions/") ? Fault::kAway : Fault::kNone;
  });
  const Answer failed = RunNamed(a.get(), "s", {7});
  EXPECT_EQ(TroubleOf(failed.status), SessionTrouble::kUnavailable);
  EXPECT_THAT(failed.outcome.tokens(), SizeIs(4)) << "they were sent before";
  store_->SetFault(Fault::kNone);
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(6));
  EXPECT_OK(RunNamed(a.get(), "s", {7}).status);
  EXPECT_OK(a->CheckIntegrity());
}

TEST_P(EngineSharedTest, ForksResetsAndDeletionsAreSeenEverywhere) {
  auto a = Server("a"), b = Server("b");
  ASSERT_OK(RunNamed(a.get(), "s", RandomTokens(40, 1)).status);
  const auto id = Find(a.get(), "s");
  ASSERT_TRUE(id.ok()) << id.status();
  ASSERT_OK(a->Fork(*id, 20, {.name = "fork"}).status());
  EXPECT_EQ(a->Fork(*id, 20, {.name = "fork"}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(b->CreateSession({.name = "fork"}).status().code(), StatusCode::kAlreadyExists);
  ASSERT_OK(b->CreateSession({.name = "empty"}).status());
  EXPECT_EQ(a->Fork(*id, 20, {.name = "empty"}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(a->Rename(*id, "t").code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(Release(a.get(), "fork"));
  EXPECT_THAT(TextOf(b.get(), "fork"), SizeIs(20));
  ASSERT_OK(b->Truncate(*Find(b.get(), "fork"), 10));
  ASSERT_OK(Release(b.get(), "fork"));
  EXPECT_THAT(TextOf(a.get(), "fork"), SizeIs(10));
  ASSERT_OK(a->Reset(*id));
  ASSERT_OK(Release(a.get(), "s"));
  EXPECT_THAT(TextOf(b.get(), "s"), SizeIs(0));
  ASSERT_OK(b->Close(*Find(b.get(), "s"), /*forget=*/true));
  EXPECT_EQ(Find(a.get(), "s").status().code(), StatusCode::kNotFound);
  EXPECT_OK(RunNamed(a.get(), "s", {5}).status);
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(5));
}

TEST_P(EngineSharedTest, ARestartFindsEverything) {
  const auto prompt = RandomTokens(300, 3);
  auto a = Server("a");
  ASSERT_OK(RunNamed(a.get(), "s", prompt).status);
  ASSERT_OK(a->Shutdown(std::chrono::milliseconds(1000)));
  a.reset();
  auto b = Server("b");
  EXPECT_THAT(TextOf(b.get(), "s"), SizeIs(304)) << "it was given up at the end";
  b.reset();
  a = Server("a");
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(304));
}

TEST_P(EngineSharedTest, SessionsFromBeforeTheStoreAreTakenOver) {
  EngineOptions alone = OptionsOf("a");
  alone.shared = {};
  {
    auto before = StartEngine(alone, TinyModel(GetParam()));
    ASSERT_OK(RunNamed(before.get(), "old", RandomTokens(300, 1)).status);
    ASSERT_OK(RunNamed(before.get(), "both", {5, 6}).status);
    ASSERT_OK(before->Shutdown(std::chrono::milliseconds(1000)));
  }
  auto b = Server("b");
  ASSERT_OK(RunNamed(b.get(), "both", {5, 6, 7, 8}).status);
  ASSERT_OK(Release(b.get(), "both"));
  auto a = Server("a");
  EXPECT_THAT(a->ListSessions("").value(), SizeIs(2));
  EXPECT_THAT(TextOf(a.get(), "both"), SizeIs(8)) << "the store's";
  EXPECT_EQ(Find(b.get(), "old").status().code(), StatusCode::kNotFound);
  ASSERT_OK(Release(a.get(), "old"));
  EXPECT_THAT(TextOf(b.get(), "old"), SizeIs(304));
  ASSERT_OK(b->Close(*Find(b.get(), "old"), /*forget=*/true));
  EXPECT_EQ(Find(a.get(), "old").status().code(), StatusCode::kNotFound) << "it stays deleted";
}

TEST_P(EngineSharedTest, DrainingGivesUpWhatNoTurnUses) {
  auto a = Server("a"), b = Server("b");
  for (const char* const name : {"x", "y", "z"}) ASSERT_OK(RunNamed(a.get(), name, {5, 6}).status);
  std::promise<StatusOr<int64_t>> parked;
  a->ParkIdle([&](StatusOr<int64_t> n) { parked.set_value(std::move(n)); });
  EXPECT_EQ(parked.get_future().get().value(), 3);
  for (const char* const name : {"x", "y", "z"}) EXPECT_OK(RunNamed(b.get(), name, {7}).status);
}

TEST_P(EngineSharedTest, ManyTurnsAtOnceLeaveNoTrace) {
  auto a = Server("a", 50), b = Server("b", 50);
  constexpr int kClients = 6;
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 12; ++i) {
        Engine* const engine = (c + i) % 2 == 0 ? a.get() : b.get();
        (void)RunNamed(engine, StrCat("s", i % 4), {5 + c, 6 + i}, 2);
        if (i % 5 == c) (void)Release(engine, StrCat("s", i % 4));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (Engine* const engine : {a.get(), b.get()}) EXPECT_OK(engine->CheckIntegrity());
  for (int i = 0; i < 4; ++i) {
    std::vector<int32_t> text;
    ASSERT_TRUE(Eventually([&] { return Find(a.get(), StrCat("s", i)).ok(); }));
    text = TextOf(a.get(), StrCat("s", i));
    EXPECT_EQ(text.size() % 4, 0u) << "whole turns";
    EXPECT_GT(text.size(), 0u);
  }
}

// The session as any server sees it.
StatusOr<SessionInfo> Look(Engine* engine, const std::string& name) {
  std::promise<StatusOr<SessionInfo>> seen;
  engine->InspectShared({.name = name}, [&](auto info) { seen.set_value(std::move(info)); });
  return seen.get_future().get();
}

TEST_P(EngineSharedTest, LookingTakesNothing) {
  auto a = Server("a"), b = Server("b");
  EXPECT_EQ(Look(b.get(), "s").status().code(), StatusCode::kNotFound);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  const auto seen = Look(b.get(), "s");
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(seen->n_tokens, 6);
  EXPECT_EQ(seen->owner, "http://a");
  EXPECT_EQ(Look(a.get(), "s")->owner, "");
  EXPECT_THAT(b->ListSessions("").value(), SizeIs(0));
  EXPECT_OK(RunNamed(a.get(), "s", {7}).status);
  EXPECT_EQ(Look(a.get(), "s")->n_tokens, 11);
}

TEST_P(EngineSharedTest, AfterALostCommitALookSaysWhatWasKept) {
  auto a = Server("a", 50);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  store_->SetFault([](bool is_put, const std::string& name) {
    return is_put && name.starts_with("sessions/") ? Fault::kLate : Fault::kNone;
  });
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "s", {7}).status), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  EXPECT_EQ(Look(a.get(), "s")->n_tokens, 6);
  EXPECT_EQ(store_->DeliverLate(), 0) << "it comes no more";
  EXPECT_EQ(Look(a.get(), "s")->n_tokens, 6);
  // A first write that was late neither comes after a deletion.
  store_->SetFault([](bool is_put, const std::string& name) {
    return is_put && name.starts_with("sessions/") ? Fault::kLate : Fault::kNone;
  });
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "t", {7}).status), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  EXPECT_EQ(Find(a.get(), "t").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Look(a.get(), "t").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->DeliverLate(), 0) << "it comes no more";
  EXPECT_EQ(Look(a.get(), "t").status().code(), StatusCode::kNotFound);
  EXPECT_OK(a->CheckIntegrity());
}

TEST_P(EngineSharedTest, IdlenessHereDeletesNothingThatOthersUse) {
  auto a = Server("a", 50), b = Server("b", 50);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  ASSERT_OK(RunNamed(a.get(), "own", {5, 6}).status);
  store_->SetFault([](bool is_put, const std::string& name) {
    return is_put && name.starts_with("sessions/") ? Fault::kAway : Fault::kNone;
  });
  EXPECT_EQ(TroubleOf(RunNamed(a.get(), "s", {7}).status), SessionTrouble::kUnavailable);
  store_->SetFault(Fault::kNone);
  ASSERT_TRUE(Eventually([&] { return RunNamed(b.get(), "s", {8}, 1).status.ok(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // b's lease is over
  EXPECT_EQ(a->CloseIdle(std::nullopt, std::chrono::microseconds(0)).value(), 2);
  EXPECT_THAT(TextOf(b.get(), "s"), SizeIs(8));
  EXPECT_TRUE(
      Eventually([&] { return Look(b.get(), "own").status().code() == StatusCode::kNotFound; }));
}

TEST_P(EngineSharedTest, WhatCannotBeReadCanBeDeletedAndReset) {
  auto a = Server("a");
  for (const char* const name : {"s", "t", "u"}) {
    ASSERT_TRUE(store_->Put(HeadName("", name), "nonsense", {}).ok());
  }
  EXPECT_EQ(RunNamed(a.get(), "s", {5}).status.code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(a->Close(*Find(a.get(), "s"), /*forget=*/true));
  EXPECT_OK(RunNamed(a.get(), "s", {5}).status);
  ASSERT_OK(a->Reset(*Find(a.get(), "t")));
  EXPECT_OK(RunNamed(a.get(), "t", {5}).status);
  auto other = StartEngine(OptionsOf("b", 1), TinyModel(GetParam(), 2));
  ASSERT_OK(RunNamed(other.get(), "o", {5, 6}).status);
  other.reset();
  EXPECT_EQ(RunNamed(a.get(), "o", {5}).status.code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(a->Close(*Find(a.get(), "o"), /*forget=*/true));
  EXPECT_EQ(Look(a.get(), "o").status().code(), StatusCode::kNotFound);
}

TEST_P(EngineSharedTest, CallsOnWhatOthersDeletedFindNothing) {
  auto a = Server("a", 1), b = Server("b", 1);
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  const SessionId id = *Find(a.get(), "s");
  ASSERT_TRUE(Eventually([&] {
    const auto there = Find(b.get(), "s");
    return there.ok() && b->Close(*there, /*forget=*/true).ok();
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(a->Fork(id, -1, {.name = "f"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Look(a.get(), "s").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(a->ListSessions("").value(), SizeIs(0));
}

TEST_P(EngineSharedTest, ThreeRequestsAtOnceHearTheSame) {
  auto a = Server("a"), b = Server("b");
  ASSERT_OK(RunNamed(a.get(), "s", {5, 6}).status);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::promise<Status>> heard(4);
    const auto note = [&](size_t i) {
      return [&heard, i](const auto& answer) { heard[i].set_value(answer.status()); };
    };
    for (size_t i = 0; i < 3; ++i) {
      b->SubmitNamed({{.name = "s"}, Greedy({7}, 1), {}}, note(i));
    }
    b->FindShared({.name = "s"}, note(3));
    for (auto& status : heard) {
      EXPECT_EQ(TroubleOf(status.get_future().get()), SessionTrouble::kElsewhere);
    }
  }
  EXPECT_OK(RunNamed(a.get(), "s", {7}).status);
  EXPECT_THAT(b->ListSessions("").value(), SizeIs(0));
}

TEST_P(EngineSharedTest, ParkingKeepsTheSessionHere) {
  auto a = Server("a");
  ASSERT_OK(RunNamed(a.get(), "s", RandomTokens(40, 1)).status);
  const SessionId id = *Find(a.get(), "s");
  ASSERT_OK(a->Park(id));
  EXPECT_EQ(StateOf(a.get(), id), SessionState::kParked);
  EXPECT_EQ(a->Inspect(id)->n_tokens, 44);
  const Answer next = RunNamed(a.get(), "s", {5});
  ASSERT_OK(next.status);
  EXPECT_GE(next.outcome.started->cached_tokens, 32);
  ASSERT_OK(a->Save(id));
  EXPECT_THAT(TextOf(a.get(), "s"), SizeIs(49));
}

class EngineSharedPromptTest : public EngineSharedTest {};
INSTANTIATE_TEST_SUITE_P(Models, EngineSharedPromptTest, ::testing::Values("llama"), kNameOfModel);

TEST_P(EngineSharedPromptTest, OthersPromptsAreNotComputedAgain) {
  EngineOptions options = OptionsOf("a");
  options.max_step_tokens = 64;
  auto model = TinyModel(GetParam());
  auto a = StartEngine(options, model), b = Server("b");
  const auto prompt = RandomTokens(400, 9);
  // Twice: what recurs is worth a block.
  for (int i = 0; i < 2; ++i) ASSERT_OK(RunNamed(a.get(), "", prompt, 1).status);
  ASSERT_TRUE(Eventually([&] { return store_->Names("blocks/").size() >= 24; }));
  const Answer answer = RunNamed(b.get(), "", prompt, 1);
  ASSERT_OK(answer.status);
  EXPECT_GE(answer.outcome.started->disk_tokens, 384);
  const int64_t gets = store_->gets();
  ASSERT_OK(RunNamed(b.get(), "", RandomTokens(400, 10), 1).status);
  EXPECT_EQ(store_->gets(), gets + 1) << "one question about a prompt that nobody has";
  ASSERT_OK(RunNamed(b.get(), "", RandomTokens(100, 11), 1).status);
  EXPECT_EQ(store_->gets(), gets + 1) << "and none about a short one";
}

}  // namespace
}  // namespace weft
