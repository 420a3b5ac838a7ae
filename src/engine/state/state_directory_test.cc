#include "engine/state/state_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (fs::temp_directory_path() / "weft-state-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return StrCat(path_, "/", name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A session whose every part identifies its version.
SessionHead Versioned(std::string_view name, int64_t version, int64_t page_bytes = 4096) {
  SessionHead head;
  head.name = name;
  head.model = FingerprintOf("model");
  head.layout = FingerprintOf("layout");
  head.kv_type = "f32";
  head.updated_us = version;
  head.tokens.assign(64, static_cast<TokenId>(version));
  head.state_tokens = 64;
  head.page_tokens = 16;
  head.groups = {{page_bytes, 0}};
  return head;
}

StateSource PagesOf(int64_t version) {
  return [version](int, int64_t page, std::span<std::byte> out) {
    std::mt19937_64 random(static_cast<uint64_t>(version * 100 + page));
    for (std::byte& byte : out) byte = static_cast<std::byte>(random());
    return OkStatus();
  };
}

Status Save(StateDirectory* directory, std::string_view name, int64_t version) {
  return directory->Save(Versioned(name, version), PagesOf(version));
}

// The saved version, completely verified; -1 if there is none.
int64_t SavedVersion(const StateDirectory& directory, std::string_view name) {
  const auto reader = directory.Load("", name);
  if (reader.status().code() == StatusCode::kNotFound) return -1;
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return -2;
  const int64_t version = (*reader)->head().updated_us;
  EXPECT_EQ((*reader)->head().tokens, Versioned(name, version).tokens);
  const Status state =
      (*reader)->ReadState([&](int group, int64_t page, std::span<const std::byte> in) {
        std::vector<std::byte> expected(in.size());
        EXPECT_TRUE(PagesOf(version)(group, page, expected).ok());
        EXPECT_TRUE(std::ranges::equal(in, expected));
        return OkStatus();
      });
  EXPECT_TRUE(state.ok()) << state;
  return version;
}

// Runs `body` in a child; returns its exit code, or -1 if a signal killed it.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SafeFileNameTest, ReadableWherePossible) {
  EXPECT_EQ(SafeFileName("my-chat_7"), "my-chat_7");
  EXPECT_EQ(SafeFileName("Chat"), "%43hat");
  EXPECT_EQ(SafeFileName("../../etc/passwd"), "%2e%2e%2f%2e%2e%2fetc%2fpasswd");
  EXPECT_EQ(SafeFileName(""), "");
}

TEST(SafeFileNameTest, InjectiveAndShortForAnyBytes) {
  std::mt19937 random(1);
  std::set<std::string> names;
  std::set<std::string> files;
  const std::string alphabets[] = {"ab", "aA.", "/%=.~", std::string("\0\xff\x80\n", 4)};
  for (int i = 0; i < 20000; ++i) {
    const std::string& alphabet = alphabets[random() % 4];
    std::string name(random() % (i % 10 == 0 ? 129 : 6), ' ');
    for (char& c : name) {
      c = i % 3 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    }
    const std::string file = SafeFileName(name);
    ASSERT_LE(file.size(), 206u);
    ASSERT_EQ(file.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-%="),
              std::string::npos);
    ASSERT_EQ(NameOfSafeFile(file), name);
    names.insert(name);
    files.insert(file);
  }
  EXPECT_EQ(names.size(), files.size());
}

TEST(SafeFileNameTest, OtherFileNamesAreNotDecoded) {
  for (const std::string_view file :
       {"Chat", "a.b", "%", "%4", "%4g", "%61", "%2E", "=", "=aa", "a=b", "../x", "%c3%"}) {
    EXPECT_EQ(NameOfSafeFile(file), std::nullopt) << file;
  }
}

