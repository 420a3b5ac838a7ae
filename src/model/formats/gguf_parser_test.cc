// Reading invalid files.

#include "model/formats/gguf_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/formats/gguf_test_util.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using gguf::MetaType;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Raw;

// Copied to the heap at its exact size, so that a sanitizer detects any read beyond it.
StatusOr<std::shared_ptr<const ModelFile>> Parse(std::string_view bytes) {
  const std::unique_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  auto file = ModelFile::FromBytes("m.gguf", {copy.get(), bytes.size()});
  if (file.ok()) testing::TouchAll(**file);
  // The views would dangle; only the status matters here.
  if (file.ok()) return std::shared_ptr<const ModelFile>();
  return file;
}

void ExpectOneLine(const Status& status) {
  EXPECT_THAT(Message(status), HasSubstr("m.gguf"));
  EXPECT_THAT(Message(status), Not(HasSubstr("\n")));
  EXPECT_LT(status.message().size(), 1000u);
}

struct HostileCase {
  const char* name;
  std::function<void(Raw*)> build;
  std::vector<const char*> says;
};

void PrintTo(const HostileCase& c, std::ostream* out) { *out << c.name; }

class HostileTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileTest, IsRefusedWithASentence) {
  Raw raw;
  GetParam().build(&raw);
  const Status status = Parse(raw.str()).status();
  ASSERT_FALSE(status.ok());
  ExpectOneLine(status);
  for (const char* text : GetParam().says) EXPECT_THAT(Message(status), HasSubstr(text));
}

constexpr uint32_t kF32 = 0, kQ4_0 = 2;
constexpr uint64_t kHuge = uint64_t{1} << 62;

// One metadata entry "k" of the given type; the value follows.
Raw& Entry(Raw* raw, MetaType type) { return raw->Header(0, 1).Str("k").Type(type); }
Raw& ArrayOf(Raw* raw, MetaType type, uint64_t count) {
  return Entry(raw, MetaType::kArray).Type(type).U64(count);
}

const HostileCase kHeaderCases[] = {
    {"Empty", [](Raw* r) {}, {"is empty"}},
    {"OneByte", [](Raw* r) { r->Bytes("G"); }, {"not a GGUF"}},
    {"AnotherFormat", [](Raw* r) { r->Bytes("PK\x03\x04 and more"); }, {"not a GGUF", "PK\\x03"}},
    {"OldGgml", [](Raw* r) { r->Bytes("tjgg").U64(1).U64(1); }, {"not a GGUF"}},
    {"Version0", [](Raw* r) { r->Header(0, 0, 0); }, {"version 0"}},
    {"Version1", [](Raw* r) { r->Header(0, 0, 1); }, {"version 1", "convert"}},
    {"Version4", [](Raw* r) { r->Header(0, 0, 4); }, {"version 4"}},
    {"BigEndian", [](Raw* r) { r->Bytes("GGUF").U32(0x03000000).U64(0).U64(0); }, {"big-endian"}},
    {"ManyEntries", [](Raw* r) { r->Header(0, kHuge).Data(64); }, {"metadata entries"}},
    {"AllEntries", [](Raw* r) { r->Header(0, ~uint64_t{0}).Data(64); }, {"metadata entries"}},
    {"ManyTensors", [](Raw* r) { r->Header(kHuge, 0).Data(64); }, {"tensors"}},
    {"MoreEntriesThanBytes",
     [](Raw* r) { r->Header(0, 2).Str("k").U32(0).U8(1); },
     {"metadata entries"}},
};

