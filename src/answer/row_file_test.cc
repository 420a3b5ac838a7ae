#include "answer/row_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files/mapped_file.h"
#include "base/half.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::string Little(T value) {
  return BytesOf(std::vector<T>{value});
}

const std::vector<float> kSix = {1, -2, 0.5f, 4, 65504, -0.0f};
std::string Six() { return BytesOf(kSix); }
std::string SixHalves(uint16_t (*convert)(float)) {
  std::vector<uint16_t> halves;
  halves.reserve(kSix.size());
  for (const float value : kSix) halves.push_back(convert(value));
  return BytesOf(halves);
}

std::string Numpy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY"s + version + '\0';
  bytes += version == 1 ? Little(static_cast<uint16_t>(header.size()))
                        : Little(static_cast<uint32_t>(header.size()));
  return bytes + header + data;
}
std::string NumpyOf(const std::string& type, const std::string& shape, const std::string& data) {
  return Numpy("{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }  \n",
               data);
}

std::string Safetensors(const std::string& header, const std::string& data) {
  return Little(static_cast<uint64_t>(header.size())) + header + data;
}
std::string SafetensorsOf(const std::string& type, const std::string& shape,
                          const std::string& data) {
  return Safetensors(R"({"__metadata__":{"a":"b"},"x":{"dtype":")" + type + R"(","shape":)" +
                         shape + R"(,"data_offsets":[0,)" + std::to_string(data.size()) + "]}}",
                     data);
}

// An archive of stored members, as torch.save writes one.
std::string Zip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string bytes, directory;
  for (const auto& [name, data] : members) {
    const auto n = Little(static_cast<uint32_t>(data.size()));
    const auto n_name = Little(static_cast<uint16_t>(name.size()));
    directory += StrCat("PK\x01\x02", std::string(16, '\0'), n, n, n_name, std::string(12, '\0'),
                        Little(static_cast<uint32_t>(bytes.size())), name);
    // Sizes follow the data there, and padding the name.
    bytes += StrCat("PK\x03\x04", std::string(22, '\0'), n_name, Little(uint16_t{5}), name,
                    "FB\x01\0\0"s, data);
  }
  const auto n_members = Little(static_cast<uint16_t>(members.size()));
  const auto at = Little(static_cast<uint32_t>(bytes.size()));
  return bytes + directory + "PK\x05\x06\0\0\0\0"s + n_members + n_members +
         Little(static_cast<uint32_t>(directory.size())) + at + "\0\0"s;
}

// The description of a tensor in a storage of 6 values.
std::string Pickle(const std::string& storage, const std::string& shape = "K\x02K\x03\x86",
                   const std::string& strides = "K\x03K\x01\x86", char offset = 0) {
  return "\x80\x02"s + "ctorch._utils\n_rebuild_tensor_v2\nq\0"s + "((X\x07\0\0\0storageq\x01"s +
         "ctorch\n" + storage + "\nq\x02"s + "X\x01\0\0\0"s + "0q\x03" + "X\x03\0\0\0"s +
         "cpuq\x04K\x06tq\x05QK" + offset + shape + "q\x06" + strides + "q\x07\x89" +
         "ccollections\nOrderedDict\nq\x08)Rq\ttq\nRq\x0b.";
}
std::string TorchOf(const std::string& pickle, const std::string& data) {
  return Zip({{"archive/data.pkl", pickle},
              {"archive/byteorder", "little"},
              {"archive/data/0", data},
              {"archive/version", "3\n"}});
}

std::vector<float> Read(const std::string& bytes, int64_t width = 3) {
  const auto rows = ReadRowFile(bytes, width);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? *rows : std::vector<float>();
}
std::string Refusal(const std::string& bytes, int64_t width = 3) {
  const auto rows = ReadRowFile(bytes, width);
  EXPECT_EQ(rows.status().code(), StatusCode::kInvalidArgument);
  return std::string(Message(rows.status()));
}