TEST(StateDirectoryTest, SavesLoadsListsAndRemoves) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "a/b/state/");
  EXPECT_EQ(SavedVersion(*directory, "x"), -1);
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  ASSERT_TRUE(Save(directory.get(), "x", 2).ok());
  ASSERT_TRUE(Save(directory.get(), "../y", 3).ok());
  EXPECT_EQ(SavedVersion(*directory, "x"), 2);

  auto list = *directory->List("");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "../y");
  EXPECT_EQ(list[1].name, "x");
  EXPECT_TRUE(list[1].health.ok());
  EXPECT_EQ(list[1].n_tokens, 64);
  EXPECT_EQ(list[1].state_tokens, 64);
  EXPECT_EQ(list[1].updated_us, 2);
  EXPECT_GT(list[1].file_bytes, 4 * 4096);

  EXPECT_TRUE(directory->Remove("", "x").ok());
  EXPECT_EQ(directory->Remove("", "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(SavedVersion(*directory, "x"), -1);
  EXPECT_EQ(SavedVersion(*directory, "../y"), 3);
}

TEST(StateDirectoryTest, FilesAreForTheOwnerAloneAndStayInside) {
  TempDir temp;
  umask(0);
  auto directory = *StateDirectory::Open(temp / "state");
  for (const std::string& name :
       {std::string("../../../tmp/x"), std::string("/abs"), std::string("."), std::string(".."),
        std::string("a\0b", 3), std::string(128, '/'), std::string("\xff\xfe")}) {
    SessionHead head = Versioned(name, 5);
    head.domain = name;
    ASSERT_TRUE(directory->Save(head, PagesOf(5)).ok());
    ASSERT_TRUE(directory->Load(name, name).ok());
  }
  EXPECT_EQ(directory->ListAll()->size(), 7u);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(temp.path())) {
    struct stat info;
    ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
    ASSERT_EQ(info.st_mode & 07777, S_ISDIR(info.st_mode) ? 0700u : 0600u) << entry.path();
    if (entry.path().extension() == ".session") ++files;
  }
  EXPECT_EQ(files, 7);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), fs::directory_iterator()), 1);
  umask(022);
}

TEST(StateDirectoryTest, DomainsAreApart) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  SessionHead head = Versioned("x", 1);
  head.domain = "a";
  ASSERT_TRUE(directory->Save(head, PagesOf(1)).ok());
  EXPECT_EQ(directory->Load("", "x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(directory->Load("b", "x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(directory->Remove("b", "x").code(), StatusCode::kNotFound);
  EXPECT_TRUE(directory->List("b")->empty());
  EXPECT_EQ(directory->List("a")->size(), 1u);
  EXPECT_TRUE(directory->Remove("a", "x").ok());
  EXPECT_FALSE(fs::exists(temp / "state/@a"));
}

TEST(StateDirectoryTest, NamesHaveLimits) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  EXPECT_EQ(Save(directory.get(), "", 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Save(directory.get(), std::string(129, 'a'), 1).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Save(directory.get(), std::string(128, 'A'), 1).ok());
}

TEST(StateDirectoryTest, IsLockedAgainstOthers) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  EXPECT_EQ(StateDirectory::Open(temp / "state").status().code(), StatusCode::kFailedPrecondition);
  const int child = InChild([&] {
    const auto second = StateDirectory::Open(temp / "state");
    return second.status().code() == StatusCode::kFailedPrecondition ? 0 : 1;
  });
  EXPECT_EQ(child, 0);
  directory.reset();
  EXPECT_TRUE(StateDirectory::Open(temp / "state").ok());
}

TEST(StateDirectoryTest, OpenRemovesLeftoversAndNothingElse) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  directory.reset();
  for (const char* name : {"state/@/.tmp-123-0", "state/@/notes.txt", "state/@/Bad.session"}) {
    std::ofstream(temp / name) << "?";
  }
  fs::create_directory(temp / "state/@empty");
  directory = *StateDirectory::Open(temp / "state");
  EXPECT_EQ(directory->leftovers_removed(), 1);
  EXPECT_TRUE(fs::exists(temp / "state/@/notes.txt"));
  EXPECT_EQ(directory->ListAll()->size(), 1u);
}

