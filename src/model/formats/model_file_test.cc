// Typed access to metadata, tensors, and split series.

#include "model/formats/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "model/formats/gguf_test_util.h"
#include "model/formats/gguf_writer.h"

namespace weft {
namespace {

using gguf::MetaType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MustParse;
using ::testing::Not;
using testing::Raw;
using ::testing::StartsWith;

template <typename T>
void ExpectError(const StatusOr<T>& result, StatusCode code, std::string_view key) {
  ASSERT_FALSE(result.ok()) << key;
  EXPECT_EQ(result.status().code(), code) << result.status();
  EXPECT_THAT(Message(result.status()), AllOf(HasSubstr("m.gguf"), HasSubstr(key)));
}

// Every scalar type of the format, and the type it is widened to.
TEST(ModelFile, ReadsEveryScalarType) {
  Raw raw;
  raw.Header(0, 13, 2);
  raw.Str("u8").Type(MetaType::kUint8).U8(200);
  raw.Str("i8").Type(MetaType::kInt8).Put<int8_t>(-100);
  raw.Str("u16").Type(MetaType::kUint16).Put<uint16_t>(60000);
  raw.Str("i16").Type(MetaType::kInt16).Put<int16_t>(-30000);
  raw.Str("u32").Type(MetaType::kUint32).U32(4'000'000'000);
  raw.Str("i32").Type(MetaType::kInt32).Put<int32_t>(-2'000'000'000);
  raw.Str("u64").Type(MetaType::kUint64).U64(~uint64_t{0});
  raw.Str("i64").Type(MetaType::kInt64).Put(std::numeric_limits<int64_t>::min());
  raw.Str("f32").Type(MetaType::kFloat32).Put(0.1f);
  raw.Str("f64").Type(MetaType::kFloat64).Put(0.1);
  raw.Str("no").Type(MetaType::kBool).U8(0);
  raw.Str("yes").Type(MetaType::kBool).U8(1);
  raw.Str("text").Type(MetaType::kString).Str({"a\0\xff", 3});
  const auto file = MustParse(raw.str());
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->file_bytes(), raw.str().size());
  EXPECT_EQ(*file->GetInt("u8"), 200);
  EXPECT_EQ(*file->GetInt("i8"), -100);
  EXPECT_EQ(*file->GetInt("u16"), 60000);
  EXPECT_EQ(*file->GetInt("i16"), -30000);
  EXPECT_EQ(*file->GetInt("u32"), 4'000'000'000);
  EXPECT_EQ(*file->GetInt("i32"), -2'000'000'000);
  EXPECT_EQ(*file->GetInt("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*file->GetFloat("f32"), 0.1f);
  EXPECT_EQ(*file->GetFloat("f64"), 0.1);
  EXPECT_EQ(*file->GetFloat("i8"), -100.0);
  EXPECT_EQ(*file->GetBool("no"), false);
  EXPECT_EQ(*file->GetBool("yes"), true);
  EXPECT_EQ(*file->GetString("text"), std::string_view("a\0\xff", 3));
  EXPECT_EQ(std::get<uint64_t>(*file->FindMeta("u64")), ~uint64_t{0});
  EXPECT_EQ(file->metadata()[12].key, "text");
}

TEST(ModelFile, TypedAccessRefusesOtherKinds) {
  Raw raw;
  raw.Header(0, 4);
  raw.Str("u64").Type(MetaType::kUint64).U64(~uint64_t{0});
  raw.Str("f32").Type(MetaType::kFloat32).Put(2.0f);
  raw.Str("yes").Type(MetaType::kBool).U8(1);
  raw.Str("text").Type(MetaType::kString).Str("1");
  const auto file = MustParse(raw.str());
  ASSERT_NE(file, nullptr);
  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  ExpectError(file->GetInt("u64"), kBad, "u64");
  ExpectError(file->GetInt("f32"), kBad, "f32");
  ExpectError(file->GetInt("yes"), kBad, "yes");
  ExpectError(file->GetIntOr("text", 3), kBad, "text");
  ExpectError(file->GetFloatOr("text", 3), kBad, "text");
  ExpectError(file->GetBoolOr("f32", true), kBad, "f32");
  ExpectError(file->GetStringOr("f32", "x"), kBad, "f32");
  ExpectError(file->GetIntArray("f32"), kBad, "f32");
  ExpectError(file->GetStringArray("text"), kBad, "text");
  ExpectError(file->GetIntPerLayer("text", 2), kBad, "text");
}

TEST(ModelFile, AbsentKeys) {
  const auto file = MustParse(Raw().Header(0, 0).str());
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->HasMeta("k"));
  ExpectError(file->GetInt("k"), StatusCode::kNotFound, "k");
  ExpectError(file->GetString("k"), StatusCode::kNotFound, "k");
  ExpectError(file->GetFloatArray("k"), StatusCode::kNotFound, "k");
  ExpectError(file->GetIntPerLayer("k", 2), StatusCode::kNotFound, "k");
  EXPECT_EQ(*file->GetIntOr("k", -3), -3);
  EXPECT_EQ(*file->GetFloatOr("k", 0.5), 0.5);
  EXPECT_EQ(*file->GetBoolOr("k", true), true);
  EXPECT_EQ(*file->GetStringOr("k", "x"), "x");
  EXPECT_EQ(file->FindTensor("t"), -1);
}

template <typename T>
void PutArray(Raw* raw, std::string_view key, MetaType type, std::initializer_list<T> items) {
  raw->Str(key).Type(MetaType::kArray).Type(type).U64(items.size());
  for (const T item : items) raw->Put(item);
}

TEST(ModelFile, ReadsEveryArrayType) {
  Raw raw;
  raw.Header(0, 13);
  PutArray<uint8_t>(&raw, "u8", MetaType::kUint8, {1, 255});
  PutArray<int8_t>(&raw, "i8", MetaType::kInt8, {-1, 127});
  PutArray<uint16_t>(&raw, "u16", MetaType::kUint16, {1, 65535});
  PutArray<int16_t>(&raw, "i16", MetaType::kInt16, {-1, 1});
  PutArray<uint32_t>(&raw, "u32", MetaType::kUint32, {1, ~0u});
  PutArray<int32_t>(&raw, "i32", MetaType::kInt32, {-1, 1});
  PutArray<uint64_t>(&raw, "u64", MetaType::kUint64, {1, ~uint64_t{0}});
  PutArray<int64_t>(&raw, "i64", MetaType::kInt64, {-1, 1});
  PutArray<float>(&raw, "f32", MetaType::kFloat32, {0.5f, -2});
  PutArray<double>(&raw, "f64", MetaType::kFloat64, {0.1});
  PutArray<uint8_t>(&raw, "bool", MetaType::kBool, {1, 0});
  raw.Str("text").Type(MetaType::kArray).Type(MetaType::kString).U64(2).Str("").Str("ab");
  raw.Str("deep").Type(MetaType::kArray).Type(MetaType::kArray).U64(2);
  raw.Type(MetaType::kUint8).U64(1).U8(9).Type(MetaType::kString).U64(1).Str("x");
  const auto file = MustParse(raw.str());
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(*file->GetIntArray("u8"), ElementsAre(1, 255));
  EXPECT_THAT(*file->GetIntArray("i8"), ElementsAre(-1, 127));
  EXPECT_THAT(*file->GetIntArray("u16"), ElementsAre(1, 65535));
  EXPECT_THAT(*file->GetIntArray("i16"), ElementsAre(-1, 1));
  EXPECT_THAT(*file->GetIntArray("u32"), ElementsAre(1, 4294967295));
  EXPECT_THAT(*file->GetFloatArray("i32"), ElementsAre(-1, 1));
  EXPECT_THAT(*file->GetIntArray("i64"), ElementsAre(-1, 1));
  EXPECT_THAT(*file->GetFloatArray("f32"), ElementsAre(0.5, -2));
  EXPECT_THAT(*file->GetFloatArray("f64"), ElementsAre(0.1));
  EXPECT_THAT(*file->GetStringArray("text"), ElementsAre("", "ab"));
  const auto& deep = std::get<MetaArray>(*file->FindMeta("deep"));
  ASSERT_EQ(deep.size(), 2u);
  const auto& items = std::get<std::vector<MetaArray>>(deep.items);
  EXPECT_THAT(std::get<std::vector<uint64_t>>(items[0].items), ElementsAre(9));
  EXPECT_THAT(std::get<std::vector<std::string_view>>(items[1].items), ElementsAre("x"));

  constexpr StatusCode kBad = StatusCode::kInvalidArgument;
  ExpectError(file->GetIntArray("u64"), kBad, "u64");
  ExpectError(file->GetIntArray("f32"), kBad, "f32");
  ExpectError(file->GetIntArray("bool"), kBad, "bool");
  ExpectError(file->GetFloatArray("text"), kBad, "text");
  ExpectError(file->GetStringArray("u8"), kBad, "u8");
  ExpectError(file->GetIntArray("deep"), kBad, "deep");
}

TEST(ModelFile, EmptyArraysAreOfEveryKind) {
  Raw raw;
  raw.Header(0, 1).Str("k").Type(MetaType::kArray).Type(MetaType::kFloat32).U64(0);
  const auto file = MustParse(raw.str());
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->GetIntArray("k")->empty());
  EXPECT_TRUE(file->GetFloatArray("k")->empty());
  EXPECT_TRUE(file->GetStringArray("k")->empty());
}

TEST(ModelFile, PerLayerValuesAreScalarsOrArrays) {
  GgufWriter writer;
  writer.AddUint32("scalar", 8);
  writer.AddBool("flag", true);
  writer.AddInt32Array("array", std::vector<int32_t>{1, 0, 8});
  writer.AddBoolArray("flags", {true, false, true});
  writer.AddFloat32Array("floats", std::vector<float>{1, 2, 3});
  const std::string bytes = writer.ToBytes();
  const auto file = MustParse(bytes);
  ASSERT_NE(file, nullptr);
  EXPECT_THAT(*file->GetIntPerLayer("scalar", 3), ElementsAre(8, 8, 8));
  EXPECT_THAT(*file->GetIntPerLayer("flag", 2), ElementsAre(1, 1));
  EXPECT_THAT(*file->GetIntPerLayer("array", 3), ElementsAre(1, 0, 8));
  EXPECT_THAT(*file->GetIntPerLayer("flags", 3), ElementsAre(1, 0, 1));
  ExpectError(file->GetIntPerLayer("array", 4), StatusCode::kInvalidArgument, "array");
  ExpectError(file->GetIntPerLayer("floats", 3), StatusCode::kInvalidArgument, "floats");
}

TEST(ModelFile, FindsTensorsByName) {
  Raw raw;
  raw.Header(3, 0).Tensor("b", {8, 2}, 0, 32).Tensor("a", {8}, 0, 0).Tensor("c", {32}, 8, 96);
  raw.Data(96 + 34);
  const auto file = MustParse(raw.str());
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(file->FindTensor("b"), 0);
  EXPECT_EQ(file->FindTensor("a"), 1);
  EXPECT_EQ(file->FindTensor("c"), 2);
  EXPECT_EQ(file->FindTensor("d"), -1);
  const TensorInfo& b = file->tensors()[0];
  EXPECT_EQ(b.n_dims, 2);
  EXPECT_THAT(b.dims, ElementsAre(8, 2, 1, 1));
  EXPECT_EQ(b.rows(), 2);
  EXPECT_EQ(b.values(), 16);
  EXPECT_EQ(b.row_bytes(), 32);
  EXPECT_EQ(b.data.size(), 64u);
  EXPECT_EQ(b.data.data(), file->tensors()[1].data.data() + 32);
  EXPECT_EQ(file->tensors()[2].data.size(), 34u);
}

class SplitTest : public ::testing::Test {
 protected:
  SplitTest() : dir_(StrCat(::testing::TempDir(), "weft_split_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~SplitTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(int no, int count) const {
    return StrCat(dir_, "/m-0000", no, "-of-0000", count, ".gguf");
  }

  // One part of three: a tensor of four floats, each `no`.
  void WritePart(int no, std::string_view tensor, const std::string& path, int split_no,
                 int split_count = 3, int n_tensors = 3) {
    GgufWriter writer;
    if (no == 0) writer.AddString("general.architecture", "llama");
    writer.AddUint32("split.no", static_cast<uint32_t>(split_no));
    writer.AddUint32("split.count", static_cast<uint32_t>(split_count));
    writer.AddInt32("split.tensors.count", n_tensors);
    const std::vector<float> values(4, static_cast<float>(no));
    writer.AddTensor(tensor, DType::kF32, std::vector<int64_t>{4},
                     std::as_bytes(std::span(values)));
    const Status status = writer.Write(path);
    ASSERT_TRUE(status.ok()) << status;
  }
  void WriteThree() {
    for (int no = 0; no < 3; ++no) WritePart(no, StrCat("t", no), Path(no + 1, 3), no);
  }
  std::string OpenError(const std::string& path) {
    auto file = ModelFile::Open(path);
    return file.ok() ? "" : std::string(Message(file.status()));
  }

  const std::string dir_;
};

TEST_F(SplitTest, OpensAllParts) {
  WriteThree();
  std::vector<double> progress;
  ModelFile::OpenOptions options;
  options.progress = [&](double fraction) { progress.push_back(fraction); };
  auto opened = ModelFile::Open(Path(1, 3), options);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const ModelFile& file = **opened;
  EXPECT_EQ(*file.GetString("general.architecture"), "llama");
  uint64_t bytes = 0;
  for (int no = 0; no < 3; ++no) {
    bytes += std::filesystem::file_size(Path(no + 1, 3));
    const int index = file.FindTensor(StrCat("t", no));
    ASSERT_EQ(index, no);
    const TensorInfo& tensor = file.tensors()[static_cast<size_t>(index)];
    float value;
    std::memcpy(&value, tensor.data.data() + 12, sizeof(value));
    EXPECT_EQ(value, static_cast<float>(no));
    value = -1;
    ASSERT_TRUE(file.Read(tensor, 4, std::as_writable_bytes(std::span(&value, 1))).ok());
    EXPECT_EQ(value, static_cast<float>(no));
    file.WillNeed(tensor);
    file.Release(tensor, tensor.data);
  }
  EXPECT_EQ(file.file_bytes(), bytes);
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back(), 1.0);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
}

TEST_F(SplitTest, NamesAndMetadataStayWhenAPartIsCutShort) {
  WriteThree();
  const auto file = ModelFile::Open(Path(1, 3));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->CheckUnchanged().ok());
  for (int no = 1; no <= 3; ++no) std::filesystem::resize_file(Path(no, 3), 0);
  EXPECT_EQ(*(*file)->GetString("general.architecture"), "llama");
  EXPECT_EQ((*file)->FindTensor("t2"), 2);
  const Status status = (*file)->CheckUnchanged();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              AllOf(StartsWith("m-00001-of-00003.gguf became shorter"), Not(HasSubstr(dir_))));
}

// A string that claims to be as long as the file, which is mostly holes.
TEST_F(SplitTest, MetadataWithoutEndIsRefused) {
  constexpr uint64_t kBytes = uint64_t{1} << 34;
  Raw raw;
  raw.Header(0, 1).Str("key").Type(MetaType::kString).U64(kBytes - 1000);
  const std::string path = dir_ + "/holes.gguf";
  ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(raw.str()))).ok());
  std::filesystem::resize_file(path, kBytes);
  EXPECT_THAT(OpenError(path), AllOf(HasSubstr(path), HasSubstr("the most that is supported")));
}