TEST(RowFileTest, ReadsEachFormAndType) {
  const std::vector<float> rounded = {1, -2, 0.5f, 4, 65536, -0.0f};
  EXPECT_EQ(Read(NumpyOf("<f4", "(2, 3)", Six())), kSix);
  EXPECT_EQ(Read(NumpyOf("<f2", "(2, 3)", SixHalves(F32ToF16))), kSix);
  EXPECT_EQ(Read(Numpy("{'shape': (1, 2, 3), 'fortran_order': False, 'descr': '<f4'}", Six(), 2)),
            kSix);
  EXPECT_EQ(Read(SafetensorsOf("F32", "[2,3]", Six())), kSix);
  EXPECT_EQ(Read(SafetensorsOf("F16", "[1,2,3]", SixHalves(F32ToF16))), kSix);
  EXPECT_EQ(Read(SafetensorsOf("BF16", "[2,3]", SixHalves(F32ToBF16))), rounded);
  EXPECT_EQ(Read(SafetensorsOf("F32", "[1,6]", Six()), 6), kSix);
  EXPECT_EQ(Read(TorchOf(Pickle("FloatStorage"), Six())), kSix);
  EXPECT_EQ(Read(TorchOf(Pickle("HalfStorage"), SixHalves(F32ToF16))), kSix);
  EXPECT_EQ(Read(TorchOf(Pickle("BFloat16Storage"), SixHalves(F32ToBF16))), rounded);
}

TEST(RowFileTest, ReadsAViewOfATensor) {
  EXPECT_THAT(Read(TorchOf(Pickle("FloatStorage", "K\x01K\x03\x86", "K\x03K\x01\x86", 3), Six())),
              ElementsAre(4, 65504, -0.0f));
  EXPECT_THAT(Refusal(TorchOf(Pickle("FloatStorage", "K\x03K\x02\x86", "K\x01K\x03\x86"), Six())),
              HasSubstr("one plain tensor in C order"));
  EXPECT_THAT(
      Refusal(TorchOf(Pickle("FloatStorage", "K\x02K\x03\x86", "K\x03K\x01\x86", 1), Six())),
      HasSubstr("larger than its numbers"));
}

// Files that torch itself wrote, of the versions in their names: torch.save of the tensor below, as
// type and in ways that the names say.
std::string TorchFile(const std::string& name) {
  const auto bytes =
      ReadFile(StrCat(WEFT_SOURCE_DIR, "/src/answer/testdata/torch/", name, ".pt"), 1 << 20);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

TEST(RowFileTest, ReadsWhatTorchWrites) {
  std::vector<float> tensor;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      tensor.push_back(0.5f * static_cast<float>(i) - 0.25f * static_cast<float>(j));
    }
  }
  for (const char* name :
       {"f32_2.0.1", "f32_2.9.1", "f16_2.9.1", "bf16_2.9.1", "batch_2.0.1", "batch_2.9.1"}) {
    EXPECT_EQ(Read(TorchFile(name), 4), tensor) << name;
  }
  const std::vector<float> without_first(tensor.begin() + 4, tensor.end());
  EXPECT_EQ(Read(TorchFile("view_2.0.1"), 4), without_first);
  EXPECT_EQ(Read(TorchFile("view_2.9.1"), 4), without_first);

  EXPECT_THAT(Refusal(TorchFile("f32_2.9.1"), 3), HasSubstr("shape is (3, 4)"));
  EXPECT_THAT(Refusal(TorchFile("f64_2.9.1"), 4), HasSubstr("are DoubleStorage"));
  for (const char* name : {"transposed_2.9.1", "dict_2.9.1", "param_2.9.1", "protocol4_2.9.1"}) {
    EXPECT_THAT(Refusal(TorchFile(name), 4), HasSubstr("one plain tensor")) << name;
  }
  EXPECT_THAT(Refusal(TorchFile("legacy_2.9.1"), 4), HasSubstr("neither a NumPy array"));
}

TEST(RowFileTest, SaysWhichFormsThereAre) {
  for (const std::string& bytes : {""s, "{}"s, "hello, this is text"s, std::string(100, '\0')}) {
    EXPECT_THAT(Refusal(bytes), HasSubstr("neither a NumPy array"));
  }
}

TEST(RowFileTest, ChecksShapeTypeAndNumbers) {
  EXPECT_THAT(Refusal(NumpyOf("<f4", "(2, 3)", Six()), 4),
              HasSubstr("shape is (2, 3); this model needs (number of vectors, 4)"));
  EXPECT_THAT(Refusal(NumpyOf("<f4", "(6,)", Six())), HasSubstr("shape is (6)"));
  EXPECT_THAT(Refusal(NumpyOf("<f4", "(0, 3)", "")), HasSubstr("shape is (0, 3)"));
  EXPECT_THAT(Refusal(NumpyOf("<f4", "(3, 3)", Six())), HasSubstr("24 bytes of numbers"));
  EXPECT_THAT(Refusal(NumpyOf("<f4", "(4611686018427387904, 3)", Six())), HasSubstr("24 bytes"));
  EXPECT_THAT(Refusal(NumpyOf("<f8", "(1, 3)", Six())), HasSubstr("are <f8; take <f4 or <f2"));
  EXPECT_THAT(Refusal(NumpyOf(">f4", "(2, 3)", Six())), HasSubstr("are >f4"));
  EXPECT_THAT(Refusal(Numpy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", Six())),
              HasSubstr("C order"));
  EXPECT_THAT(Refusal(SafetensorsOf("I32", "[2,3]", Six())),
              HasSubstr("are I32; take F32 or F16 or BF16"));
  EXPECT_THAT(Refusal(TorchOf(Pickle("LongStorage"), Six())), HasSubstr("are LongStorage"));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values = kSix;
    values[4] = bad;
    EXPECT_THAT(Refusal(NumpyOf("<f4", "(2, 3)", BytesOf(values))), HasSubstr("vector 1 has a"));
  }
}

