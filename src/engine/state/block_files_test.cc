#include "engine/state/block_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kPayload = 3000;

std::vector<std::byte> Payload(uint64_t seed) {
  std::vector<std::byte> bytes(kPayload);
  std::mt19937_64 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

BlockInfo Block(TokenId number) {
  BlockInfo info;
  info.parent = BlockRoot("d");
  info.tokens = {number, number + 1};
  info.groups = 1;
  info.key = PageBlockKey(info.parent, info.tokens);
  info.bytes = BlockFiles::BytesOf(info, "d", kPayload);
  return info;
}

class BlockFilesTest : public ::testing::Test {
 protected:
  BlockFilesTest() {
    std::string pattern = (fs::temp_directory_path() / "weft-blocks-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~BlockFilesTest() override {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::unique_ptr<BlockFiles> Open(const std::string& folder = "mine") {
    auto files = BlockFiles::Open(path_, folder);
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }
  std::vector<BlockInfo> Own(BlockFiles* files) {
    BlockFiles::Listing listing = *files->List();
    for (const std::string& path : listing.useless) files->Remove(path);
    return std::move(listing.own);
  }
  fs::path FileOf(const BlockInfo& info) const {
    return fs::path(path_) / "mine" / info.key.ToHex();
  }
  static void Write(BlockFiles* files, TokenId number) {
    EXPECT_EQ(files->Write(Block(number), "d", Payload(static_cast<uint64_t>(number))), OkStatus());
  }

  std::string path_;
};

TEST_F(BlockFilesTest, TheOperatorMayLinkTheFolder) {
  Write(Open().get(), 1);
  const std::string moved = path_ + "-moved";
  fs::rename(path_, moved);
  fs::create_directory_symlink(moved, path_);
  auto files = Open();
  EXPECT_THAT(Own(files.get()), SizeIs(1));
  Write(files.get(), 2);
  EXPECT_TRUE(fs::exists(fs::path(moved) / "mine" / Block(2).key.ToHex()));
  fs::remove_all(moved);
  EXPECT_EQ(BlockFiles::Open(path_, "mine").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(BlockFilesTest, EmptyFilesAreRemovedUnopened) {
  Write(Open().get(), 1);
  for (int i = 0; i < 100; ++i) std::ofstream(fs::path(path_) / "mine" / StrCat(i));
  auto files = Open();
  EXPECT_THAT(Own(files.get()), SizeIs(1));
  EXPECT_EQ(files->files_opened(), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path_) / "mine"), {}), 1);
}

TEST_F(BlockFilesTest, WhatIsWrittenIsListedAndRead) {
  {
    auto files = Open();
    for (const TokenId number : {1, 2, 3}) Write(files.get(), number);
    files->Remove(StrCat("mine/", Block(2).key.ToHex()));
  }
  auto files = Open();
  const auto own = Own(files.get());
  ASSERT_THAT(own, SizeIs(2));
  for (const BlockInfo& info : own) {
    EXPECT_EQ(info.parent, BlockRoot("d"));
    EXPECT_EQ(info.bytes, Block(1).bytes) << "as it was known before it was written";
    const auto read = files->Read(info, "d", kPayload);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, Payload(static_cast<uint64_t>(info.tokens[0])));
    EXPECT_EQ(fs::status(FileOf(info)).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(files->Read(Block(2), "d", kPayload).status().code(), StatusCode::kDataLoss);
}

TEST_F(BlockFilesTest, TheIndexTellsWhatIsThereWithoutOpeningIt) {
  {
    auto files = Open();
    for (const TokenId number : {1, 2, 3}) Write(files.get(), number);
    auto own = Own(files.get());
    EXPECT_EQ(files->files_opened(), 3);
    for (BlockInfo& info : own) info.uses = 5;
    EXPECT_EQ(files->WriteIndex(own), OkStatus());
    Write(files.get(), 4);
    files->Remove(StrCat("mine/", Block(1).key.ToHex()));
  }
  auto files = Open();
  const auto own = Own(files.get());
  EXPECT_THAT(own, SizeIs(3));
  EXPECT_EQ(files->files_opened(), 1) << "the one that it does not know";
  for (const BlockInfo& info : own) EXPECT_EQ(info.uses, info.tokens[0] == 4 ? 0 : 5);
}

TEST_F(BlockFilesTest, DamageIsFoundWhereverItIs) {
  auto files = Open();
  Write(files.get(), 1);
  const fs::path path = FileOf(Block(1));
  const auto size = static_cast<int64_t>(fs::file_size(path));
  for (int64_t at = 0; at < size; at += at < 300 ? 1 : 37) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get());
    for (const char damage : {'\x01', '\x00'}) {
      file.seekp(at);
      file.put(static_cast<char>(byte ^ damage));
      file.flush();
      EXPECT_EQ(files->Read(Block(1), "d", kPayload).ok(), damage == 0) << at;
    }
  }
  EXPECT_FALSE(files->Read(Block(1), "other", kPayload).ok()) << "of another domain";
  EXPECT_FALSE(files->Read(Block(1), "d", kPayload + 1).ok());
  for (int64_t length = size - 1; length >= 0; length -= 97) {
    fs::resize_file(path, static_cast<uintmax_t>(length));
    EXPECT_FALSE(files->Read(Block(1), "d", kPayload).ok()) << length;
  }
}

