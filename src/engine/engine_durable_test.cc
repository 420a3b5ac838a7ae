// What a client has been told is on disk: a turn with EngineOptions::durable, a save with its
// state.
#include <sys/wait.h>

#include <fstream>

#include "engine/engine_test_util.h"
#include "engine/state/state_directory.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class EngineDurableTest : public ::testing::Test {
 protected:
  EngineOptions Options() const {
    EngineOptions options = SmallEngine();
    options.state_dir = folder_.path();
    options.durable = true;
    return options;
  }
  // Reads a copy, because a running engine has the directory's lock. -1: there is no file.
  int64_t TokensOnDisk(const std::string& name) const {
    const std::string file = "@/" + SafeFileName(name) + ".session";
    const fs::path copy = fs::path(folder_.path()) / ("copy of " + name);
    fs::create_directories(copy / "@");
    std::error_code error;
    fs::copy_file(fs::path(folder_.path()) / file, copy / file,
                  fs::copy_options::overwrite_existing, error);
    const auto directory = StateDirectory::Open(copy);
    if (error || !directory.ok()) return -1;
    const auto reader = (*directory)->Load("", name);
    return reader.ok() ? std::ssize((*reader)->head().tokens) : -1;
  }

  const TestFolder folder_;
};

TEST_F(EngineDurableTest, ACrashRightAfterTheLastEventLosesNothing) {
  int64_t known = 0;
  for (uint64_t turn = 1; turn <= 8; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      const auto engine = StartEngine(Options());
      const auto found = engine->FindSession("", "s");
      const SessionId session = found.ok() ? *found : NewSession(engine.get(), "s");
      const bool ok =
          RunTurn(engine.get(), session, Greedy(RandomTokens(40, turn), 4)).done().status.ok();
      _exit(ok ? 0 : 1);  // at once, as if by kill -9
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
    const int64_t now = TokensOnDisk("s");
    EXPECT_GE(now, known + 40) << "turn " << turn << " is not on disk";
    known = now;
  }
}

TEST_F(EngineDurableTest, EachTurnInQuickSuccessionIsOnDisk) {
  const auto engine = StartEngine(Options());
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      const SessionId session = NewSession(engine.get(), StrCat("s", client));
      for (uint64_t turn = 1; turn <= 10; ++turn) {
        RunTurn(engine.get(), session, Greedy(RandomTokens(3, turn), 2));
        EXPECT_EQ(TokensOnDisk(StrCat("s", client)), engine->Inspect(session)->n_tokens)
            << "turn " << turn;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_OK(engine->CheckIntegrity());
}

TEST_F(EngineDurableTest, ATurnThatCannotBeWrittenEndsAndTheSessionSaysWhy) {
  // A file instead of the domain's directory: nobody can write there, not even root.
  std::ofstream(fs::path(folder_.path()) / "@") << "in the way";
  const auto engine = StartEngine(Options());
  const SessionId session = NewSession(engine.get(), "s");
  EXPECT_OK(RunTurn(engine.get(), session, Greedy(RandomTokens(40, 1), 4)).done().status);
  EXPECT_NE(engine->Inspect(session)->unsaved, "");
}

// The next turn's file has tokens alone, so that a crash finds the state in blocks or nowhere.
TEST_F(EngineDurableTest, ASavedSessionIsInBlocksToo) {
  EngineOptions options = Options();
  options.durable = false;
  const auto engine = StartEngine(options);
  for (uint64_t i = 1; i <= 30; ++i) {
    const SessionId session = NewSession(engine.get(), StrCat("s", i));
    RunTurn(engine.get(), session, Greedy(RandomTokens(200, i), 4));
    EXPECT_OK(i % 2 == 0 ? engine->Park(session) : engine->Save(session));
    EXPECT_EQ(engine->Stats().disk_pending, 0) << i;
  }
}

TEST_F(EngineDurableTest, AnEngineThatEndsLeavesNobodyWaiting) {
  for (int round = 0; round < 20; ++round) {
    auto engine = StartEngine(Options());
    std::vector<std::thread> clients;
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back([&, client] {
        auto turn =
            engine->SubmitNamed({.name = StrCat("s", client)}, Greedy(RandomTokens(20, 1), 8), {});
        if (turn.ok()) Collect(turn->turn.get());
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    (void)engine->Shutdown(std::chrono::milliseconds(0));
    for (std::thread& client : clients) client.join();
  }
}

TEST(EngineDurableOptionsTest, NeedADirectory) {
  EngineOptions options = SmallEngine();
  options.durable = true;
  const auto engine = Engine::Start(TinyModel("llama"), options);
  EXPECT_THAT(engine.status().ToString(), ::testing::HasSubstr("state_dir"));
}

}  // namespace
}  // namespace weft