TEST(RowFileTest, RefusesWhatIsBroken) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}";
  EXPECT_THAT(Refusal(Numpy(header, Six(), 4)), HasSubstr("format version 4"));
  EXPECT_THAT(Refusal("\x93NUMPY\x01\0\xFF\xFF    "s), HasSubstr("ends within its header"));
  EXPECT_THAT(Refusal("\x93NUMPY\x01"s), HasSubstr("ends within its header"));
  EXPECT_THAT(Refusal(Numpy("{'fortran_order': False}", Six())), HasSubstr("no type"));
  EXPECT_THAT(Refusal(Numpy("{'descr': '<f4', 'fortran_order': False}", Six())),
              HasSubstr("no shape"));
  EXPECT_THAT(Refusal(Safetensors("{\"x\":", Six())), HasSubstr("no JSON object"));
  EXPECT_THAT(Refusal(Safetensors("{}", Six())), HasSubstr("has no tensor"));
  EXPECT_THAT(Refusal(Safetensors(R"({"x":{},"y":{}})", Six())), HasSubstr("more than one"));
  EXPECT_THAT(Refusal(Safetensors(R"({"x":{}})", Six())), HasSubstr("does not describe"));
  EXPECT_THAT(
      Refusal(Safetensors(R"({"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", Six())),
      HasSubstr("not all that follows"));
}

TEST(RowFileTest, ADescriptionThatDoesMoreIsNotFollowed) {
  const std::string whole = TorchOf(Pickle("FloatStorage"), Six());
  const std::vector<std::string> others = {
      "cos\nsystem\n(X\x02\0\0\0lstR."s,
      "ctorch._utils\n_rebuild_tensor_v2\n)R."s,
      "}."s,
      ""s,
      std::string(100'000, '\x85'),
      ")" + std::string(100'000, '\x85') + ".",
      std::string(100'000, '('),
      Pickle("FloatStorage").substr(0, 80),
      "K\x01" + Pickle("FloatStorage"),
  };
  for (const std::string& pickle : others) {
    EXPECT_THAT(Refusal(TorchOf(pickle, Six())), HasSubstr("more than one plain tensor"));
  }
  EXPECT_THAT(Refusal(Zip({{"a/b", "c"}})), HasSubstr("not one of torch.save"));
  EXPECT_THAT(Refusal(Zip({{"archive/data.pkl", Pickle("FloatStorage")}})), HasSubstr("damaged"));
  EXPECT_THAT(Refusal(Zip({{"x/data.pkl", Pickle("FloatStorage")}, {"x/byteorder", "big"}})),
              HasSubstr("big-endian"));
  for (size_t n = 4; n < whole.size(); ++n) EXPECT_FALSE(ReadRowFile(whole.substr(0, n), 3).ok());
}

TEST(Base64Test, ReadsWhatIsBase64) {
  EXPECT_EQ(DecodeBase64("aGVsbG8="), "hello");
  EXPECT_EQ(DecodeBase64("aGVsbG8"), "hello");
  EXPECT_EQ(DecodeBase64("aGk="), "hi");
  EXPECT_EQ(DecodeBase64("YQ=="), "a");
  EXPECT_EQ(DecodeBase64("+/+/"), "\xFB\xFF\xBF");
  EXPECT_EQ(DecodeBase64(""), "");
  for (const char* bad : {"a", "aGk=a", "aGk==", "a b=", "a-_=", "====", "aGVsbG8=\n"}) {
    EXPECT_EQ(DecodeBase64(bad), std::nullopt) << bad;
  }
}

TEST(Base64Test, ReadsWhatItWrites) {
  EXPECT_EQ(EncodeBase64("hello"), "aGVsbG8=");
  std::string bytes;
  for (int i = 0; i < 70; ++i) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
}

}  // namespace
}  // namespace weft::serve