// Clients of a server read them.
TEST_F(BlockFilesTest, MessagesDoNotTellWhereTheFolderIs) {
  const auto files = Open();
  const BlockInfo info = Block(1);
  fs::create_directories(FileOf(info) / "in the way");
  fs::create_directories(fs::path(path_) / "mine" / "index" / "in the way");
  for (const Status& error :
       {files->Write(info, "d", Payload(1)), files->Read(info, "d", kPayload).status(),
        files->Read(Block(2), "d", kPayload).status(), files->WriteIndex({info})}) {
    EXPECT_FALSE(error.ok());
    EXPECT_THAT(std::string(Message(error)), ::testing::Not(::testing::HasSubstr(path_)));
  }
}

// Too few descriptors, for example: the files are neither listed nor called useless.
TEST_F(BlockFilesTest, WhatCannotBeReadNowStays) {
  auto files = Open();
  for (TokenId number = 1; number <= 3; ++number) {
    ASSERT_TRUE(files->Write(Block(number), "d", Payload(static_cast<uint64_t>(number))).ok());
  }
  fs::create_symlink("nowhere", fs::path(path_) / "mine" / Block(4).key.ToHex());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // A single one is left.
  const int next = open("/dev/null", O_RDONLY);
  close(next);
  const rlimit one{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  const auto read = files->Read(Block(1), "d", kPayload);
  const int taken = open("/dev/null", O_RDONLY);
  const auto without = files->Read(Block(1), "d", kPayload);
  const auto link = files->Read(Block(4), "d", kPayload);
  close(taken);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(without.status().code(), StatusCode::kResourceExhausted) << without.status();
  EXPECT_EQ(link.status().code(), StatusCode::kDataLoss) << link.status();

  for (TokenId number = 1; number <= 3; ++number) {
    fs::permissions(fs::path(path_) / "mine" / Block(number).key.ToHex(), fs::perms::none);
  }
  // Permissions are not asked of root.
  fs::permissions(path_, fs::perms::all);
  fs::permissions(fs::path(path_) / "mine", fs::perms::all);
  const uid_t user = geteuid();
  ASSERT_EQ(seteuid(user == 0 ? 65534 : user), 0);
  const BlockFiles::Listing listing = *files->List();
  ASSERT_EQ(seteuid(user), 0);
  EXPECT_THAT(listing.own, IsEmpty());
  EXPECT_THAT(listing.useless, IsEmpty());
  EXPECT_EQ(listing.n_unread, 3) << listing.unread;
}

TEST_F(BlockFilesTest, WhatIsNoBlockIsNotListed) {
  {
    auto files = Open();
    for (const TokenId number : {1, 2, 3}) Write(files.get(), number);
  }
  fs::resize_file(FileOf(Block(1)), 50);
  fs::rename(FileOf(Block(2)), FileOf(Block(7)));
  std::ofstream(fs::path(path_) / "mine" / ".tmp-77-1") << "half a block";
  fs::create_directory(fs::path(path_) / "mine" / "folder");
  auto files = Open();
  const auto own = Own(files.get());
  ASSERT_THAT(own, SizeIs(1));
  EXPECT_EQ(own[0].key, Block(3).key);
  EXPECT_FALSE(fs::exists(fs::path(path_) / "mine" / ".tmp-77-1")) << "nobody needs it";
}

TEST_F(BlockFilesTest, ADamagedIndexIsDoneWithout) {
  {
    auto files = Open();
    for (const TokenId number : {1, 2, 3}) Write(files.get(), number);
    EXPECT_EQ(files->WriteIndex(Own(files.get())), OkStatus());
  }
  const fs::path index = fs::path(path_) / "mine" / "index";
  const auto size = fs::file_size(index);
  for (uintmax_t at = 0; at < size; at += 11) {
    const std::string good = [&] {
      std::ifstream in(index, std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    std::ofstream(index, std::ios::binary) << bad;
    EXPECT_THAT(Own(Open().get()), SizeIs(3)) << at;
    std::ofstream(index, std::ios::binary) << good;
  }
  fs::resize_file(index, size / 2);
  EXPECT_THAT(Own(Open().get()), SizeIs(3));
}

TEST_F(BlockFilesTest, AnotherModelsFilesAreCounted) {
  Write(Open("first").get(), 1);
  const auto listing = Open()->List();
  EXPECT_THAT(listing->own, IsEmpty());
  ASSERT_THAT(listing->foreign, SizeIs(1));
  EXPECT_EQ(listing->foreign[0].path, StrCat("first/", Block(1).key.ToHex()));
  EXPECT_EQ(listing->foreign[0].bytes, Block(1).bytes);
  auto files = Open();
  files->Remove(listing->foreign[0].path);
  EXPECT_THAT(files->List()->foreign, IsEmpty());
  EXPECT_FALSE(fs::exists(fs::path(path_) / "first")) << "the empty folder goes too";
}

TEST_F(BlockFilesTest, AFullDiskLeavesNothingOfABlock) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto files = Open();
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = files->Write(Block(1), "d", Payload(1));
    _exit(status.code() == StatusCode::kResourceExhausted && Own(files.get()).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(fs::is_empty(fs::path(path_) / "mine"));
}

// Killed at any moment, a process leaves only complete blocks in the listing.
TEST_F(BlockFilesTest, AKillLeavesWholeBlocks) {
  int64_t seen = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      auto files = Open();
      for (TokenId number = 0;; number = (number + 1) % 50) Write(files.get(), number);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + 700 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    auto files = Open();
    for (const BlockInfo& info : Own(files.get())) {
      const auto read = files->Read(info, "d", kPayload);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, Payload(static_cast<uint64_t>(info.tokens[0])));
      ++seen;
    }
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace weft