TEST_F(SplitTest, ALaterPartPointsToTheFirst) {
  WriteThree();
  EXPECT_THAT(OpenError(Path(2, 3)), AllOf(HasSubstr("part 2"), HasSubstr(Path(1, 3))));
}

TEST_F(SplitTest, AMissingPartIsNamed) {
  WriteThree();
  std::filesystem::remove(Path(3, 3));
  EXPECT_THAT(OpenError(Path(1, 3)), AllOf(HasSubstr(Path(3, 3)), HasSubstr("part 3 of 3")));
}

TEST_F(SplitTest, ARenamedFirstPartIsRefused) {
  WriteThree();
  std::filesystem::rename(Path(1, 3), dir_ + "/m.gguf");
  EXPECT_THAT(OpenError(dir_ + "/m.gguf"), HasSubstr("-00001-of-00003.gguf"));
}

TEST_F(SplitTest, SwappedPartsAreRefused) {
  WriteThree();
  WritePart(1, "t1", Path(2, 3), 2);
  EXPECT_THAT(OpenError(Path(1, 3)), AllOf(HasSubstr(Path(2, 3)), HasSubstr("split.no")));
}

TEST_F(SplitTest, PartsOfDifferentSeriesAreRefused) {
  WriteThree();
  WritePart(1, "t1", Path(2, 3), 1, 4);
  EXPECT_THAT(OpenError(Path(1, 3)), AllOf(HasSubstr(Path(2, 3)), HasSubstr("split.count")));
}

TEST_F(SplitTest, ATensorInTwoPartsIsRefused) {
  WriteThree();
  WritePart(2, "t0", Path(3, 3), 2);
  EXPECT_THAT(OpenError(Path(1, 3)), AllOf(HasSubstr("tensor t0"), HasSubstr("two parts")));
}

TEST_F(SplitTest, TheNumberOfTensorsIsChecked) {
  WriteThree();
  WritePart(0, "t0", Path(1, 3), 0, 3, 4);
  EXPECT_THAT(OpenError(Path(1, 3)), HasSubstr("split.tensors.count"));
}

TEST_F(SplitTest, ADamagedPartIsNamed) {
  WriteThree();
  std::filesystem::resize_file(Path(3, 3), 100);
  EXPECT_THAT(OpenError(Path(1, 3)), HasSubstr(Path(3, 3)));
}

TEST_F(SplitTest, AWholeModelMayBeNamedLikeAPart) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  ASSERT_TRUE(writer.Write(Path(1, 2)).ok());
  EXPECT_EQ(OpenError(Path(1, 2)), "");
}

}  // namespace
}  // namespace weft
