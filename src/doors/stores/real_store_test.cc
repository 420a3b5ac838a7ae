// Against the programs that serve S3 where there are any: one that keeps its promises, and one that
// does not.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "doors/stores/s3_server_test_util.h"
#include "doors/stores/s3_store.h"
#include "doors/stores/store_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::stores {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Condition = ObjectStore::Condition;

// A program that serves S3, ended with the object.
class StoreProgram {
 public:
  // `arguments` may hold PORT and FOLDER.
  StoreProgram(std::vector<std::string> arguments, const std::vector<std::string>& environment) {
    folder_ = std::filesystem::path(::testing::TempDir()) / StrCat("weft_s3_", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "talks");
    port_ = FreePort();
    std::vector<std::string> variables = environment;
    for (const char* const kept : {"PATH", "HOME"}) {
      if (const char* const value = getenv(kept)) variables.push_back(StrCat(kept, "=", value));
    }
    std::vector<char*> argv, envp;
    for (std::string& one : arguments) {
      if (one == "FOLDER") one = folder_.string();
      if (one == "PORT") one = StrCat(port_);
      if (one == "ADDRESS") one = StrCat("127.0.0.1:", port_);
      argv.push_back(one.data());
    }
    for (std::string& one : variables) envp.push_back(one.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~StoreProgram() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  StoreProgram(const StoreProgram&) = delete;
  StoreProgram& operator=(const StoreProgram&) = delete;

  S3Options Options() const {
    S3Options options = OptionsFor(StrCat("http://127.0.0.1:", port_));
    options.access_key = "weft";
    options.secret_key = "weft-secret";
    options.region = "us-east-1";
    return options;
  }
  // False: it has not come up within half a minute.
  static bool Comes(S3Store* store) {
    for (int i = 0; i < 300; ++i) {
      if (store->Get("none").status().code() != StatusCode::kUnavailable) return true;
      std::this_thread::sleep_for(milliseconds(100));
    }
    return false;
  }

 private:
  static int FreePort() {
    const S3TestServer server([](const S3Request&) { return S3Reply(); });
    return std::stoi(server.host().substr(server.host().find(':') + 1));
  }
  std::filesystem::path folder_;
  int port_ = 0;
  pid_t pid_ = -1;
};

TEST(RealStoreTest, VersitygwKeepsItsWord) {
  const char* const program = getenv("WEFT_VERSITYGW");
  if (program == nullptr) GTEST_SKIP() << "set WEFT_VERSITYGW to the program versitygw";
  const StoreProgram server(
      {program, "--port", "ADDRESS", "--keep-alive", "--quiet", "posix", "FOLDER"},
      {"ROOT_ACCESS_KEY=weft", "ROOT_SECRET_KEY=weft-secret"});
  S3Store store(server.Options());
  ASSERT_TRUE(StoreProgram::Comes(&store));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ProbeStore(store), OkStatus());
  for (const std::string name : {"sessions/@me/a%40b=c", "blocks/%/x@y", "100%"}) {
    std::string body = "of " + name;
    body.resize(3 << 20, 'x');
    const auto tag = store.Put(name, body, Condition::Absent());
    ASSERT_TRUE(tag.ok()) << tag.status();
    const auto object = store.Get(name);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_TRUE(object->body == body && object->tag == *tag);
    EXPECT_EQ(store.Remove(name), OkStatus());
  }
  EXPECT_EQ(store.Get("never/was").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store.Put("never/was", "", Condition::Unchanged("\"a\"")).status().code(),
            StatusCode::kFailedPrecondition);
  S3Options options = server.Options();
  options.secret_key = "another";
  EXPECT_EQ(S3Store(options).Get("x").status().code(), StatusCode::kPermissionDenied);
  options = server.Options();
  options.bucket = "nobucket";
  EXPECT_EQ(S3Store(options).Put("x", "", Condition::None()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(RealStoreTest, NanioIsRefused) {
  const char* const program = getenv("WEFT_NANIO");
  if (program == nullptr) GTEST_SKIP() << "set WEFT_NANIO to the program nanio";
  const StoreProgram server({program, "serve", "--host", "127.0.0.1", "--port", "PORT",
                             "--data-dir", "FOLDER", "--no-access-log"},
                            {"NANIO_ACCESS_KEY=weft", "NANIO_SECRET_KEY=weft-secret"});
  S3Store store(server.Options());
  ASSERT_TRUE(StoreProgram::Comes(&store));
  const Status status = ProbeStore(store);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("lets two writers create one object"));
}

}  // namespace
}  // namespace weft::stores