TEST(StateDirectoryTest, DamagedAndForeignFilesAreNamed) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "good", 1).ok());
  std::ofstream(temp / "state/@/cut.session") << "\x89WEFTSES";
  std::ofstream(temp / "state/@/text.session") << "hello, I am not a session";
  fs::copy(temp / "state/@/good.session", temp / "state/@/moved.session");
  fs::create_symlink(temp / "state/@/good.session", temp / "state/@/link.session");
  fs::create_directory(temp / "state/@/dir.session");
  ASSERT_EQ(mkfifo((temp / "state/@/pipe.session").c_str(), 0600), 0);

  const auto code = [&](std::string_view name) {
    return directory->Load("", name).status().code();
  };
  EXPECT_EQ(code("cut"), StatusCode::kDataLoss);
  EXPECT_EQ(code("text"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("moved"), StatusCode::kFailedPrecondition);
  EXPECT_NE(code("link"), StatusCode::kOk);
  EXPECT_EQ(code("dir"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("pipe"), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(directory->Load("", "cut").status())), HasSubstr("cut.session"));
  int healthy = 0;
  const auto list = *directory->ListAll();
  for (const SavedSession& session : list) healthy += session.health.ok() ? 1 : 0;
  EXPECT_EQ(list.size(), 7u);
  EXPECT_EQ(healthy, 1);
  EXPECT_TRUE(directory->Remove("", "cut").ok());
}

// Clients of a server read them.
TEST(StateDirectoryTest, MessagesDoNotTellWhereTheDirectoryIs) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "good", 1).ok());
  std::ofstream(temp / "state/@/cut.session") << "\x89WEFTSES";
  fs::copy(temp / "state/@/good.session", temp / "state/@/moved.session");
  fs::create_symlink(temp / "state/@/good.session", temp / "state/@/link.session");
  ASSERT_EQ(mkfifo((temp / "state/@/pipe.session").c_str(), 0600), 0);
  fs::create_directories(temp / "state/@/folder.session/x");
  std::ofstream(temp / "state/@other") << "a file";
  std::vector<Status> errors = {directory->Load("other", "x").status(),
                                directory->Remove("", "none"), directory->Remove("", "folder"),
                                Save(directory.get(), "folder", 1)};
  for (const char* name : {"none", "cut", "moved", "link", "pipe", "folder"}) {
    errors.push_back(directory->Load("", name).status());
  }
  SessionHead other = Versioned("x", 1);
  other.domain = "other";
  errors.push_back(directory->Save(other, PagesOf(1)));
  const std::vector<SavedSession> listed = *directory->ListAll();
  for (const SavedSession& session : listed) {
    if (!session.health.ok()) errors.push_back(session.health);
  }
  for (const Status& error : errors) {
    EXPECT_FALSE(error.ok());
    EXPECT_THAT(std::string(Message(error)), Not(HasSubstr(temp / "state")));
  }
}

TEST(StateDirectoryTest, AFailingSourceLeavesTheFormerVersion) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  const Status status =
      directory->Save(Versioned("x", 2), [](int, int64_t page, std::span<std::byte> out) {
        return page == 2 ? Unavailable("device gone") : PagesOf(2)(0, page, out);
      });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(SavedVersion(*directory, "x"), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp / "state/@"), fs::directory_iterator()), 1);
}

TEST(StateDirectoryTest, AFileTooLargeForItsLimitLeavesTheFormerVersion) {
  TempDir temp;
  const int child = InChild([&] {
    auto directory = StateDirectory::Open(temp / "state");
    if (!directory.ok() || !Save(directory->get(), "x", 1).ok()) return 1;
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10000, 10000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status status = Save(directory->get(), "x", 2);
    if (status.code() != StatusCode::kResourceExhausted) return 3;
    if (SavedVersion(**directory, "x") != 1) return 4;
    return (*directory)->List("")->size() == 1 ? 0 : 5;
  });
  EXPECT_EQ(child, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp / "state/@"), fs::directory_iterator()), 1);
}