const HostileCase kMetadataCases[] = {
    {"KeyEmpty", [](Raw* r) { r->Header(0, 1).Str("").U32(0).U64(1); }, {"entry 0", "key"}},
    {"KeyWithNul",
     [](Raw* r) {
       r->Header(0, 1).Str({"a\0b", 3}).U32(0).U64(1);
     },
     {"a\\x00b"}},
    {"KeyNotUtf8", [](Raw* r) { r->Header(0, 1).Str("a\xff").U32(0).U64(1); }, {"a\\xff"}},
    {"KeyWithEscape", [](Raw* r) { r->Header(0, 1).Str("\x1b[31m").U32(0).U64(1); }, {"\\x1b"}},
    {"KeyTooLong",
     [](Raw* r) { r->Header(0, 1).Str(std::string(65536, 'k')).U32(0).U64(1); },
     {"too long"}},
    {"KeyBeyondEnd", [](Raw* r) { r->Header(0, 1).U64(7).Bytes("123456"); }, {"ends inside"}},
    {"KeyOfHugeSize", [](Raw* r) { r->Header(0, 1).U64(~uint64_t{0}).Data(32); }, {"ends inside"}},
    {"KeyTwice",
     [](Raw* r) { r->Header(0, 2).Str("k").U32(0).U8(1).Str("k").U32(0).U8(2).Data(32); },
     {"key k", "twice"}},
    {"TypeUnknown", [](Raw* r) { r->Header(0, 1).Str("k").U32(13).U64(0); }, {"key k", "13"}},
    {"TypeHuge", [](Raw* r) { r->Header(0, 1).Str("k").U32(~0u).U64(0); }, {"key k", "unknown"}},
    {"BoolOfTwo", [](Raw* r) { Entry(r, MetaType::kBool).U8(2); }, {"key k", "bool", "2"}},
    {"NumberCut", [](Raw* r) { Entry(r, MetaType::kUint64).U32(1); }, {"key k", "ends inside"}},
    {"StringCut",
     [](Raw* r) { Entry(r, MetaType::kString).U64(4).Bytes("abc"); },
     {"key k", "ends inside"}},
    {"StringHuge",
     [](Raw* r) { Entry(r, MetaType::kString).U64(~uint64_t{0}).Bytes("abc"); },
     {"key k", "ends inside"}},
    {"ArrayTypeUnknown",
     [](Raw* r) { Entry(r, MetaType::kArray).U32(99).U64(0); },
     {"key k", "99"}},
    {"ArrayWithoutCount", [](Raw* r) { Entry(r, MetaType::kArray).U32(0); }, {"ends inside"}},
    {"ArrayCut", [](Raw* r) { ArrayOf(r, MetaType::kUint32, 3).U64(0); }, {"key k", "3 items"}},
    {"ArrayCountWraps",
     [](Raw* r) { ArrayOf(r, MetaType::kUint64, (uint64_t{1} << 61) + 1).U64(0); },
     {"key k", "items"}},
    {"ArrayOfManyBytes",
     [](Raw* r) { ArrayOf(r, MetaType::kUint8, kHuge).U64(0); },
     {"key k", "items"}},
    {"ArrayOfManyStrings",
     [](Raw* r) { ArrayOf(r, MetaType::kString, 1'000'000'000).U64(0); },
     {"key k", "items"}},
    {"ArrayOfManyArrays",
     [](Raw* r) { ArrayOf(r, MetaType::kArray, 1'000'000'000).U64(0); },
     {"key k", "items"}},
    {"ArrayWithBadBool",
     [](Raw* r) { ArrayOf(r, MetaType::kBool, 2).U8(1).U8(3); },
     {"key k", "bool 1", "3"}},
    {"ArrayWithCutString",
     [](Raw* r) { ArrayOf(r, MetaType::kString, 2).Str("ab").U64(9).Bytes("abc"); },
     {"key k", "ends inside"}},
    {"ArraysTooDeep",
     [](Raw* r) {
       Entry(r, MetaType::kArray);
       for (int i = 0; i < 1000; ++i) r->Type(MetaType::kArray).U64(1);
     },
     {"key k", "nested"}},
    {"AlignmentZero",
     [](Raw* r) { r->Header(0, 1).Str("general.alignment").Type(MetaType::kUint32).U32(0); },
     {"general.alignment", "power of two"}},
    {"AlignmentOdd",
     [](Raw* r) { r->Header(0, 1).Str("general.alignment").Type(MetaType::kUint32).U32(48); },
     {"general.alignment", "48"}},
    {"AlignmentSmall",
     [](Raw* r) { r->Header(0, 1).Str("general.alignment").Type(MetaType::kUint32).U32(4); },
     {"general.alignment", "4"}},
    {"AlignmentHuge",
     [](Raw* r) { r->Header(0, 1).Str("general.alignment").Type(MetaType::kUint64).U64(kHuge); },
     {"general.alignment"}},
    {"AlignmentText",
     [](Raw* r) { r->Header(0, 1).Str("general.alignment").Type(MetaType::kString).Str("32"); },
     {"general.alignment", "integer"}},
    {"SplitInMemory",
     [](Raw* r) { r->Header(0, 1).Str("split.count").Type(MetaType::kUint32).U32(2); },
     {"split.count"}},
};

const HostileCase kTensorCases[] = {
    {"NameEmpty", [](Raw* r) { r->Header(1, 0).Tensor("", {4}, kF32, 0).Data(16); }, {"tensor 0"}},
    {"NameWithNul",
     [](Raw* r) {
       r->Header(1, 0).Tensor({"a\0", 2}, {4}, kF32, 0).Data(16);
     },
     {"a\\x00"}},
    {"NameNotUtf8",
     [](Raw* r) { r->Header(1, 0).Tensor("\xc3(", {4}, kF32, 0).Data(16); },
     {"\\xc3"}},
    {"NameTooLong",
     [](Raw* r) { r->Header(1, 0).Tensor(std::string(65, 'n'), {4}, kF32, 0).Data(16); },
     {"tensor 0", "longer"}},
    {"NameHuge", [](Raw* r) { r->Header(1, 0).U64(~uint64_t{0}).Data(64); }, {"ends inside"}},
    {"NameTwice",
     [](Raw* r) { r->Header(2, 0).Tensor("t", {4}, kF32, 0).Tensor("t", {4}, kF32, 32).Data(64); },
     {"tensor t", "twice"}},
    {"NoDims",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {}, kF32, 0).Data(16); },
     {"tensor t", "0 dimensions"}},
    {"FiveDims",
     [](Raw* r) {
       r->Header(1, 0).Tensor("t", {1, 1, 1, 1, 1}, kF32, 0).Data(16);
     },
     {"tensor t", "5 dimensions"}},
    {"ManyDims", [](Raw* r) { r->Header(1, 0).Str("t").U32(~0u).Data(64); }, {"tensor t", "dim"}},
    {"DimZero",
     [](Raw* r) {
       r->Header(1, 0).Tensor("t", {4, 0}, kF32, 0).Data(16);
     },
     {"tensor t", "dimension 1"}},
    {"DimNegative",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {~uint64_t{0}}, kF32, 0).Data(16); },
     {"tensor t", "dimension 0"}},
    {"ProductOverflows",
     [](Raw* r) {
       r->Header(1, 0).Tensor("t", {1u << 31, 1u << 31, 4, 1}, kF32, 0).Data(16);
     },
     {"tensor t", "product"}},
    {"ProductWrapsToSmall",
     [](Raw* r) {
       r->Header(1, 0).Tensor("t", {uint64_t{1} << 32, uint64_t{1} << 32, 1, 1}, kF32, 0).Data(16);
     },
     {"tensor t", "product"}},
    {"BytesOverflow",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {uint64_t{1} << 61}, kF32, 0).Data(16); },
     {"tensor t", "product"}},
    {"TypeUnknown",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {32}, 31, 0).Data(64); },
     {"tensor t", "type number 31"}},
    {"TypeHuge",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {32}, ~0u, 0).Data(64); },
     {"tensor t", "4294967295"}},
    {"HalfABlock",
     [](Raw* r) {
       r->Header(1, 0).Tensor("t", {48, 2}, kQ4_0, 0).Data(64);
     },
     {"tensor t", "48", "Q4_0"}},
    {"OffsetUnaligned",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {4}, kF32, 16).Data(64); },
     {"tensor t", "16", "alignment 32"}},
    {"OffsetBeyondEnd",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {4}, kF32, 64).Data(16); },
     {"tensor t", "beyond the end"}},
    {"OffsetWraps",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {4}, kF32, ~uint64_t{31}).Data(64); },
     {"tensor t", "beyond the end"}},
    {"DataCut",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {4}, kF32, 0).Data(15); },
     {"tensor t", "beyond the end"}},
    {"NoDataSection",
     [](Raw* r) { r->Header(1, 0).Tensor("t", {4}, kF32, 0); },
     {"tensor t", "beyond the end"}},
    {"SameBytes",
     [](Raw* r) { r->Header(2, 0).Tensor("t", {4}, kF32, 0).Tensor("u", {4}, kF32, 0).Data(64); },
     {"tensor u", "overlaps", "tensor t"}},
    {"OneInsideTheOther",
     [](Raw* r) {
       r->Header(2, 0).Tensor("inner", {4}, kF32, 32).Tensor("outer", {64}, kF32, 0).Data(256);
     },
     {"tensor inner", "overlaps", "outer"}},
    {"ListCut",
     [](Raw* r) { r->Header(2, 0).Tensor("t", {4}, kF32, 0).Data(8, 1); },
     {"header", "2 tensors"}},
    {"ListCutAfterMetadata",
     [](Raw* r) {
       r->Header(2, 1).Str("k").Type(MetaType::kString).Str(std::string(99, 'x'));
       r->Tensor("t", {4}, kF32, 0);
     },
     {"tensor list", "ends inside"}},
};

