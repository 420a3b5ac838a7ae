// The disk tier: a second engine on the same directory finds the same tokens and bitwise identical
// state; damage, other models, limits; and acknowledged deletions stay deleted.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <mutex>
#include <random>

#include "engine/engine_test_util.h"
#include "engine/state/state_directory.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

constexpr int64_t kLarge = int64_t{1} << 30;

class EngineDiskTest : public ::testing::TestWithParam<const char*> {
 protected:
  EngineOptions Options() const {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path();
    options.state_disk_bytes = kLarge;
    options.on_notice = [this](const std::string& text) {
      const std::lock_guard<std::mutex> lock(mutex_);
      notices_.push_back(text);
    };
    return options;
  }
  std::shared_ptr<const weft::Model> TheModel() const { return TinyModel(GetParam()); }
  std::unique_ptr<Engine> Start() const { return StartEngine(Options(), TheModel()); }
  std::vector<TurnOutcome> Alone(const std::vector<TurnOptions>& turns) const {
    return RunAlone(TheModel(), SmallEngine(), turns);
  }
  // Waits until everything computed is on disk.
  static void Settle(Engine* engine) {
    EXPECT_TRUE(Eventually([&] { return engine->Stats().disk_pending == 0; }));
  }
  // Runs `work` on an engine in another process that then dies as if by kill -9.
  template <typename Work>
  void InACrash(Work work) {
    const pid_t child = fork();
    if (child == 0) {
      auto engine = Start();
      if (engine == nullptr) _exit(1);
      work(engine.get());
      Settle(engine.get());
      _exit(::testing::Test::HasFailure() ? 2 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  std::vector<fs::path> Blocks() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/blocks")) {
      const fs::path name = entry.path().filename();
      if (entry.is_regular_file() && name != "index" && name != "written") {
        files.push_back(entry.path());
      }
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  // Of those that are there at one moment. Others may come and go while a folder is read, so only
  // what is there before and after counts.
  int64_t BytesOfBlocks() const {
    const std::vector<fs::path> before = Blocks(), after = Blocks();
    std::vector<fs::path> there;
    std::ranges::set_intersection(before, after, std::back_inserter(there));
    int64_t bytes = 0;
    for (const fs::path& path : there) {
      std::error_code gone;
      const auto size = fs::file_size(path, gone);
      if (!gone) bytes += static_cast<int64_t>((size + 4095) / 4096 * 4096);
    }
    return bytes;
  }
  std::vector<std::string> notices() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return notices_;
  }

  const TestFolder folder_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> notices_;
  const std::vector<TurnOptions> turns_ = {Greedy(RandomTokens(120, 1), 10),
                                           Greedy(RandomTokens(10, 2), 20)};
};

INSTANTIATE_TEST_SUITE_P(Models, EngineDiskTest,
                         ::testing::Values("llama", "gemma3", "recurrent-llama",
                                           "recurrent-gemma3"),
                         kNameOfModel);

// Also while it is being written.
TEST_P(EngineDiskTest, WhatIsKeptForTheDiskIsSharedWithNobody) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  do {
    EXPECT_EQ(engine->Inspect(session)->shared_pages, 0);
    EXPECT_EQ(engine->Inspect(session)->shared_with, 0);
  } while (engine->Stats().disk_pending > 0);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDiskTest, ASessionAndItsForksAreWarmAfterACrash) {
  const auto alone = Alone(turns_);
  InACrash([&](Engine* engine) {
    const SessionId session = NewSession(engine, "s", "d");
    RunTurn(engine, session, turns_[0]);
    EXPECT_OK(engine->Fork(session, -1, {.name = "fork", .domain = "d"}).status());
    EXPECT_FALSE(engine->Inspect(session)->saved) << "nobody asked for it";
  });
  auto engine = Start();
  EXPECT_THAT(*engine->ListSessions("d"), SizeIs(2));
  for (const char* name : {"s", "fork"}) {
    const auto session = engine->FindSession("d", name);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(engine->Inspect(*session)->n_tokens, 130);
    const TurnOutcome said = RunTurn(engine.get(), *session, turns_[1]);
    EXPECT_EQ(said.tokens(), alone[1].tokens());
    EXPECT_GE(said.done().usage.cached_tokens, 129) << "nothing was computed again";
    if (std::string(name) == "s") {
      EXPECT_EQ(said.done().usage.cached_tokens, 129);
      EXPECT_EQ(said.done().usage.disk_tokens, 129);
      EXPECT_EQ(said.started->disk_tokens, 129);
    }
    EXPECT_THAT(engine->Inspect(*session)->note, ::testing::IsEmpty());
  }
  EXPECT_GE(engine->Stats().disk_tokens, 129);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDiskTest, ForksCostNoSecondWrite) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  Settle(engine.get());
  const EngineStats before = engine->Stats();
  EXPECT_GT(before.disk_written_bytes, 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK(engine->Fork(session, -1, {.name = StrCat("fork", i)}).status());
  }
  Settle(engine.get());
  EXPECT_EQ(engine->Stats().disk_written_bytes, before.disk_written_bytes);
  EXPECT_EQ(engine->Stats().disk_blocks, before.disk_blocks);
}