#ifdef __linux__  // elsewhere no small file system is made so easily
TEST(StateDirectoryTest, OperatorsMayLinkItsDirectories) {
  TempDir temp;
  for (const char* const name : {"elsewhere", "above", "more"}) fs::create_directory(temp / name);
  fs::create_directory_symlink("elsewhere", temp / "link");
  fs::create_directory_symlink("above", temp / "parent");
  for (const char* const name : {"link", "link/", "parent/new"}) {
    auto directory = StateDirectory::Open(temp / name);
    ASSERT_TRUE(directory.ok()) << name << directory.status();
    EXPECT_TRUE(Save(directory->get(), "x", 1).ok());
    EXPECT_EQ(SavedVersion(**directory, "x"), 1);
  }
  EXPECT_TRUE(fs::exists(temp / "elsewhere/@/x.session"));
  EXPECT_TRUE(fs::exists(temp / "above/new/@/x.session"));
  // One domain on another disk.
  fs::rename(temp / "elsewhere/@", temp / "more/domain");
  fs::create_directory_symlink(temp / "more/domain", temp / "elsewhere/@");
  auto directory = *StateDirectory::Open(temp / "link");
  EXPECT_EQ(SavedVersion(*directory, "x"), 1);
  EXPECT_TRUE(Save(directory.get(), "x", 2).ok());
  EXPECT_TRUE(fs::exists(temp / "more/domain/x.session"));
  EXPECT_EQ(directory->ListAll()->size(), 1u);
  // The disk is not mounted: unknown is not missing.
  fs::rename(temp / "more/domain", temp / "more/away");
  EXPECT_EQ(directory->Load("", "x").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(Save(directory.get(), "x", 3)), HasSubstr("mount its disk"));
  EXPECT_FALSE(fs::exists(temp / "more/domain"));
  fs::create_directory_symlink("nowhere", temp / "dangling");
  EXPECT_THAT(Message(StateDirectory::Open(temp / "dangling").status()),
              HasSubstr("mount its disk"));
  EXPECT_FALSE(fs::exists(temp / "nowhere"));
}

TEST(StateDirectoryTest, LinksOfOthersAreNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make links of others";
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  fs::rename(temp / "state/@", temp / "elsewhere");
  fs::create_directory_symlink(temp / "elsewhere", temp / "state/@");
  EXPECT_EQ(SavedVersion(*directory, "x"), 1);
  ASSERT_EQ(lchown((temp / "state/@").c_str(), 12345, 12345), 0);
  EXPECT_THAT(Message(directory->Load("", "x").status()), HasSubstr("another user"));
  EXPECT_THAT(Message(Save(directory.get(), "x", 2)), HasSubstr("another user"));
  EXPECT_EQ(directory->Remove("", "x").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fs::exists(temp / "elsewhere/x.session"));
}

TEST(StateDirectoryTest, ThousandsOfEmptyFilesAreListed) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  for (int i = 0; i < 3000; ++i) std::ofstream(temp / StrCat("state/@/e", i, ".session"));
  const auto all = *directory->ListAll();
  ASSERT_EQ(all.size(), 3001u);
  EXPECT_EQ(std::ranges::count_if(all, [](const auto& saved) { return saved.health.ok(); }), 1);
  EXPECT_THAT(Message(all[0].health), HasSubstr("is empty"));
}

TEST(StateDirectoryTest, WithoutDescriptorsNothingIsTakenForMissing) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  const int child = InChild([&] {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    // The first is for the domain's directory, the second for the file.
    for (const int n_free : {0, 1}) {
      const int next = dup(0);
      close(next);
      const rlimit few{static_cast<rlim_t>(next + n_free), limit.rlim_max};
      if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
      if (directory->Load("", "x").status().code() != StatusCode::kUnavailable) return 3 + n_free;
      if (n_free == 0 && directory->Remove("", "x").code() != StatusCode::kUnavailable) return 5;
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
    }
    return SavedVersion(*directory, "x") == 1 ? 0 : 6;
  });
  EXPECT_EQ(child, 0);
}

TEST(StateDirectoryTest, AFullDiskLeavesTheFormerVersion) {
  TempDir temp;
  if (mount("none", temp.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here";
  }
  {
    auto directory = *StateDirectory::Open(temp / "state");
    EXPECT_TRUE(Save(directory.get(), "x", 1).ok());
    const Status status = directory->Save(Versioned("x", 2, 1 << 16), PagesOf(2));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("free some space"));
    EXPECT_EQ(SavedVersion(*directory, "x"), 1);
    EXPECT_TRUE(Save(directory.get(), "x", 3).ok());
    EXPECT_EQ(SavedVersion(*directory, "x"), 3);
  }
  EXPECT_EQ(umount(temp.path().c_str()), 0);
}
#endif

