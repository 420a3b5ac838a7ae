#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/aligned_buffer.h"

// The sanitizers' allocators abort on an impossible request unless told to return null as the
// system's allocator does (for tsan see tests/support/tsan_defaults.cc).
extern "C" const char* __asan_default_options() {  // NOLINT: the sanitizer names it
  return "allocator_may_return_null=1";
}

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() : dir_(StrCat(::testing::TempDir(), "weft_mapped_file_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~MappedFileTest() override { std::filesystem::remove_all(dir_); }

  std::string Write(std::string_view name, std::string_view contents) {
    const std::string path = StrCat(dir_, "/", name);
    EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(contents))).ok());
    return path;
  }

  const std::string dir_;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(MappedFileTest, MapsTheWholeFile) {
  std::string contents(100'000, 'x');
  contents.back() = 'y';
  const std::string path = Write("file", contents);
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->path(), path);
  EXPECT_EQ(AsText((*file)->bytes()), contents);
}

// Advice may be given about any part and never changes what is read.
TEST_F(MappedFileTest, AdviceKeepsTheContents) {
  const std::string contents(100'000, 'x');
  auto file = MappedFile::Open(Write("file", contents));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto bytes = (*file)->bytes();
  for (const auto part : {bytes, bytes.subspan(1, 5000), bytes.subspan(4096, 4096),
                          bytes.subspan(99'999), bytes.subspan(17, 0)}) {
    (*file)->WillNeed(part);
    (*file)->Release(part);
  }
  EXPECT_EQ(AsText(bytes), contents);
}

TEST_F(MappedFileTest, ReadsPartsWithoutTheMapping) {
  const std::string contents = "a file of some words";
  const std::string path = Write("file", contents);
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::byte> out(4);
  ASSERT_TRUE((*file)->Read((*file)->bytes().subspan(2, 4), out).ok());
  EXPECT_EQ(AsText(out), "file");
  ASSERT_TRUE((*file)->Read((*file)->bytes().subspan(16), out).ok());
  EXPECT_EQ(AsText(out), "ords");
  std::filesystem::resize_file(path, 18);
  const Status status = (*file)->Read((*file)->bytes().subspan(16), out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), AllOf(HasSubstr(path), HasSubstr("shorter")));
}

TEST_F(MappedFileTest, AFileThatIsCutShortReadsAsZerosAndIsTold) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::string path = Write("file", std::string(100 * page, 'x'));
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
  std::filesystem::resize_file(path, 10 * page);
  for (const size_t at : {99 * page, 50 * page + 3, 10 * page}) {
    EXPECT_EQ((*file)->bytes()[at], std::byte{0}) << at;
  }
  EXPECT_EQ(AsText((*file)->bytes().first(10 * page)), std::string(10 * page, 'x'));
  const Status status = (*file)->CheckUnchanged();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("file became shorter"), HasSubstr("in use")));
  // Bytes that were read as zeros do not become right again.
  std::filesystem::resize_file(path, 100 * page);
  EXPECT_EQ((*file)->CheckUnchanged().code(), StatusCode::kDataLoss);
}

TEST_F(MappedFileTest, WhatIsHeldStaysAsItWas) {
  const std::string contents(1'000'000, 'x');
  const std::string path = Write("file", contents);
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_GE(*(*file)->Hold(1), 1u);
  const size_t held = *(*file)->Hold(500'001);
  EXPECT_GE(held, 500'001u);
  EXPECT_LT(held, contents.size());
  EXPECT_EQ(*(*file)->Hold(17), held);
  EXPECT_EQ(AsText((*file)->bytes()), contents);
  std::filesystem::resize_file(path, 0);
  (*file)->Release((*file)->bytes());
  EXPECT_EQ(AsText((*file)->bytes().first(held)), contents.substr(0, held));
  EXPECT_EQ((*file)->Hold(held + 1).status().code(), StatusCode::kDataLoss);
  auto small = MappedFile::Open(Write("small", "a few words"));
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_GE(*(*small)->Hold(11), 11u);
  std::filesystem::resize_file(dir_ + "/small", 0);
  EXPECT_EQ(AsText((*small)->bytes()), "a few words");
}

TEST_F(MappedFileTest, TellsWhenTheFileWasWrittenTo) {
  const std::string path = Write("file", "a file of some words");
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
  Write("other", "a file of four words");
  std::filesystem::rename(dir_ + "/other", path);  // a different file
  EXPECT_TRUE((*file)->CheckUnchanged().ok());

  auto other = MappedFile::Open(path);
  ASSERT_TRUE(other.ok()) << other.status();
  const timespec later[2] = {{.tv_sec = 2'000'000'000}, {.tv_sec = 2'000'000'000}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), later, 0), 0);
  const Status status = (*other)->CheckUnchanged();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("was written to"), Not(HasSubstr(dir_))));
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
}

TEST_F(MappedFileTest, MapsAnEmptyFile) {
  auto file = MappedFile::Open(Write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->bytes().empty());
  (*file)->WillNeed((*file)->bytes());
  (*file)->Release((*file)->bytes());
}

TEST_F(MappedFileTest, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(MappedFile::Open(dir_ + "/absent").status().code(), StatusCode::kNotFound);
  for (const std::string& path : {dir_, std::string("/dev/null")}) {
    const Status status = MappedFile::Open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(path));
  }
  // Nobody writes to this pipe: opening it must not block.
  const std::string pipe = dir_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(pipe).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(MappedFileTest, ReadFileIsBounded) {
  const std::string path = Write("file", "twelve bytes");
  EXPECT_EQ(*ReadFile(path, 12), "twelve bytes");
  const Status status = ReadFile(path, 11).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr(path));
  EXPECT_EQ(ReadFile(dir_ + "/absent", 12).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadFile(dir_, 12).ok());
}

TEST_F(MappedFileTest, WriteFileReplacesAndReportsFullDisks) {
  Write("file", "a longer text than the next");
  EXPECT_EQ(*ReadFile(Write("file", "short"), 100), "short");
  EXPECT_EQ(WriteFile(dir_ + "/absent/file", {}).code(), StatusCode::kNotFound);
  if (std::filesystem::exists("/dev/full")) {
    const std::string text = "text";
    EXPECT_EQ(WriteFile("/dev/full", std::as_bytes(std::span(text))).code(),
              StatusCode::kResourceExhausted);
  }
}

TEST(AlignedBuffer, IsAlignedAndMovable) {
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4096}, size_t{9} << 20}) {
    AlignedBuffer buffer(size);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kCacheLineBytes, 0u);
    std::memset(buffer.data(), 1, size);
    const std::byte* const data = buffer.data();
    AlignedBuffer moved(std::move(buffer));
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(moved.As<float>().size(), size / sizeof(float));
  }
}

TEST(AlignedBuffer, IsEmptyWhenThereIsNoMemory) {
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
  for (const size_t size : {~size_t{0}, ~size_t{0} / 2}) {
    AlignedBuffer buffer(size);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_EQ(buffer.size(), 0u);
  }
}

}  // namespace
}  // namespace weft