TEST_P(EngineDiskTest, ASessionThatGrowsWritesWhatIsNew) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, Greedy(RandomTokens(300, 1), 5));
  Settle(engine.get());
  const int64_t before = engine->Stats().disk_written_bytes;
  RunTurn(engine.get(), session, Greedy(RandomTokens(3, 2), 2));
  Settle(engine.get());
  EXPECT_LT(engine->Stats().disk_written_bytes - before, before / 2);
}

// Long prompts need a longer context than the tiny model's, so this one is sent twice.
TEST_P(EngineDiskTest, APromptThatCameTwiceIsKept) {
  const TurnOptions prompt = Greedy(RandomTokens(200, 3), 8);
  const auto alone = Alone({prompt});
  int64_t reused = 0;
  InACrash([&](Engine* engine) {
    Collect(engine->SubmitOnce("d", Greedy(RandomTokens(60, 9), 4))->get());
    Settle(engine);
    EXPECT_EQ(engine->Stats().disk_blocks, 0) << "a short one that came once";
    for (int i = 0; i < 2; ++i) Collect(engine->SubmitOnce("d", prompt)->get());
    Settle(engine);
    EXPECT_GT(engine->Stats().disk_blocks, 0);
  });
  auto engine = Start();
  const TurnOutcome said = Collect(engine->SubmitOnce("d", prompt)->get());
  reused = said.done().usage.cached_tokens;
  EXPECT_EQ(said.tokens(), alone[0].tokens());
  EXPECT_GE(reused, 192) << "all whole pages before its end";
  EXPECT_EQ(said.done().usage.disk_tokens, reused);
  EXPECT_EQ(said.done().usage.computed_tokens, 200 - reused);
  const TurnOutcome again = Collect(engine->SubmitOnce("d", prompt)->get());
  EXPECT_GE(again.done().usage.cached_tokens, 192);
  EXPECT_EQ(again.done().usage.disk_tokens, 0) << "by now it is in memory";
  const TurnOutcome other = Collect(engine->SubmitOnce("other", prompt)->get());
  EXPECT_EQ(other.done().usage.cached_tokens, 0) << "of another key";
  EXPECT_EQ(other.tokens(), alone[0].tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDiskTest, DamagedBlocksAreComputedAgain) {
  const auto alone = Alone(turns_);
  for (int damage = 0; damage < 6; ++damage) {
    SCOPED_TRACE(damage);
    fs::remove_all(folder_.path());
    InACrash([&](Engine* engine) { RunTurn(engine, NewSession(engine, "s"), turns_[0]); });
    const auto blocks = Blocks();
    ASSERT_GT(blocks.size(), 6u);
    const fs::path bad = blocks[static_cast<size_t>(damage) % blocks.size()];
    if (damage % 3 == 0) fs::remove(bad);
    if (damage % 3 == 1) fs::resize_file(bad, fs::file_size(bad) / 2);
    if (damage % 3 == 2) {
      std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(fs::file_size(bad)) - 100);
      file.put('\x33');
      file.put('\x35');
    }
    auto engine = Start();
    const SessionId session = *engine->FindSession("", "s");
    const TurnOutcome said = RunTurn(engine.get(), session, turns_[1]);
    EXPECT_EQ(said.tokens(), alone[1].tokens());
    EXPECT_LE(said.done().usage.disk_tokens, 129);
    EXPECT_OK(engine->CheckIntegrity());
    EXPECT_OK(engine->Shutdown(std::chrono::seconds(1)));
    engine = Start();
    EXPECT_EQ(engine->Stats().disk_damaged_blocks, 0);
    EXPECT_EQ(engine->Inspect(*engine->FindSession("", "s"))->n_tokens, 160);
  }
}

