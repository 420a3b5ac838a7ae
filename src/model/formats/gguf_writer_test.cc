// Files that are written read back the same.

#include "model/formats/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/files/mapped_file.h"
#include "model/formats/gguf_test_util.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MustParse;

const std::vector<int64_t> kFour = {4};

TEST(GgufWriter, MetadataSurvives) {
  GgufWriter writer;
  writer.AddUint32("u32", 1);
  writer.AddUint32("u32", 7);
  writer.AddInt32("i32", -7);
  writer.AddUint64("u64", ~uint64_t{0});
  writer.AddFloat32("f32", 0.1f);
  writer.AddBool("bool", true);
  writer.AddString("text", "häßlich");
  writer.AddStringArray("texts", std::vector<std::string>{"a", "", std::string("\0", 1)});
  writer.AddInt32Array("i32s", std::vector<int32_t>{-1, 2});
  writer.AddUint32Array("u32s", std::vector<uint32_t>{1, ~0u});
  writer.AddFloat32Array("f32s", std::vector<float>{0.1f, -2});
  writer.AddBoolArray("bools", {true, false, true});
  const std::string bytes = writer.ToBytes();
  const auto file = MustParse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->metadata().size(), 11u);
  EXPECT_EQ(file->metadata()[0].key, "u32");
  EXPECT_EQ(*file->GetInt("u32"), 7) << "the second value replaces the first";
  EXPECT_EQ(*file->GetInt("i32"), -7);
  EXPECT_EQ(std::get<uint64_t>(*file->FindMeta("u64")), ~uint64_t{0});
  EXPECT_EQ(*file->GetFloat("f32"), 0.1f);
  EXPECT_EQ(*file->GetBool("bool"), true);
  EXPECT_EQ(*file->GetString("text"), "häßlich");
  EXPECT_THAT(*file->GetStringArray("texts"), ElementsAre("a", "", std::string_view("\0", 1)));
  EXPECT_THAT(*file->GetIntArray("i32s"), ElementsAre(-1, 2));
  EXPECT_THAT(*file->GetIntArray("u32s"), ElementsAre(1, 4294967295));
  EXPECT_THAT(*file->GetFloatArray("f32s"), ElementsAre(0.1f, -2));
  EXPECT_THAT(*file->GetIntPerLayer("bools", 3), ElementsAre(1, 0, 1));
}

// Compares through the writer's own encoding, which is injective.
TEST(GgufWriter, CopiedValuesAreTheSame) {
  MetaArray numbers, texts, bools, nested;
  numbers.items = std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 5};
  texts.items = std::vector<std::string_view>{"x", ""};
  bools.items = std::vector<bool>{false, true};
  nested.items = std::vector<MetaArray>{numbers, texts, bools, MetaArray()};
  GgufWriter writer;
  writer.AddMeta("u", uint64_t{5});
  writer.AddMeta("i", int64_t{-5});
  writer.AddMeta("d", 0.1);
  writer.AddMeta("b", false);
  writer.AddMeta("s", std::string_view("text"));
  writer.AddMeta("a", nested);
  const std::string bytes = writer.ToBytes();
  const auto file = MustParse(bytes);
  ASSERT_NE(file, nullptr);
  GgufWriter copy;
  for (const auto& [key, value] : file->metadata()) copy.AddMeta(key, value);
  EXPECT_EQ(copy.ToBytes(), bytes);
  EXPECT_EQ(*file->GetFloat("d"), 0.1);
  const auto& items =
      std::get<std::vector<MetaArray>>(std::get<MetaArray>(*file->FindMeta("a")).items);
  EXPECT_THAT(std::get<std::vector<int64_t>>(items[0].items),
              ElementsAre(std::numeric_limits<int64_t>::min(), 5));
  EXPECT_THAT(std::get<std::vector<bool>>(items[2].items), ElementsAre(false, true));
}