std::string CaseName(const ::testing::TestParamInfo<HostileCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Header, HostileTest, ::testing::ValuesIn(kHeaderCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Metadata, HostileTest, ::testing::ValuesIn(kMetadataCases), CaseName);
INSTANTIATE_TEST_SUITE_P(Tensor, HostileTest, ::testing::ValuesIn(kTensorCases), CaseName);

// Valid variants of the hostile cases above.
TEST(GgufParser, AcceptsTheirHarmlessSiblings) {
  EXPECT_TRUE(Parse(Raw().Header(0, 0).str()).ok());
  EXPECT_TRUE(Parse(Raw().Header(0, 0, 2).str()).ok());
  Raw metadata;
  Entry(&metadata, MetaType::kArray).Type(MetaType::kArray).U64(1);
  metadata.Type(MetaType::kArray).U64(1).Type(MetaType::kArray).U64(1);
  metadata.Type(MetaType::kBool).U64(2).U8(0).U8(1);
  EXPECT_TRUE(Parse(metadata.str()).ok());
  EXPECT_TRUE(
      Parse(Raw().Header(1, 0).Tensor(std::string(64, 'n'), {4}, kF32, 0).Data(16).str()).ok());
  Raw two;
  two.Header(2, 0).Tensor("t", {64, 3, 2, 1}, kQ4_0, 32).Tensor("u", {8}, kF32, 0).Data(32 + 216);
  EXPECT_TRUE(Parse(two.str()).ok());
  // No padding and no data, but nothing is missing.
  Raw aligned;
  aligned.Header(0, 1).Str("general.alignment").Type(MetaType::kUint32).U32(1 << 20);
  EXPECT_TRUE(Parse(aligned.str()).ok());
}

TEST(GgufParser, UnalignedMemoryIsRefused) {
  alignas(8) std::byte memory[64] = {};
  const std::string bytes = Raw().Header(0, 0).str();
  std::memcpy(memory + 1, bytes.data(), bytes.size());
  EXPECT_FALSE(ModelFile::FromBytes("m.gguf", {memory + 1, bytes.size()}).ok());
}

// A file that begins like this and continues with a hole of `size` bytes: it looks large enough for
// any count, and takes no disk space.
Status OpenWithHole(const Raw& start, uint64_t size) {
  const std::string folder = StrCat(::testing::TempDir(), "weft_hole_", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/m.gguf";
  std::ofstream(path, std::ios::binary) << start.str();
  std::filesystem::resize_file(path, size);
  const Status status = ModelFile::Open(path).status();
  std::filesystem::remove_all(folder);
  return status;
}

TEST(GgufParser, CountsThatAHoleMakesPlausibleTakeNoMemory) {
  const uint64_t most = std::numeric_limits<int32_t>::max();
  const Status entries = OpenWithHole(Raw().Header(0, most), uint64_t{100} << 30);
  EXPECT_THAT(Message(entries), HasSubstr("metadata entry 0"));
  const Status tensors = OpenWithHole(Raw().Header(most, 0), uint64_t{100} << 30);
  EXPECT_THAT(Message(tensors), HasSubstr("tensor 0"));

  for (const MetaType type : {MetaType::kArray, MetaType::kString, MetaType::kUint8}) {
    Raw array;
    ArrayOf(&array, type, uint64_t{80} << 20);
    const Status status = OpenWithHole(array, uint64_t{2} << 30);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("key k"), HasSubstr("512.0 MiB")));
  }
}

