// Sessions and their files: park, save, restore, damage, failing disks, shutdown.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine_test_util.h"
#include "engine/state/state_directory.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class EngineFilesTest : public ::testing::Test {
 protected:
  EngineOptions Options() const {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path();
    return options;
  }
  std::unique_ptr<Engine> Start() { return StartEngine(Options()); }
  // Paths of the session files.
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file() && entry.path().extension() == ".session") {
        files.push_back(entry.path());
      }
    }
    return files;
  }
  static void Flip(const fs::path& path, int64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 0x55);
    file.seekp(offset);
    file.put(byte);
  }

  // The session's next answer follows from its tokens alone.
  void ExpectGoesOnFrom(Engine* engine, SessionId session) {
    TurnOptions whole = Greedy(TokensOf(engine, session), 20);
    whole.tokens.insert(whole.tokens.end(), turns_[1].tokens.begin(), turns_[1].tokens.end());
    EXPECT_EQ(RunTurn(engine, session, turns_[1]).tokens(),
              RunAlone(TinyModel("llama"), SmallEngine(), std::span(&whole, 1))[0].tokens());
  }

  const TestFolder folder_;
  const std::vector<TurnOptions> turns_ = {Greedy(RandomTokens(120, 1), 10),
                                           Greedy(RandomTokens(10, 2), 20)};
  const std::vector<TurnOutcome> alone_ = RunAlone(TinyModel("llama"), SmallEngine(), turns_);
};

TEST_F(EngineFilesTest, AParkedSessionHoldsNoMemoryAndGoesOnWithItsNextTurn) {
  for (const char* architecture : {"llama", "gemma3"}) {
    EngineOptions options = Options();
    options.state_dir += StrCat("/", architecture);
    options.prefix_cache = false;
    auto engine = StartEngine(options, TinyModel(architecture));
    const SessionId session = NewSession(engine.get(), "s", "d");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Park(session));
    EXPECT_OK(engine->Park(session)) << "once more is fine";
    const auto info = engine->Inspect(session);
    EXPECT_EQ(info->state, SessionState::kParked);
    EXPECT_EQ(info->n_tokens, 130);
    EXPECT_EQ(info->pages, 0);
    EXPECT_EQ(engine->Stats().pages_used, 0);
    EXPECT_GT(engine->Stats().file_written_bytes, 130) << "whatever the file holds is counted";
    EXPECT_EQ(*engine->FindSession("d", "s"), session);
    EXPECT_THAT(*engine->ListSessions("d"), SizeIs(1));
    const TurnOutcome said = RunTurn(engine.get(), session, turns_[1]);
    EXPECT_EQ(said.started->cached_tokens, 129) << "nothing was computed again";
    EXPECT_EQ(said.tokens(), RunAlone(TinyModel(architecture), SmallEngine(), turns_)[1].tokens());
    EXPECT_EQ(engine->Stats().restores, 1);
    EXPECT_OK(engine->CheckIntegrity());
  }
}

TEST_F(EngineFilesTest, AParkedSessionComesBackForWhatNeedsItsState) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  const auto park = [&] {
    EXPECT_OK(engine->Park(session));
    EXPECT_EQ(StateOf(engine.get(), session), SessionState::kParked);
  };
  park();
  EXPECT_THAT(*engine->Tokens(session), SizeIs(130));
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
  EXPECT_EQ(engine->Inspect(session)->n_computed, 129) << "nothing is computed again";
  park();
  const auto fork = engine->Fork(session, 64, {});
  EXPECT_OK(fork.status());
  EXPECT_EQ(engine->Inspect(*fork)->n_computed, 64);
  park();
  EXPECT_OK(engine->Truncate(session, 5));
  EXPECT_EQ(engine->Inspect(session)->n_tokens, 5);
  EXPECT_EQ(engine->Stats().restores, 3);
  park();
  EXPECT_OK(engine->Reset(session)) << "which needs no state";
  EXPECT_EQ(engine->Inspect(session)->n_tokens, 0);
  EXPECT_EQ(engine->Stats().restores, 3);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineFilesTest, ASavedSessionIsThereAfterARestart) {
  {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "s", "d");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
    EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
    EXPECT_EQ(engine->Inspect(session)->n_computed, 129) << "it stays in memory";
  }
  auto engine = Start();
  EXPECT_EQ(engine->FindSession("", "s").status().code(), StatusCode::kNotFound);
  const auto session = engine->FindSession("d", "s");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(StateOf(engine.get(), *session), SessionState::kParked);
  EXPECT_THAT(engine->CreateSession({.name = "s", .domain = "d"}).status(),
              IsError(StatusCode::kAlreadyExists, "s"));
  const TurnOutcome said = RunTurn(engine.get(), *session, turns_[1]);
  EXPECT_EQ(said.tokens(), alone_[1].tokens());
  EXPECT_EQ(said.started->cached_tokens, 129);
}