class GgufWriterFileTest : public ::testing::Test {
 protected:
  GgufWriterFileTest() : dir_(StrCat(::testing::TempDir(), "weft_gguf_writer_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~GgufWriterFileTest() override { std::filesystem::remove_all(dir_); }
  size_t FilesInDir() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }
  const std::string dir_;
};

TEST_F(GgufWriterFileTest, TensorsSurvive) {
  std::vector<std::byte> q8(34 * 6);
  for (size_t i = 0; i < q8.size(); ++i) q8[i] = static_cast<std::byte>(i * 7);
  for (const uint32_t alignment : {8u, 32u, 4096u}) {
    GgufWriter writer;
    writer.AddUint32("general.alignment", alignment);
    writer.AddTensor("stream", DType::kF32, std::vector<int64_t>{3, 5, 2},
                     [](int64_t row, std::span<std::byte> bytes) {
                       ASSERT_EQ(bytes.size(), 12u);
                       const float values[3] = {static_cast<float>(row), 0.5f, -1};
                       std::memcpy(bytes.data(), values, sizeof(values));
                     });
    writer.AddTensor("held", DType::kQ8_0, std::vector<int64_t>{64, 3}, q8);
    const std::string path = dir_ + "/m.gguf";
    ASSERT_TRUE(writer.Write(path).ok());
    EXPECT_EQ(FilesInDir(), 1u) << "the temporary file is gone";
    EXPECT_EQ(*ReadFile(path, 1 << 20), writer.ToBytes());
    auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const TensorInfo& stream = (*file)->tensors()[0];
    EXPECT_THAT(stream.dims, ElementsAre(3, 5, 2, 1));
    for (int64_t row = 0; row < 10; ++row) {
      float values[3];
      std::memcpy(values, stream.data.data() + row * 12, sizeof(values));
      EXPECT_THAT(values, ElementsAre(static_cast<float>(row), 0.5f, -1.0f));
    }
    const TensorInfo& held = (*file)->tensors()[1];
    EXPECT_EQ(held.type, DType::kQ8_0);
    EXPECT_TRUE(std::equal(held.data.begin(), held.data.end(), q8.begin(), q8.end()));
    EXPECT_EQ((held.data.data() - stream.data.data()) % alignment, 0);
  }
}

TEST_F(GgufWriterFileTest, RefusesImpossibleTensors) {
  const std::vector<std::byte> data(16);
  struct Case {
    std::string name;
    DType type;
    std::vector<int64_t> dims;
    const char* says;
  };
  const Case cases[] = {
      {"", DType::kF32, {4}, "name"},
      {std::string(65, 'n'), DType::kF32, {4}, "name"},
      {"a\nb", DType::kF32, {4}, "name"},
      {"t", static_cast<DType>(31), {4}, "type 31"},
      {"t", DType::kF32, {}, "dimensions"},
      {"t", DType::kF32, {1, 1, 1, 1, 4}, "dimensions"},
      {"t", DType::kF32, {4, 0}, "4 x 0"},
      {"t", DType::kF32, {4, -1}, "4 x -1"},
      {"t", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, "impossible"},
      {"t", DType::kQ4_0, {33}, "33"},
      {"t", DType::kF32, {5}, "16 bytes"},
      {"twin", DType::kF32, {4}, "twice"},
  };
  for (const Case& c : cases) {
    GgufWriter writer;
    writer.AddTensor("twin", DType::kF32, kFour, data);
    writer.AddTensor(c.name, c.type, c.dims, data);
    const Status status = writer.Write(dir_ + "/m.gguf");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(Message(status), HasSubstr(c.says));
    EXPECT_EQ(FilesInDir(), 0u);
  }
}

TEST_F(GgufWriterFileTest, RefusesImpossibleKeys) {
  for (const std::string& key : {std::string(), std::string("a\0", 2), std::string("\xff")}) {
    GgufWriter writer;
    writer.AddUint32(key, 1);
    EXPECT_EQ(writer.Write(dir_ + "/m.gguf").code(), StatusCode::kInvalidArgument);
  }
  GgufWriter writer;
  writer.AddUint32("general.alignment", 24);
  EXPECT_THAT(Message(writer.Write(dir_ + "/m.gguf")), HasSubstr("general.alignment"));
  EXPECT_EQ(FilesInDir(), 0u);
}

TEST_F(GgufWriterFileTest, FailureKeepsTheOldFileAndLeavesNothing) {
  const std::string path = dir_ + "/m.gguf";
  const std::string old = "the old file";
  ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(old))).ok());
  GgufWriter writer;
  writer.AddTensor(
      "t", DType::kF32, std::vector<int64_t>{1024, 8192},
      [](int64_t, std::span<std::byte> bytes) { std::memset(bytes.data(), 1, bytes.size()); });
  // A file size limit simulates a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited = {rlim_t{4} << 20, before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  const Status status = writer.Write(path);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr(path));
  EXPECT_EQ(*ReadFile(path, 100), old);
  EXPECT_EQ(FilesInDir(), 1u);
  EXPECT_EQ(writer.Write(dir_ + "/absent/m.gguf").code(), StatusCode::kNotFound);
  EXPECT_FALSE(writer.Write(dir_).ok()) << "a directory is no place for a file";
  const std::string pipe = dir_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(writer.Write(pipe).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::remove(pipe);
  EXPECT_EQ(FilesInDir(), 1u);
}

}  // namespace
}  // namespace weft