TEST_P(EngineDiskTest, AnotherModelFindsNothingAndLeavesTheOthers) {
  const auto alone = Alone(turns_);
  InACrash([&](Engine* engine) {
    for (int i = 0; i < 2; ++i) Collect(engine->SubmitOnce("", turns_[0])->get());
  });
  const size_t n_blocks = Blocks().size();
  {
    auto other = StartEngine(Options(), TinyModel("llama", 7));
    const TurnOutcome said = Collect(other->SubmitOnce("", turns_[0])->get());
    EXPECT_EQ(said.done().usage.cached_tokens, 0);
    EXPECT_GT(other->Stats().disk_bytes, 0) << "they count";
    EngineOptions options = Options();
    other.reset();
    options.kv_type = KvType::kF32;
    auto kv = StartEngine(options, TheModel());
    EXPECT_EQ(Collect(kv->SubmitOnce("", turns_[0])->get()).done().usage.cached_tokens, 0);
  }
  EXPECT_GE(Blocks().size(), n_blocks);
  auto engine = Start();
  const TurnOutcome said = Collect(engine->SubmitOnce("", turns_[0])->get());
  EXPECT_EQ(said.tokens(), alone[0].tokens());
  EXPECT_GE(said.done().usage.disk_tokens, 112);
}

TEST_P(EngineDiskTest, TheBoundHoldsUnderRandomTraffic) {
  EngineOptions options = Options();
  const int64_t slot = testing::LayoutOf(*TheModel(), options).slot_bytes;
  options.state_disk_bytes = 24 * (testing::PageBytes(*TheModel(), options) + slot + 5000);
  options.state_disk_bytes_per_hour = kLarge;
  auto engine = StartEngine(options, TheModel());
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    const auto tokens = RandomTokens(20 + static_cast<int64_t>(random() % 150), random() % 12);
    if (random() % 2 == 0) {
      Collect(engine->SubmitOnce("d", Greedy(tokens, 3))->get());
    } else {
      const std::string name = StrCat("s", random() % 5);
      auto session = engine->FindSession("", name);
      if (!session.ok()) session = engine->CreateSession({.name = name});
      TurnOptions turn = Greedy(tokens, 3);
      turn.tokens_are_whole_context = true;
      RunTurn(engine.get(), *session, turn);
    }
    ASSERT_LE(BytesOfBlocks(), options.state_disk_bytes);
    // Tokens do not wait for blocks that are being written.
    const EngineStats stats = engine->Stats();
    ASSERT_LE(stats.disk_bytes - stats.disk_file_bytes, options.state_disk_bytes);
  }
  Settle(engine.get());
  EXPECT_LE(engine->Stats().disk_bytes, options.state_disk_bytes);
  EXPECT_GT(engine->Stats().disk_evicted_blocks, 0);
  EXPECT_OK(engine->CheckIntegrity());
}

