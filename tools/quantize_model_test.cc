#include "tools/quantize_model.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>

#include "compute/kernels/quants/quants.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/importance_matrix.h"
#include "tests/support/goldens.h"

namespace weft::tools {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::GoldensDir;

class QuantizeModelTest : public ::testing::Test {
 protected:
  QuantizeModelTest()
      : dir_(std::filesystem::temp_directory_path() / StrCat("weft_quantize_test_", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~QuantizeModelTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(std::string_view name) const { return dir_ / std::string(name); }

  // A file of two layers with tensors of many kinds, from normal values.
  std::string WriteModel(std::string_view name, float spoiled = 0) const {
    GgufWriter writer;
    writer.AddString("general.architecture", "llama");
    writer.AddUint32("general.file_type", 0);
    writer.AddUint32("llama.block_count", 2);
    writer.AddUint64("large", uint64_t{1} << 40);
    writer.AddInt32("negative", -5);
    writer.AddFloat32("epsilon", 1e-5f);
    writer.AddBool("flag", true);
    writer.AddInt32("split.count", 1);
    writer.AddStringArray("tokens", std::vector<std::string>{"a", "", "\xff"});
    writer.AddFloat32Array("scores", std::vector<float>{0.5f, -3.25f});
    writer.AddInt32Array("token_type", std::vector<int32_t>{1, 3, -1});
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
        {"token_embd.weight", {256, 40}},         {"blk.0.attn_norm.weight", {256}},
        {"blk.0.attn_q.weight", {256, 64}},       {"blk.0.attn_q.bias", {64}},
        {"blk.0.attn_output.weight", {96, 64}},   {"blk.0.odd.weight", {100, 64}},
        {"blk.0.ffn_gate_inp.weight", {256, 32}}, {"blk.0.ffn_up_exps.weight", {256, 16, 4}},
        {"blk.0.tiny.weight", {32, 4}},           {"blk.0.ssm_conv1d.weight", {256, 32}},
    };
    std::vector<std::vector<float>> values;
    for (const auto& [tensor_name, dims] : tensors) {
      int64_t n = 1;
      for (const int64_t size : dims) n *= size;
      std::vector<float>& v = values.emplace_back(n);
      for (float& x : v) x = normal(random);
    }
    if (spoiled != 0) values[2][300] = spoiled;
    for (size_t i = 0; i < tensors.size(); ++i) {
      writer.AddTensor(tensors[i].first, DType::kF32, tensors[i].second,
                       std::as_bytes(std::span(values[i])));
    }
    const std::string path = Path(name);
    EXPECT_TRUE(writer.Write(path).ok());
    return path;
  }

 private:
  const std::filesystem::path dir_;
};

std::shared_ptr<const ModelFile> Open(const std::string& path) {
  auto file = ModelFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : nullptr;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<float> ValuesOf(const TensorInfo& tensor) {
  std::vector<float> values(tensor.values());
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    Dequantize(tensor.type, tensor.data.data() + r * tensor.row_bytes(), tensor.dims[0],
               values.data() + r * tensor.dims[0]);
  }
  return values;
}

double Rmse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST_F(QuantizeModelTest, TypesOfEveryKindOfTensor) {
  const std::string in = WriteModel("in.gguf"), out = Path("out.gguf");
  const auto made = QuantizeModel(in, out, {.type = "q4_k", .n_threads = 2});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto before = Open(in), after = Open(out);
  const std::map<std::string_view, DType> want = {
      {"token_embd.weight", DType::kQ6_K},  // it is the output matrix too
      {"blk.0.attn_norm.weight", DType::kF32},    {"blk.0.attn_q.weight", DType::kQ4_K},
      {"blk.0.attn_q.bias", DType::kF32},         {"blk.0.attn_output.weight", DType::kQ5_0},
      {"blk.0.odd.weight", DType::kF16},          {"blk.0.ffn_gate_inp.weight", DType::kF32},
      {"blk.0.ffn_up_exps.weight", DType::kQ4_K}, {"blk.0.tiny.weight", DType::kF32},
      {"blk.0.ssm_conv1d.weight", DType::kF32},
  };
  ASSERT_EQ(after->tensors().size(), want.size());
  uint64_t bytes = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const TensorInfo &a = before->tensors()[i], &b = after->tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(std::memcmp(a.dims, b.dims, sizeof(a.dims)), 0);
    EXPECT_EQ(NameOf(b.type), NameOf(want.at(b.name))) << b.name;
    EXPECT_LT(Rmse(ValuesOf(a), ValuesOf(b)), b.type == DType::kF32 ? 1e-30 : 0.08) << b.name;
    bytes += b.data.size();
  }
  EXPECT_EQ(made->bytes, bytes);
  EXPECT_EQ(made->tensors_of_type.at("F32"), 5);
}

TEST_F(QuantizeModelTest, PureLeavesNoException) {
  const std::string in = WriteModel("in.gguf"), out = Path("out.gguf");
  ASSERT_TRUE(QuantizeModel(in, out, {.type = "Q4_0", .pure = true}).ok());
  const auto after = Open(out);
  EXPECT_EQ(after->tensors()[after->FindTensor("token_embd.weight")].type, DType::kQ4_0);
}

TEST_F(QuantizeModelTest, KeepsMetadata) {
  const std::string in = WriteModel("in.gguf"), out = Path("out.gguf");
  ASSERT_TRUE(QuantizeModel(in, out, {.type = "Q4_K_M"}).ok());
  const auto after = Open(out);
  EXPECT_EQ(*after->GetString("general.architecture"), "llama");
  EXPECT_EQ(*after->GetInt("general.file_type"), 15);
  EXPECT_EQ(*after->GetInt("general.quantization_version"), 2);
  EXPECT_EQ(*after->GetInt("large"), int64_t{1} << 40);
  EXPECT_EQ(*after->GetInt("negative"), -5);
  EXPECT_EQ(static_cast<float>(*after->GetFloat("epsilon")), 1e-5f);
  EXPECT_TRUE(*after->GetBool("flag"));
  EXPECT_FALSE(after->HasMeta("split.count"));
  const auto tokens = *after->GetStringArray("tokens");
  EXPECT_EQ(std::vector<std::string_view>(tokens.begin(), tokens.end()),
            (std::vector<std::string_view>{"a", "", "\xff"}));
  EXPECT_EQ(*after->GetFloatArray("scores"), (std::vector<double>{0.5, -3.25}));
  EXPECT_EQ(*after->GetIntArray("token_type"), (std::vector<int64_t>{1, 3, -1}));
}

TEST_F(QuantizeModelTest, SameBytesForAnyNumberOfThreads) {
  const std::string in = WriteModel("in.gguf");
  ASSERT_TRUE(QuantizeModel(in, Path("1.gguf"), {.type = "Q4_K_M", .n_threads = 1}).ok());
  ASSERT_TRUE(QuantizeModel(in, Path("3.gguf"), {.type = "Q4_K_M", .n_threads = 3}).ok());
  EXPECT_EQ(ReadAll(Path("1.gguf")), ReadAll(Path("3.gguf")));
  // A tensor that has its type already is copied.
  ASSERT_TRUE(QuantizeModel(Path("1.gguf"), Path("again.gguf"), {.type = "Q4_K_M"}).ok());
  EXPECT_EQ(ReadAll(Path("1.gguf")), ReadAll(Path("again.gguf")));
}

TEST_F(QuantizeModelTest, ProgressReachesTheEnd) {
  uint64_t last = 0, total = 0;
  QuantizeOptions options{.type = "Q8_0"};
  options.progress = [&](uint64_t done, uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  };
  const auto made = QuantizeModel(WriteModel("in.gguf"), Path("out.gguf"), options);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, made->values);
}