TEST_F(EngineFilesTest, SessionsThatWereNotUsedForLongAreForgottenAlsoAcrossARestart) {
  using std::chrono::minutes;
  {
    auto engine = Start();
    for (const char* name : {"old", "new"}) {
      RunTurn(engine.get(), NewSession(engine.get(), name, "d"), turns_[0]);
    }
  }
  {
    auto directory = StateDirectory::Open(folder_.path());
    ASSERT_TRUE(directory.ok()) << directory.status();
    SessionHead head = (*(*directory)->Load("d", "old"))->head();
    EXPECT_LT(WallClockMicros() - head.updated_us, 60'000'000);
    head.updated_us -= 3600 * int64_t{1'000'000};
    head.state_tokens = 0;
    head.groups.clear();
    EXPECT_OK((*directory)->Save(head, nullptr));
  }
  EngineOptions options = Options();
  options.max_pending_events = 8;  // nobody reads: the turn pauses and does not end
  auto engine = StartEngine(options);
  const SessionId running = NewSession(engine.get(), "running", "d");
  const auto turn = engine->Submit(running, Greedy(RandomTokens(10, 1), 100'000));
  NewSession(engine.get(), "other", "another domain");
  NewSession(engine.get());
  const auto old = engine->Inspect(*engine->FindSession("d", "old"));
  EXPECT_GE(old->idle_us, 3600 * int64_t{1'000'000});
  EXPECT_TRUE(old->saved);
  EXPECT_FALSE(engine->Inspect(running)->saved);
  EXPECT_EQ(*engine->CloseIdle("elsewhere", minutes(30)), 0);
  EXPECT_EQ(*engine->CloseIdle(std::nullopt, minutes(30)), 1);
  EXPECT_FALSE(engine->FindSession("d", "old").ok());
  EXPECT_EQ(*engine->CloseIdle("d", minutes(0)), 1) << "the one that runs stays";
  EXPECT_TRUE(engine->FindSession("d", "running").ok());
  EXPECT_EQ(*engine->CloseIdle(std::nullopt, minutes(0)), 1) << "and so does one without a name";
  (*turn)->Cancel();
  EXPECT_OK(engine->Close(running, /*forget=*/true));
  engine.reset();
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(EngineFilesTest, MoreFilesThanSessionsAreNoReasonNotToStart) {
  {
    auto engine = Start();
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_OK(engine->Save(NewSession(engine.get(), name)));
    }
  }
  EngineOptions options = Options();
  options.max_sessions = 2;
  auto engine = StartEngine(options);
  EXPECT_THAT(*engine->ListSessions(""), SizeIs(3));
  RunTurn(engine.get(), *engine->FindSession("", "c"), turns_[0]);
  EXPECT_THAT(engine->CreateSession({.name = "d"}).status(),
              IsError(StatusCode::kResourceExhausted, "already 3 sessions"));
  EXPECT_OK(engine->Close(*engine->FindSession("", "c"), /*forget=*/false));
  EXPECT_TRUE(engine->FindSession("", "c").ok()) << "it was saved";
}

TEST_F(EngineFilesTest, OnlyNamedSessionsAreSaved) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get());
  EXPECT_THAT(engine->Save(session), IsError(StatusCode::kFailedPrecondition, "name"));
  EXPECT_OK(engine->Rename(session, "now"));
  EXPECT_OK(engine->Save(session));
  EXPECT_THAT(Files(), SizeIs(1));
  EXPECT_THAT(engine->Rename(session, ""), IsError(StatusCode::kInvalidArgument, "name"));
}