TEST(StateDirectoryTest, AReadOnlyDirectoryIsSaidToBeOne) {
  TempDir temp;
  ASSERT_EQ(chmod(temp.path().c_str(), 0777), 0);
  // The superuser may write anywhere, so become another user.
  const int child = InChild([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;
    auto directory = StateDirectory::Open(temp / "state");
    if (!directory.ok() || !Save(directory->get(), "x", 1).ok()) return 2;
    if (chmod((temp / "state/@").c_str(), 0500) != 0) return 3;
    if (Save(directory->get(), "x", 2).code() != StatusCode::kPermissionDenied) return 4;
    if (SavedVersion(**directory, "x") != 1) return 5;
    if ((*directory)->Remove("", "x").code() != StatusCode::kPermissionDenied) return 6;
    directory->reset();
    if (chmod((temp / "state/@").c_str(), 0700) != 0) return 7;
    if (chmod((temp / "state").c_str(), 0) != 0) return 8;
    const auto refused = StateDirectory::Open(temp / "state");
    if (refused.status().code() != StatusCode::kPermissionDenied) return 9;
    return chmod((temp / "state").c_str(), 0700) == 0 ? 0 : 10;
  });
  EXPECT_EQ(child, 0);
}

TEST(StateDirectoryTest, VanishedFilesAndDirectoriesAreErrors) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  const auto open = *directory->Load("", "x");
  fs::remove_all(temp / "state/@");
  EXPECT_EQ(directory->Load("", "x").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(directory->List("")->empty());
  // An open file can be read to its end, and the directory is recreated.
  EXPECT_TRUE(open->ReadState([](int, int64_t, auto) { return OkStatus(); }).ok());
  EXPECT_TRUE(Save(directory.get(), "x", 2).ok());
  fs::remove_all(temp / "state");
  EXPECT_EQ(Save(directory.get(), "x", 3).code(), StatusCode::kNotFound);
}

TEST(StateDirectoryTest, AFileCutWhileItIsReadIsDamage) {
  TempDir temp;
  auto directory = *StateDirectory::Open(temp / "state");
  ASSERT_TRUE(Save(directory.get(), "x", 1).ok());
  const auto open = *directory->Load("", "x");
  ASSERT_EQ(truncate((temp / "state/@/x.session").c_str(), 5000), 0);
  EXPECT_EQ(open->ReadState([](int, int64_t, auto) { return OkStatus(); }).code(),
            StatusCode::kDataLoss);
}

TEST(StateDirectoryTest, PathsThatCannotBeDirectories) {
  TempDir temp;
  std::ofstream(temp / "file") << "x";
  EXPECT_FALSE(StateDirectory::Open("").ok());
  EXPECT_FALSE(StateDirectory::Open(temp / "file").ok());
  EXPECT_FALSE(StateDirectory::Open(temp / "file/state").ok());
}

// A child saves version after version and reports each acknowledged one.
[[noreturn]] void SaveForever(const std::string& path, int pipe_fd, int64_t version) {
  auto directory = StateDirectory::Open(path);
  if (!directory.ok()) _exit(1);
  while (true) {
    ++version;
    if (!Save(directory->get(), "x", version).ok()) _exit(2);
    if (write(pipe_fd, &version, sizeof(version)) != sizeof(version)) _exit(3);
  }
}

TEST(StateDirectoryTest, NothingAcknowledgedIsLostByKill) {
  TempDir temp;
  std::mt19937 random(20);
  int64_t acknowledged = -1;
  int64_t saved = 0;
  for (int round = 0; round < 100; ++round) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) SaveForever(temp / "state", pipes[1], saved);
    close(pipes[1]);
    // After a few acknowledgements, at any moment of the save that follows.
    int64_t version = 0;
    for (uint32_t left = random() % 3; left > 0; --left) {
      ASSERT_EQ(read(pipes[0], &version, sizeof(version)), ssize_t{sizeof(version)});
      acknowledged = version;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);
    while (read(pipes[0], &version, sizeof(version)) == sizeof(version)) acknowledged = version;
    close(pipes[0]);
    auto directory = *StateDirectory::Open(temp / "state");
    const int64_t found = SavedVersion(*directory, "x");
    ASSERT_GE(found, acknowledged);
    ASSERT_LE(found, acknowledged + 1 + (acknowledged < 0 ? 1 : 0));
    saved = std::max<int64_t>(found, 0);
    acknowledged = found;
    ASSERT_FALSE(HasFailure());
    if (fs::exists(temp / "state/@")) {
      ASSERT_LE(std::distance(fs::directory_iterator(temp / "state/@"), fs::directory_iterator()),
                1);
    }
  }
  EXPECT_GT(saved, 50);
}

}  // namespace
}  // namespace weft