// After a restart, other prompts also start where they are likely to leave the one that was kept.
TEST_P(EngineDiskTest, APromptThatLeavesEarlierIsFoundToo) {
  constexpr TokenId kControl = 1;
  const auto join = [](std::vector<std::vector<int32_t>> parts) {
    std::vector<int32_t> tokens;
    for (const auto& part : parts) tokens.insert(tokens.end(), part.begin(), part.end());
    return tokens;
  };
  const auto system = join({{kControl, 305}, RandomTokens(150, 1)});
  const auto user = join({{kControl, 301, 302}, RandomTokens(90, 2)});
  const std::vector<int32_t> header = {kControl, 303, 304};
  const auto long_system = join({system, {kControl, 306}, RandomTokens(20, 3)});
  {
    auto engine = Start();
    // Two prompts share the system message without its end.
    Collect(engine->SubmitOnce("", Greedy(join({long_system, RandomTokens(5, 9)}), 1))->get());
    RunTurn(engine.get(), NewSession(engine.get(), "s"), Greedy(join({system, user, header}), 30));
    Settle(engine.get());
  }
  const auto ask = [&](const std::vector<int32_t>& prompt) {
    auto engine = Start();
    const TurnOptions turn = Greedy(prompt, 5);
    const TurnOutcome outcome = Collect(engine->SubmitOnce("", turn)->get());
    EXPECT_EQ(outcome.tokens(), Alone({turn})[0].tokens());
    EXPECT_OK(engine->CheckIntegrity());
    return outcome.started->cached_tokens;
  };
  const int64_t start = std::ssize(system) + 1;
  const bool slots = std::string_view(GetParam()).starts_with("recurrent");
  // The last message is another one.
  const auto other = join({system, {kControl, 301, 302}, RandomTokens(40, 4), header});
  // With windows, too, the page in which a checkpoint lies is kept without its window.
  const bool windowed = std::string_view(GetParam()).ends_with("gemma3");
  if (!slots || !windowed) {
    EXPECT_GE(ask(other), slots ? start - 1 : start + 2);
  }
  // The reply was written otherwise.
  const auto next = join({system, user, {kControl, 307}, RandomTokens(10, 5)});
  EXPECT_GE(ask(next), start + std::ssize(user));
}

TEST_P(EngineDiskTest, ParkedSessionsCountWithinTheBound) {
  EngineOptions options = Options();
  const int64_t slot = testing::LayoutOf(*TheModel(), options).slot_bytes;
  options.state_disk_bytes = 5 * (10 * testing::PageBytes(*TheModel(), options) + slot + 12000);
  options.state_disk_bytes_per_hour = kLarge;
  auto engine = StartEngine(options, TheModel());
  const auto check = [&] {
    int64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      const bool counts = entry.path().extension() == ".session" ||
                          entry.path().string().find("/blocks/") != std::string::npos;
      const fs::path name = entry.path().filename();
      if (!counts || name == "index" || name == "written") continue;
      std::error_code gone;
      const auto size = fs::file_size(entry.path(), gone);  // fails for folders too
      if (!gone) bytes += static_cast<int64_t>((size + 4095) / 4096 * 4096);
    }
    const EngineStats stats = engine->Stats();
    EXPECT_LE(bytes, options.state_disk_bytes);
    EXPECT_LE(stats.disk_bytes, options.state_disk_bytes);
    EXPECT_LE(stats.disk_file_bytes, stats.disk_bytes);
    EXPECT_OK(engine->CheckIntegrity());
  };
  std::vector<SessionId> parked;
  Status refused;
  SessionId last;
  for (uint64_t i = 0; refused.ok() && i < 20; ++i) {
    last = NewSession(engine.get(), StrCat("s", i));
    RunTurn(engine.get(), last, Greedy(RandomTokens(120, i), 3));
    Settle(engine.get());
    const int64_t before = engine->Stats().disk_file_bytes;
    refused = engine->Park(last);
    if (refused.ok()) {
      parked.push_back(last);
      EXPECT_GT(engine->Stats().disk_file_bytes, before);
    }
    check();
  }
  EXPECT_THAT(refused, IsError(StatusCode::kResourceExhausted, "does not fit on the disk"));
  ASSERT_GE(parked.size(), 2U);
  EXPECT_GT(engine->Stats().disk_evicted_blocks, 0) << "prefixes give way first";
  // It is as it was, and fits once another one is gone.
  EXPECT_EQ(StateOf(engine.get(), last), SessionState::kReady);
  const TurnOutcome next = RunTurn(engine.get(), last, turns_[1]);
  EXPECT_EQ(next.started->cached_tokens, 122);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(engine->Close(parked.back(), /*forget=*/true));
    parked.pop_back();
  }
  Settle(engine.get());
  EXPECT_OK(engine->Park(last));
  check();
  engine.reset();
  engine = StartEngine(options, TheModel());
  EXPECT_GT(engine->Stats().disk_file_bytes, 0);
  check();
}