TEST_F(EngineFilesTest, NoNameLeadsOutsideTheDirectory) {
  const fs::path inside = fs::path(folder_.path()) / "state";
  EngineOptions options = Options();
  options.state_dir = inside;
  auto engine = StartEngine(options);
  for (const char* name : {"../escape", "/etc/x", "..", ".", "a/b", "CON", "x.session", "Käse"}) {
    const SessionId session = NewSession(engine.get(), name, "../d");
    RunTurn(engine.get(), session, Greedy({300}, 1));
    EXPECT_OK(engine->Save(session));
  }
  EXPECT_THAT(Files(), SizeIs(8));
  for (const fs::path& file : Files()) {
    EXPECT_THAT(file.string(), ::testing::StartsWith(inside.string() + "/"));
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(EngineFilesTest, ASavedSessionCanBeRenamed) {
  {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "old");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
    EXPECT_OK(engine->Rename(session, "new"));
    EXPECT_THAT(Files(), SizeIs(1));
    EXPECT_OK(engine->Close(session, false));
    EXPECT_EQ(engine->FindSession("", "old").status().code(), StatusCode::kNotFound);
  }
  auto engine = Start();
  EXPECT_EQ(engine->FindSession("", "old").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RunTurn(engine.get(), *engine->FindSession("", "new"), turns_[1]).tokens(),
            alone_[1].tokens());
}

TEST_F(EngineFilesTest, CloseForgetsTheFileOrKeepsItAsItWasSaved) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  EXPECT_OK(engine->Save(session));
  RunTurn(engine.get(), session, Greedy({300}, 3));
  EXPECT_OK(engine->Close(session, false));
  EXPECT_EQ(engine->Inspect(session).status().code(), StatusCode::kNotFound);
  const SessionId again = *engine->FindSession("", "s");
  EXPECT_FALSE(again == session);
  EXPECT_EQ(engine->Inspect(again)->n_tokens, 134) << "with what was said since";
  ExpectGoesOnFrom(engine.get(), again);
  EXPECT_OK(engine->Close(again, true));
  EXPECT_THAT(Files(), IsEmpty());
  EXPECT_EQ(engine->FindSession("", "s").status().code(), StatusCode::kNotFound);
}

TEST_F(EngineFilesTest, ClosingWhileItsFileIsWrittenLeavesNoFileBehind) {
  for (int i = 0; i < 20; ++i) {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    std::thread parking([&] { (void)engine->Park(session); });
    EXPECT_OK(engine->Close(session, true));
    parking.join();
    engine.reset();
    EXPECT_THAT(Files(), IsEmpty());
  }
}

TEST_F(EngineFilesTest, CallsOfManyThreadsOnOneSessionAllGetAnAnswer) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Status status = (t + i) % 3 == 0   ? engine->Park(session)
                              : (t + i) % 3 == 1 ? engine->Restore(session)
                                                 : engine->Save(session);
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kFailedPrecondition) << status;
        auto turn = engine->Submit(session, Greedy({}, 0));
        if (turn.ok()) Collect(turn->get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).tokens(), alone_[1].tokens());
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineFilesTest, ATurnCancelledWhileItsSessionIsRestoredLeavesTheSessionWhole) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  for (int i = 0; i < 20; ++i) {
    EXPECT_OK(engine->Park(session));
    auto turn = engine->Submit(session, Greedy({300}, 5));
    ASSERT_TRUE(turn.ok()) << turn.status();
    (*turn)->Cancel();
    Collect(turn->get());
    EXPECT_OK(engine->Restore(session));
    if (TokensOf(engine.get(), session).size() != 130) {  // the next turn had already begun
      EXPECT_OK(engine->Truncate(session, 130));
    }
  }
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).tokens(), alone_[1].tokens());
}

// --- damage ---------------------------------------------------------------------------------

TEST_F(EngineFilesTest, DamagedStateIsComputedAgainAndSaysSo) {
  EngineOptions options = Options();
  options.state_disk_bytes = -1;  // only the session file
  {
    auto engine = StartEngine(options);
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
  }
  Flip(Files()[0], static_cast<int64_t>(fs::file_size(Files()[0])) / 2);
  auto engine = StartEngine(options);
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_OK(engine->Restore(session));
  EXPECT_THAT(engine->Inspect(session)->note, HasSubstr("recomputed"));
  EXPECT_EQ(engine->Inspect(session)->n_computed, 0);
  EXPECT_EQ(TokensOf(engine.get(), session).size(), 130u);
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).tokens(), alone_[1].tokens());
}

