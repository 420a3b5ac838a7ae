#include "cli/serve/running_servers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RunningServersTest : public ::testing::Test {
 protected:
  RunningServersTest() {
    char pattern[] = "/tmp/weft_running_XXXXXX";
    folder_ = std::string(mkdtemp(pattern)) + "/weft";
  }
  ~RunningServersTest() override {
    std::filesystem::remove_all(std::filesystem::path(folder_).parent_path());
  }
  // Number of files in the folder.
  int64_t Files() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }
  const RunningServer server_ = {.pid = getpid(),
                                 .address = "http://127.0.0.1:8080",
                                 .model = "tiny",
                                 .started_s = 100,
                                 .sessions = 3,
                                 .running = 1,
                                 .memory_bytes = 1 << 20,
                                 .models = {{.name = "tiny",
                                             .memory_bytes = 1 << 20,
                                             .adapters = {"law", "rhyme"},
                                             .agents = 3,
                                             .ready_agents = 2}}};
  std::string folder_;
};

TEST_F(RunningServersTest, AServerIsListedWhileItLives) {
  EXPECT_THAT(ListRunningServers(folder_), IsEmpty());
  auto entry = ServerEntry::Make(folder_, server_);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_THAT(ListRunningServers(folder_), ElementsAre(server_));
  RunningServer later = server_;
  later.sessions = 4;
  (*entry)->Update(later);
  EXPECT_THAT(ListRunningServers(folder_), ElementsAre(later));
  entry->reset();
  EXPECT_THAT(ListRunningServers(folder_), IsEmpty());
  EXPECT_EQ(Files(), 0);
}

TEST_F(RunningServersTest, TheFolderIsTheUsersAlone) {
  auto entry = ServerEntry::Make(folder_, server_);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(std::filesystem::status(folder_).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(RunningServersTest, OneThatWasKilledIsNotListedAndItsEntryIsRemoved) {
  auto own = ServerEntry::Make(folder_, server_);
  ASSERT_TRUE(own.ok()) << own.status();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RunningServer other = server_;
    other.pid = getpid();
    const auto entry = ServerEntry::Make(folder_, other);
    (void)!write(ready[1], entry.ok() ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_EQ(ListRunningServers(folder_).size(), 2u);
  EXPECT_EQ(Files(), 4);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_THAT(ListRunningServers(folder_), ElementsAre(server_));
  EXPECT_EQ(Files(), 2);
}

TEST_F(RunningServersTest, WhereTheEntriesAre) {
  const auto folder = [](const char* runtime, const char* state) {
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    setenv("XDG_STATE_HOME", state, 1);
    setenv("HOME", "/home/x", 1);
    return RunningServersFolder();
  };
  EXPECT_EQ(folder("/run/user/7", "/state"), "/run/user/7/weft");
  EXPECT_EQ(folder("", "/state"), "/state/weft/run");
  EXPECT_EQ(folder("here", ""), "/home/x/.local/state/weft/run");
}

}  // namespace
}  // namespace weft::cli