// Metadata of every kind, nested arrays and tensors of three types in ~1 KB.
std::string SmallFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("a.u32", 7);
  writer.AddInt32("a.i32", -7);
  writer.AddUint64("a.u64", ~uint64_t{0});
  writer.AddFloat32("a.f32", 1.5f);
  writer.AddBool("a.bool", true);
  writer.AddStringArray("a.strings", std::vector<std::string>{"one", "", "three"});
  writer.AddInt32Array("a.ints", std::vector<int32_t>{1, -2, 3});
  writer.AddBoolArray("a.bools", {true, false, true});
  MetaArray inner, outer;
  inner.items = std::vector<double>{1, 2};
  outer.items = std::vector<MetaArray>{inner, inner};
  writer.AddMeta("a.nested", outer);
  static const std::vector<std::byte> kZeros(256);
  const auto data = [](size_t n) { return std::span(kZeros).first(n); };
  writer.AddTensor("f32", DType::kF32, std::vector<int64_t>{3, 2}, data(24));
  writer.AddTensor("q4", DType::kQ4_0, std::vector<int64_t>{64, 2}, data(72));
  writer.AddTensor("half", DType::kF16, std::vector<int64_t>{5}, data(10));
  return writer.ToBytes();
}

// Bytes before the data section.
size_t HeaderBytes(std::string_view bytes) {
  auto file = ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  size_t start = bytes.size();
  for (const TensorInfo& tensor : (*file)->tensors()) {
    const char* data = reinterpret_cast<const char*>(tensor.data.data());
    start = std::min(start, static_cast<size_t>(data - bytes.data()));
  }
  return start;
}