TEST_F(EngineFilesTest, ADamagedHeadIsAnErrorAndTheSessionIsListed) {
  {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
  }
  Flip(Files()[0], 60);
  auto engine = Start();
  const auto listed = engine->ListSessions("");
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_THAT((*listed)[0].note, Not(IsEmpty()));
  const SessionId session = (*listed)[0].id;
  EXPECT_EQ(engine->Restore(session).code(), StatusCode::kDataLoss);
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).done().status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kParked);
  EXPECT_OK(engine->Close(session, true)) << "what is damaged can be removed";
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(EngineFilesTest, AnotherModelsFileIsRefused) {
  {
    auto engine = StartEngine(Options(), TinyModel("llama", 2));
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
  }
  auto engine = Start();
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_THAT(engine->Restore(session), IsError(StatusCode::kFailedPrecondition, "model"));
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).done().status.code(),
            StatusCode::kFailedPrecondition);
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(EngineFilesTest, StateOfAnotherKvTypeIsComputedAgain) {
  EngineOptions options = Options();
  options.kv_type = KvType::kF32;
  {
    auto engine = StartEngine(options);
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
  }
  auto engine = Start();
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_OK(engine->Restore(session));
  EXPECT_THAT(engine->Inspect(session)->note, HasSubstr("f32"));
  EXPECT_EQ(TokensOf(engine.get(), session).size(), 130u);
  EXPECT_OK(RunTurn(engine.get(), session, turns_[1]).done().status);
}

TEST_F(EngineFilesTest, AFileWithTokensThatTheModelDoesNotKnowIsRefused) {
  {
    SessionHead head;
    head.name = "s";
    head.model = FingerprintOf(TinyModel("llama")->fingerprint());
    head.tokens = {300, testing::kTinyVocab};
    const auto directory = StateDirectory::Open(folder_.path());
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_OK((*directory)->Save(head, nullptr));
  }
  auto engine = Start();
  EXPECT_THAT(engine->Restore(*engine->FindSession("", "s")),
              IsError(StatusCode::kDataLoss, "not in the model's vocabulary"));
}

// --- failing disks -----------------------------------------------------------------------------

TEST_F(EngineFilesTest, AVanishedFileIsAClearError) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  EXPECT_OK(engine->Park(session));
  fs::remove(Files()[0]);
  EXPECT_EQ(engine->Restore(session).code(), StatusCode::kNotFound);
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).done().status.code(), StatusCode::kNotFound);
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineFilesTest, WhenAFileCannotBeWrittenTheSessionGoesOnUnharmed) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  // A file instead of the domain's directory: nobody can write there, not even root.
  EXPECT_TRUE(Eventually([&] { return !Files().empty(); }));
  EXPECT_TRUE(Eventually([&] { return fs::remove_all(fs::path(folder_.path()) / "@") > 0; }));
  std::ofstream(fs::path(folder_.path()) / "@") << "in the way";
  EXPECT_THAT(engine->Save(session).ToString(), Not(HasSubstr(folder_.path())));
  EXPECT_FALSE(engine->Park(session).ok());
  EXPECT_EQ(StateOf(engine.get(), session), SessionState::kReady);
  EXPECT_THAT(engine->Inspect(session)->note,
              AllOf(HasSubstr("saving failed"), Not(HasSubstr(folder_.path()))));
  EXPECT_EQ(RunTurn(engine.get(), session, turns_[1]).tokens(), alone_[1].tokens());
  // Shutdown reports unsaved sessions.
  EXPECT_FALSE(engine->Shutdown(std::chrono::milliseconds(0)).ok());
}