TEST_P(EngineDiskTest, AnHourHasItsShareOfWrites) {
  EngineOptions options = Options();
  const int64_t slot = testing::LayoutOf(*TheModel(), options).slot_bytes;
  options.state_disk_bytes_per_hour = 6 * (testing::PageBytes(*TheModel(), options) + slot);
  int64_t written = 0;
  for (const uint64_t first : {0, 5}) {  // a restart begins no new hour
    auto engine = StartEngine(options, TheModel());
    for (uint64_t i = first; i < first + 5; ++i) {
      RunTurn(engine.get(), NewSession(engine.get(), StrCat("s", i)),
              Greedy(RandomTokens(100, i), 3));
    }
    Settle(engine.get());
    written += engine->Stats().disk_written_bytes;
    EXPECT_GT(engine->Stats().disk_skipped_bytes, 0);
  }
  EXPECT_GT(written, 0);
  EXPECT_LE(written, options.state_disk_bytes_per_hour * 11 / 10);
}

TEST_P(EngineDiskTest, AFullDiskCostsTheSavingAloneAndIsTold) {
  const auto alone = Alone(turns_);
  const pid_t child = fork();
  if (child == 0) {
    auto engine = Start();
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(1);
    const SessionId session = NewSession(engine.get(), "s");
    if (RunTurn(engine.get(), session, turns_[0]).tokens() != alone[0].tokens()) _exit(2);
    if (!Eventually([&] { return engine->Stats().disk_failed_writes > 0; })) _exit(3);
    if (!Eventually([&] { return !engine->Inspect(session)->note.empty(); })) _exit(4);
    if (RunTurn(engine.get(), session, turns_[1]).tokens() != alone[1].tokens()) _exit(5);
    int told = 0;
    for (const std::string& notice : notices())
      told += notice.find("not being written") != notice.npos;
    if (told != 1) _exit(6);
    if (!engine->Reset(session).ok()) _exit(7);
    const Status down = engine->Shutdown(std::chrono::milliseconds(0));
    _exit(down.ok() ? 0 : 8);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(EngineDiskTest, WhatWasForgottenStaysForgottenAfterACrash) {
  InACrash([&](Engine* engine) {
    for (const char* name : {"reset", "cut", "parked", "old", "deleted"}) {
      const SessionId session = NewSession(engine, name);
      RunTurn(engine, session, turns_[0]);
      EXPECT_OK(engine->Park(session));
    }
    const auto find = [&](const char* name) { return *engine->FindSession("", name); };
    RunTurn(engine, find("deleted"), turns_[1]);
    EXPECT_OK(engine->Reset(find("reset")));
    EXPECT_OK(engine->Reset(find("parked")));
    EXPECT_OK(engine->Truncate(find("cut"), 50));
    EXPECT_OK(engine->Rename(find("old"), "new"));
    EXPECT_OK(engine->Close(find("deleted"), /*forget=*/true));
    // Right after the turn, while its tokens are still being written.
    const SessionId quick = NewSession(engine, "quick");
    RunTurn(engine, quick, turns_[0]);
    EXPECT_OK(engine->Reset(quick));
    _exit(::testing::Test::HasFailure() ? 2 : 0);
  });
  auto engine = Start();
  const auto tokens = [&](const char* name) {
    const auto session = engine->FindSession("", name);
    return session.ok() ? engine->Inspect(*session)->n_tokens : -1;
  };
  EXPECT_EQ(tokens("reset"), 0);
  EXPECT_EQ(tokens("parked"), 0);
  EXPECT_EQ(tokens("quick"), 0);
  EXPECT_EQ(tokens("cut"), 50);
  EXPECT_EQ(tokens("old"), -1);
  EXPECT_EQ(tokens("new"), 130);
  EXPECT_EQ(tokens("deleted"), -1);
}

TEST_P(EngineDiskTest, AnEmptyFolderAndNoTierAreFineToo) {
  EngineOptions options = Options();
  options.state_disk_bytes = -1;
  {
    auto engine = StartEngine(options, TheModel());
    RunTurn(engine.get(), NewSession(engine.get(), "s"), turns_[0]);
    EXPECT_EQ(engine->Stats().disk_blocks, 0);
  }
  EXPECT_FALSE(fs::exists(folder_.path() + "/blocks"));
  auto engine = StartEngine(options, TheModel());
  const TurnOutcome said = RunTurn(engine.get(), *engine->FindSession("", "s"), turns_[1]);
  EXPECT_EQ(said.tokens(), Alone(turns_)[1].tokens());
  EXPECT_EQ(said.done().usage.disk_tokens, 129) << "from its file";
}

// A hundred sessions in little memory: idle ones move to disk and come back warm.
TEST_P(EngineDiskTest, SessionsThatMakeRoomAreReadFromTheirBlocks) {
  EngineOptions options = Options();
  const int64_t slot = testing::LayoutOf(*TheModel(), options).slot_bytes;
  options.memory_bytes = 30 * testing::PageBytes(*TheModel(), options) + 16 * slot;
  auto engine = StartEngine(options, TheModel());
  for (uint64_t i = 0; i < 12; ++i) {
    RunTurn(engine.get(), NewSession(engine.get(), StrCat("s", i)),
            Greedy(RandomTokens(100, 100 + i), 5));
    Settle(engine.get());
  }
  EXPECT_GT(engine->Stats().sessions_parked, 0);
  for (uint64_t i = 0; i < 12; ++i) {
    const std::vector<TurnOptions> turns = {Greedy(RandomTokens(100, 100 + i), 5),
                                            Greedy(RandomTokens(5, i), 5)};
    const TurnOutcome said =
        RunTurn(engine.get(), *engine->FindSession("", StrCat("s", i)), turns[1]);
    EXPECT_EQ(said.tokens(), Alone(turns)[1].tokens()) << i;
    EXPECT_EQ(said.done().usage.cached_tokens, 104) << i;
  }
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_P(EngineDiskTest, ATurnCancelledWhileItsPromptIsReadLeavesTheSessionWhole) {
  const auto alone = Alone(turns_);
  InACrash([&](Engine* engine) { RunTurn(engine, NewSession(engine, "s"), turns_[0]); });
  for (int i = 0; i < 10; ++i) {
    auto engine = Start();
    const SessionId session = *engine->FindSession("", "s");
    auto turn = engine->Submit(session, Greedy({300}, 5));
    ASSERT_TRUE(turn.ok()) << turn.status();
    std::this_thread::sleep_for(std::chrono::microseconds(i * 150));
    (*turn)->Cancel();
    Collect(turn->get());
    if (TokensOf(engine.get(), session).size() != 130) {
      EXPECT_OK(engine->Truncate(session, 130));
    }
    const auto fork = engine->Fork(session, -1, {});
    EXPECT_EQ(RunTurn(engine.get(), *fork, turns_[1]).tokens(), alone[1].tokens());
    EXPECT_OK(engine->CheckIntegrity());
  }
}

}  // namespace
}  // namespace weft