TEST(GgufParser, EveryTruncationIsRefused) {
  const std::string bytes = SmallFile();
  // The padding after the last tensor may be absent.
  const size_t needed = bytes.size() - 22;
  ASSERT_TRUE(Parse(std::string_view(bytes).substr(0, needed)).ok());
  for (size_t size = 0; size < needed; ++size) {
    const Status status = Parse(std::string_view(bytes).substr(0, size)).status();
    ASSERT_FALSE(status.ok()) << size;
    ExpectOneLine(status);
  }
}

TEST(GgufParser, EveryFlippedBitIsSurvived) {
  std::string bytes = SmallFile();
  int refused = 0;
  for (size_t bit = 0; bit < HeaderBytes(SmallFile()) * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const Status status = Parse(bytes).status();
    if (!status.ok()) {
      ExpectOneLine(status);
      ++refused;
    }
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
  EXPECT_GT(refused, 1000) << "the checks are not reached";
}

class GoldenModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WEFT_REQUIRE_GOLDENS();
    models_ = FilesIn("models");
    ASSERT_FALSE(models_.empty());
  }
  static std::vector<std::string> FilesIn(std::string_view folder) {
    std::vector<std::string> paths;
    const std::string dir = StrCat(testing::GoldensDir(), "/", folder);
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  std::vector<std::string> models_;
};

TEST_F(GoldenModelTest, Opens) {
  std::vector<std::string> paths = models_;
  for (const char* folder : {"quantized", "tokenizers"}) {
    for (std::string& path : FilesIn(folder)) paths.push_back(std::move(path));
  }
  for (const std::string& path : paths) {
    auto file = ModelFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->GetString("general.architecture").ok()) << path;
    EXPECT_TRUE((*file)->GetStringArray("tokenizer.ggml.tokens").ok()) << path;
    testing::TouchAll(**file);
  }
}

TEST_F(GoldenModelTest, TruncationsAndFlippedBitsAreSurvived) {
  std::mt19937 random(1);
  for (const std::string& path : models_) {
    auto bytes = ReadFile(path, size_t{1} << 30);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const size_t header_bytes = HeaderBytes(*bytes);
    const auto verdict = [&](std::string_view view) {
      auto file = ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(view)));
      if (!file.ok()) ExpectOneLine(file.status());
      return file.ok();
    };
    for (int i = 0; i < 30; ++i) {
      const size_t size = random() % (i < 20 ? header_bytes : bytes->size() - 64);
      EXPECT_FALSE(verdict(std::string_view(*bytes).substr(0, size))) << path << " at " << size;
    }
    for (int i = 0; i < 100; ++i) {
      // Half of them in the tensor list, the rest anywhere in the metadata.
      const size_t from = i % 2 == 0 ? header_bytes - std::min<size_t>(header_bytes, 2048) : 0;
      const size_t at = from + random() % (header_bytes - from);
      const char before = (*bytes)[at];
      (*bytes)[at] = static_cast<char>(before ^ (1 << random() % 8));
      verdict(*bytes);
      (*bytes)[at] = before;
    }
  }
}

}  // namespace
}  // namespace weft