TEST_F(EngineFilesTest, SessionsThatCouldNotBeSavedAreToldUntilTheyAre) {
  const fs::path domain = fs::path(folder_.path()) / "@";
  std::ofstream(domain) << "in the way";
  Mutex mutex;
  std::vector<std::string> notices;
  EngineOptions options = Options();
  options.on_notice = [&](const std::string& text) {
    if (text.find("could not be saved") == text.npos) return;
    MutexLock lock(&mutex);
    notices.push_back(text);
  };
  auto engine = StartEngine(options);
  const auto unsaved = [&] { return engine->Stats().sessions_unsaved; };
  std::vector<SessionId> sessions;
  for (const char* const name : {"a", "b", "c"}) {
    sessions.push_back(NewSession(engine.get(), name));
    RunTurn(engine.get(), sessions.back(), turns_[0]);
  }
  EXPECT_TRUE(Eventually([&] { return unsaved() == 3; }));
  RunTurn(engine.get(), sessions[0], turns_[1]);
  EXPECT_TRUE(Eventually([&] { return engine->Stats().failed_saves >= 4; }));
  const std::string why = engine->Stats().save_problem;
  EXPECT_THAT(why, AllOf(Not(IsEmpty()), Not(HasSubstr("@"))));
  EXPECT_EQ(engine->Inspect(sessions[0])->unsaved, why);
  EXPECT_THAT(engine->Inspect(sessions[0])->note, HasSubstr("not on disk"));
  EXPECT_OK(engine->CheckIntegrity());
  EXPECT_OK(engine->Close(sessions[2], /*forget=*/false));
  EXPECT_TRUE(Eventually([&] { return unsaved() == 2; })) << "it is gone";
  {
    MutexLock lock(&mutex);
    EXPECT_THAT(notices, SizeIs(3)) << "one for each session";
    EXPECT_THAT(notices[0], HasSubstr("\"a\" could not be saved"));
  }
  // One success brings the others along.
  fs::remove(domain);
  RunTurn(engine.get(), NewSession(engine.get(), "d"), turns_[0]);
  EXPECT_TRUE(Eventually([&] { return unsaved() == 0; }));
  EXPECT_EQ(engine->Stats().save_problem, "");
  EXPECT_EQ(engine->Inspect(sessions[0])->unsaved, "");
  EXPECT_EQ(engine->Inspect(sessions[0])->note, "");
  EXPECT_THAT(Files(), SizeIs(3));
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineFilesTest, AStateDirectoryThatCannotBeUsedStopsTheStart) {
  const std::string file = folder_.path() + "/file";
  std::ofstream(file) << "x";
  EngineOptions options = Options();
  options.state_dir = file;
  EXPECT_FALSE(Engine::Start(TinyModel("llama"), options).ok());
  auto engine = Start();
  EXPECT_THAT(Engine::Start(TinyModel("llama"), Options()).status(),
              IsError(StatusCode::kFailedPrecondition, "in use"));
}