TEST_F(QuantizeModelTest, RefusesBrokenValuesAndLeavesNothing) {
  for (const float spoiled : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    const std::string in = WriteModel("in.gguf", spoiled);
    const auto made = QuantizeModel(in, Path("out.gguf"), {.type = "Q4_0"});
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(std::string(Message(made.status())), HasSubstr("blk.0.attn_q.weight: row 1 "));
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(Path(""))) {
      left.insert(entry.path().filename());
    }
    EXPECT_EQ(left, std::set<std::string>{"in.gguf"});
  }
}

TEST_F(QuantizeModelTest, RefusesWhatMakesNoSense) {
  const std::string in = WriteModel("in.gguf"), out = Path("out.gguf");
  const auto message = [&](const std::string& from, const std::string& to,
                           QuantizeOptions options) {
    return std::string(Message(QuantizeModel(from, to, options).status()));
  };
  EXPECT_THAT(message(in, out, {.type = "Q9"}), HasSubstr("choose one of F32, F16"));
  EXPECT_THAT(message(in, out, {.type = "Q4_K_M", .pure = true}), HasSubstr("ask for Q4_K"));
  EXPECT_THAT(message(in, in, {}), HasSubstr("choose another name"));
  EXPECT_THAT(message(Path("absent.gguf"), out, {}), HasSubstr("absent.gguf"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(CheckQuantizeOptions({.type = "Q4_K_M"}), OkStatus());
  EXPECT_FALSE(CheckQuantizeOptions({.type = "Q4_K_M", .pure = true}).ok());
}

// The sum of squares of the errors, each weighed as in `entry`: by input, and by matrix of a stack.
double WeighedError(const TensorInfo& exact, const TensorInfo& stored,
                    const ImportanceMatrix::Entry& entry) {
  const std::vector<float> a = ValuesOf(exact), b = ValuesOf(stored);
  const auto n_in = static_cast<size_t>(exact.dims[0]);
  const size_t matrix = n_in * static_cast<size_t>(exact.dims[1]);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += entry.sums[i / matrix * n_in + i % n_in] * (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  }
  return sum;
}

TEST_F(QuantizeModelTest, ImportanceMakesWhatMattersMoreExact) {
  const std::string in = WriteModel("in.gguf");
  ImportanceMatrix importance;
  std::mt19937 random(2);
  std::exponential_distribution<double> some;
  for (const auto& [name, n_matrices] :
       std::map<std::string, size_t>{{"blk.0.attn_q.weight", 1}, {"blk.0.ffn_up_exps.weight", 4}}) {
    ImportanceMatrix::Entry& entry = importance.entries[name];
    for (size_t i = 0; i < 256 * n_matrices; ++i) entry.sums.push_back(std::pow(some(random), 3));
    entry.counts.assign(n_matrices, 1);
  }
  importance.texts = {"a.txt"};
  importance.n_chunks = 7;
  ASSERT_TRUE(importance.Write(Path("i.gguf")).ok());
  for (const char* type : {"Q4_0", "Q2_K", "Q3_K_M", "Q4_K_M", "IQ4_XS", "IQ3_S", "IQ2_XXS"}) {
    QuantizeOptions options{.type = type};
    ASSERT_TRUE(QuantizeModel(in, Path("without.gguf"), options).ok());
    options.importance = Path("i.gguf");
    const auto made = QuantizeModel(in, Path("with.gguf"), options);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->known_tensors, 2);
    const auto exact = Open(in), without = Open(Path("without.gguf")),
               with = Open(Path("with.gguf"));
    for (const auto& [name, entry] : importance.entries) {
      const std::string_view tensor_name = name;
      const auto tensor = [tensor_name](const ModelFile& file) {
        return file.tensors()[file.FindTensor(tensor_name)];
      };
      EXPECT_LT(WeighedError(tensor(*exact), tensor(*with), entry),
                0.97 * WeighedError(tensor(*exact), tensor(*without), entry))
          << type << " " << name;
    }
    EXPECT_EQ(*with->GetInt("quantize.imatrix.chunks_count"), 7);
    EXPECT_EQ(*with->GetString("quantize.imatrix.dataset"), "a.txt");
    EXPECT_FALSE(without->HasMeta("quantize.imatrix.file"));
  }
}

TEST_F(QuantizeModelTest, ImportanceOfAnotherModelIsRefused) {
  const std::string in = WriteModel("in.gguf");
  const auto message = [&](const char* tensor, size_t n_in) {
    ImportanceMatrix importance;
    importance.entries[tensor] = {std::vector<double>(n_in, 1.0), {1}};
    EXPECT_TRUE(importance.Write(Path("i.gguf")).ok());
    const QuantizeOptions options{.type = "Q4_0", .importance = Path("i.gguf")};
    return std::string(Message(QuantizeModel(in, Path("out.gguf"), options).status()));
  };
  EXPECT_THAT(message("blk.0.attn_q.weight", 128), HasSubstr("it has 128 values for blk.0.attn_q"));
  EXPECT_THAT(message("blk.7.attn_q.weight", 256), HasSubstr("has none of the matrices of"));
  EXPECT_EQ(message("blk.0.attn_q.weight", 256), "");
}

TEST_F(QuantizeModelTest, UndecodableTypeIsNamed) {
  GgufWriter writer;
  const std::vector<std::byte> data(292 * 32);
  writer.AddTensor("blk.0.attn_q.weight", DType::kQ8_K, std::vector<int64_t>{256, 32}, data);
  ASSERT_TRUE(writer.Write(Path("in.gguf")).ok());
  const auto made = QuantizeModel(Path("in.gguf"), Path("out.gguf"), {.type = "Q4_0"});
  EXPECT_THAT(std::string(Message(made.status())), HasSubstr("Q8_K cannot be decoded"));
}

// Against files that another program made from the same models.
struct PeerCase {
  const char* model;
  const char* type;
  bool pure;
};

class PeerTest : public QuantizeModelTest, public ::testing::WithParamInterface<PeerCase> {};

TEST_P(PeerTest, SameTypesAndNoLargerError) {
  WEFT_REQUIRE_GOLDENS();
  const PeerCase& c = GetParam();
  const std::string in = StrCat(GoldensDir(), "/models/", c.model, ".gguf");
  const std::string peer_path = StrCat(GoldensDir(), "/quantized/", c.model, ".", c.type, ".gguf");
  if (!std::filesystem::exists(peer_path)) GTEST_SKIP() << "no " << peer_path;
  const auto made = QuantizeModel(in, Path("out.gguf"), {.type = c.type, .pure = c.pure});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto source = Open(in), ours = Open(Path("out.gguf")), peer = Open(peer_path);
  ASSERT_EQ(ours->tensors().size(), peer->tensors().size());
  for (const TensorInfo& tensor : ours->tensors()) {
    const int at = peer->FindTensor(tensor.name);
    ASSERT_GE(at, 0) << tensor.name;
    const TensorInfo& theirs = peer->tensors()[at];
    EXPECT_EQ(NameOf(tensor.type), NameOf(theirs.type)) << tensor.name;
    const std::vector<float> exact = ValuesOf(source->tensors()[source->FindTensor(tensor.name)]);
    const double error = Rmse(exact, ValuesOf(tensor)), their_error = Rmse(exact, ValuesOf(theirs));
    EXPECT_LE(error, 1.001 * their_error) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, PeerTest,
    ::testing::Values(PeerCase{"llama", "Q8_0", true}, PeerCase{"llama", "Q4_0", true},
                      PeerCase{"llama", "Q4_1", true}, PeerCase{"llama", "Q5_0", true},
                      PeerCase{"llama", "Q5_1", true}, PeerCase{"llama", "Q6_K", true},
                      PeerCase{"llama", "IQ4_NL", true}, PeerCase{"llama", "IQ4_XS", true},
                      PeerCase{"llama", "Q2_K", false}, PeerCase{"llama", "F16", true},
                      PeerCase{"llama", "BF16", true}, PeerCase{"llama", "Q3_K_M", false},
                      PeerCase{"llama", "Q4_K_M", false}, PeerCase{"llama", "Q5_K_M", false},
                      PeerCase{"qwen3", "Q4_K_M", false}, PeerCase{"qwen3", "Q4_0", true}),
    [](const ::testing::TestParamInfo<PeerCase>& info) {
      return StrCat(info.param.model, "_", info.param.type);
    });

}  // namespace
}  // namespace weft::tools