TEST_F(EngineFilesTest, AFullDiskIsAnErrorAndNothingIsLost) {
  // In a separate process whose file size is limited.
  const pid_t child = fork();
  if (child == 0) {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    if (!engine->Save(session).ok()) _exit(1);
    RunTurn(engine.get(), session, turns_[1]);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = 2048, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(2);
    if (engine->Save(session).ok()) _exit(3);
    if (engine->Park(session).ok()) _exit(4);
    const auto info = engine->Inspect(session);
    if (info->state != SessionState::kReady || info->n_computed != 159) _exit(5);
    if (!RunTurn(engine.get(), session, Greedy({300}, 3)).done().status.ok()) _exit(6);
    _exit(0);  // without a shutdown, as in a crash
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  auto engine = Start();
  // That version is intact, or a later one whose tokens fitted.
  const SessionId session = *engine->FindSession("", "s");
  EXPECT_GE(engine->Inspect(session)->n_tokens, 130);
  ExpectGoesOnFrom(engine.get(), session);
}

// --- shutdown ------------------------------------------------------------------------------------

TEST_F(EngineFilesTest, ShutdownLetsTurnsFinishAndParksNamedSessions) {
  {
    auto engine = Start();
    const SessionId named = NewSession(engine.get(), "s");
    NewSession(engine.get(), "empty");
    auto running = SubmitTurn(engine.get(), named, turns_[0]);
    auto other = *engine->SubmitOnce("", turns_[1]);
    EXPECT_OK(engine->Shutdown(std::chrono::seconds(30)));
    EXPECT_EQ(Collect(running.get()).tokens(), alone_[0].tokens());
    EXPECT_THAT(Collect(other.get()).tokens(), SizeIs(20));
    const auto down = IsError(StatusCode::kUnavailable, "shut down");
    EXPECT_THAT(engine->CreateSession({}).status(), down);
    EXPECT_THAT(engine->Submit(named, turns_[1]).status(), down);
    EXPECT_THAT(engine->Save(named), down);
    EXPECT_THAT(engine->Inspect(named).status(), down);
    EXPECT_OK(engine->Shutdown(std::chrono::seconds(0)));
  }
  EXPECT_THAT(Files(), SizeIs(1));
  auto engine = Start();
  EXPECT_EQ(RunTurn(engine.get(), *engine->FindSession("", "s"), turns_[1]).tokens(),
            alone_[1].tokens());
}

TEST_F(EngineFilesTest, ShutdownCutsWhatDoesNotFinishInTime) {
  EngineOptions options = Options();
  options.max_pending_events = 4;  // nobody reads, so the turn cannot finish
  auto engine = StartEngine(options);
  const SessionId session = NewSession(engine.get(), "s");
  auto turn = SubmitTurn(engine.get(), session, Greedy(RandomTokens(20, 1), 300));
  TurnOutcome outcome;
  ReadToFirstToken(turn.get(), &outcome);
  const auto begin = std::chrono::steady_clock::now();
  std::thread second([&] { EXPECT_OK(engine->Shutdown(std::chrono::seconds(20))); });
  EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(50)));
  second.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  while (auto event = turn->Next()) testing::AddEvent(*std::move(event), &outcome);
  EXPECT_THAT(outcome.done().status, IsError(StatusCode::kUnavailable, "shutting down"));
  engine = StartEngine(options);
  EXPECT_EQ(engine->Inspect(*engine->FindSession("", "s"))->n_tokens,
            20 + static_cast<int64_t>(outcome.tokens().size()));
}

class ShutdownOutcomeTest : public EngineFilesTest,
                            public ::testing::WithParamInterface<int64_t> {};
INSTANTIATE_TEST_SUITE_P(StateDiskBytes, ShutdownOutcomeTest, ::testing::Values(-1, 0));

TEST_P(ShutdownOutcomeTest, NamesAllThatItCouldNotSave) {
  EngineOptions options = Options();
  options.state_disk_bytes = GetParam();
  options.save_grace = std::chrono::milliseconds(0);
  auto engine = StartEngine(options);
  std::vector<std::shared_ptr<Turn>> turns;
  for (int i = 0; i < 20; ++i) {
    turns.push_back(SubmitTurn(engine.get(), NewSession(engine.get(), StrCat("name", i, ".")),
                               Greedy(RandomTokens(60, 1), 300)));
    TurnOutcome outcome;
    ReadToFirstToken(turns.back().get(), &outcome);
  }
  const Status status = engine->Shutdown(std::chrono::milliseconds(0));
  engine.reset();
  engine = StartEngine(options);
  for (int i = 0; i < 20; ++i) {
    const std::string name = StrCat("name", i, ".");
    const bool told = std::string(Message(status)).find(name) != std::string::npos;
    EXPECT_EQ(told, !engine->FindSession("", name).ok()) << name << " " << status;
  }
}

TEST_F(EngineFilesTest, ManyParkedAtOnceHoldFewCopies) {
  EngineOptions options = Options();
  options.memory_bytes = int64_t{64} << 20;
  auto engine = StartEngine(options);
  std::vector<SessionId> sessions;
  for (int i = 0; i < 30; ++i) {
    sessions.push_back(NewSession(engine.get(), StrCat("s", i)));
    RunTurn(engine.get(), sessions.back(), Greedy(RandomTokens(400, static_cast<uint64_t>(i)), 2));
  }
  std::vector<std::thread> threads;
  threads.reserve(sessions.size());
  for (const SessionId session : sessions) {
    threads.emplace_back([&, session] { EXPECT_OK(engine->Park(session)); });
  }
  const int64_t most =
      std::max<int64_t>(int64_t{8} << 20, engine->Inspect(sessions[0])->state_bytes);
  EXPECT_TRUE(Eventually([&] {
    const EngineStats stats = engine->Stats();
    EXPECT_LE(stats.save_bytes, most);
    return stats.sessions_parked == 30;
  }));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine->Stats().save_bytes, 0);
  for (const SessionId session : sessions) {
    EXPECT_EQ(engine->Inspect(session)->n_tokens, 402);
    EXPECT_OK(engine->Restore(session));
  }
}

TEST_F(EngineFilesTest, AStrayFileIsIgnoredAndTold) {
  {
    auto engine = Start();
    EXPECT_OK(engine->Save(NewSession(engine.get(), "s")));
  }
  const fs::path root = folder_.path();
  std::ofstream(root / "@notes") << "a file, not a folder";
  std::ofstream(root / "@" / "%07.session") << "of a name with a bell";
  std::ofstream(root / "@" / "readme.txt") << "whatever";
  std::ofstream(root / "stray") << "whatever";
  std::vector<std::string> notices;
  EngineOptions options = Options();
  options.on_notice = [&](const std::string& text) { notices.push_back(text); };
  auto engine = StartEngine(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_THAT(*engine->ListSessions(""), SizeIs(1));
  engine.reset();
  EXPECT_THAT(notices, ::testing::ElementsAre(HasSubstr("ignored in the state directory")));
}

TEST_F(EngineFilesTest, ASessionThatCannotBeRemovedStaysInTheList) {
  auto engine = Start();
  const SessionId session = NewSession(engine.get(), "s");
  RunTurn(engine.get(), session, turns_[0]);
  EXPECT_OK(engine->Save(session));
  // A directory instead of its file cannot be unlinked, not even by root.
  const fs::path file = Files()[0];
  fs::remove(file);
  fs::create_directories(file / "x");
  EXPECT_FALSE(engine->Close(session, /*forget=*/true).ok());
  const auto listed = engine->ListSessions("");
  ASSERT_THAT(*listed, SizeIs(1));
  EXPECT_THAT((*listed)[0].note,
              AllOf(HasSubstr("could not be removed"), Not(HasSubstr(folder_.path()))));
  fs::remove_all(file);
}

TEST_F(EngineFilesTest, ShutdownWakesWhoeverWaits) {
  EngineOptions options = SmallEngine();
  options.max_running = 1;
  options.max_pending_events = 2;
  auto engine = StartEngine(options);
  auto stalled = *engine->SubmitOnce("", Greedy({300}, 100));
  auto queued = *engine->SubmitOnce("", Greedy({300}, 100));
  std::thread waiter(
      [&] { EXPECT_EQ(Collect(queued.get()).done().status.code(), StatusCode::kUnavailable); });
  engine.reset();
  waiter.join();
  // Handles outlive their engine.
  EXPECT_EQ(Collect(stalled.get()).done().status.code(), StatusCode::kUnavailable);
  stalled->Cancel();
  bool finished = false;
  EXPECT_FALSE(stalled->TryNext(&finished).has_value());
  EXPECT_TRUE(finished);
}

TEST_F(EngineFilesTest, AResetSessionDoesNotComeBackAfterShutdown) {
  {
    auto engine = Start();
    const SessionId session = NewSession(engine.get(), "s");
    RunTurn(engine.get(), session, turns_[0]);
    EXPECT_OK(engine->Save(session));
    EXPECT_OK(engine->Reset(session));
  }
  auto engine = Start();
  EXPECT_EQ(engine->Inspect(*engine->FindSession("", "s"))->n_tokens, 0);
}

TEST_F(EngineFilesTest, CallsDuringShutdownAllGetAnAnswer) {
  for (int round = 0; round < 10; ++round) {
    auto engine = Start();
    std::vector<std::thread> threads;
    std::atomic<bool> down{false};
    threads.reserve(3);
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        const auto session = engine->CreateSession({.name = StrCat("s", round, "-", t)});
        while (session.ok() && !down) {
          auto turn = engine->Submit(*session, Greedy({300}, 2));
          if (turn.ok()) Collect(turn->get());
          if (t == 0) (void)engine->Save(*session);
          if (t == 1) (void)engine->Park(*session);
          if (t == 2) (void)engine->Rename(*session, StrCat("r", round));
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_OK(engine->Shutdown(std::chrono::milliseconds(2)));
    down = true;
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace weft
