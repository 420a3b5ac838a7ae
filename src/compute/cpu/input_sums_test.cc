// What executors measure, against values from the file and from counting.
#include "compute/cpu/input_sums.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "compute/cpu/cpu_backend.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_tensors.h"
#include "gtest/gtest.h"
#include "model/model_spec.h"
#include "tests/support/model_runner.h"
#include "tools/make_model.h"

namespace weft::cpu {
namespace {

constexpr int64_t kTokens = 50, kVocab = 512;

class InputSumsTest : public ::testing::Test {
 protected:
  InputSumsTest()
      : dir_(std::filesystem::temp_directory_path() / StrCat("weft_sums_test_", getpid())) {
    std::filesystem::create_directories(dir_);
    tokens_.resize(kTokens);
    for (int64_t i = 0; i < kTokens; ++i) tokens_[i] = static_cast<TokenId>(i * 37 % kVocab);
  }
  ~InputSumsTest() override { std::filesystem::remove_all(dir_); }

  std::shared_ptr<const ModelFile> MakeFile(const std::string& shape) {
    tools::MakeModelOptions options;
    options.type = "Q8_0";
    const std::string path = dir_ / (shape + ".gguf");
    EXPECT_TRUE(tools::MakeModel(*tools::FindShape(shape), options, path).ok());
    auto file = ModelFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return *file;
  }

  // Runs the tokens in steps of these sizes.
  InputSums::Entries Measure(const std::shared_ptr<const ModelFile>& file,
                             const std::vector<int64_t>& chunks, int n_threads = 1,
                             std::vector<float>* logits = nullptr) {
    InputSums sums;
    const auto backend = NewMeasuringCpuBackend(&sums);
    auto weights = backend->Load(file, *BuildModelSpec(*file, {}), {});
    EXPECT_TRUE(weights.ok()) << weights.status();
    testing::RunnerOptions options;
    options.executor.n_threads = n_threads;
    auto runner = testing::ModelRunner::New({backend.get(), *weights}, options);
    EXPECT_TRUE(runner.ok()) << runner.status();
    EXPECT_TRUE((*runner)->Feed((*runner)->Add(), tokens_).ok());  // a warm-up, which counts not
    sums.Start();
    auto rows = (*runner)->Feed((*runner)->Add(), tokens_, chunks);
    EXPECT_TRUE(rows.ok()) << rows.status();
    if (logits != nullptr) *logits = *rows;
    runner->reset();
    return sums.Take();
  }

  std::vector<TokenId> tokens_;

 private:
  const std::filesystem::path dir_;
};

double CountOf(const ImportanceMatrix::Entry& entry) {
  return std::accumulate(entry.counts.begin(), entry.counts.end(), 0.0);
}

std::vector<float> RowOf(const ModelFile& file, const std::string& name, int64_t row) {
  const TensorInfo& tensor = file.tensors()[file.FindTensor(name)];
  std::vector<float> values(static_cast<size_t>(tensor.dims[0]));
  Dequantize(tensor.type, tensor.data.data() + row * tensor.row_bytes(), tensor.dims[0],
             values.data());
  return values;
}

// The first layer's inputs are the normalized rows of the embedding.
TEST_F(InputSumsTest, SumsAreThoseOfTheInputs) {
  const auto file = MakeFile("tiny-llama");
  const InputSums::Entries entries = Measure(file, {});
  const double epsilon = *file->GetFloat("llama.attention.layer_norm_rms_epsilon");
  const std::vector<float> norm = RowOf(*file, "blk.0.attn_norm.weight", 0);
  std::vector<double> want(norm.size());
  for (const TokenId token : tokens_) {
    const std::vector<float> row = RowOf(*file, "token_embd.weight", token);
    double squares = 0;
    for (const float x : row) squares += double{x} * x;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + epsilon);
    for (size_t i = 0; i < row.size(); ++i) want[i] += std::pow(row[i] * norm[i] * scale, 2);
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
    const ImportanceMatrix::Entry& entry = entries.at(StrCat("blk.0.", name, ".weight"));
    ASSERT_EQ(entry.sums.size(), want.size());
    EXPECT_EQ(entry.counts, std::vector<double>{kTokens}) << name;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(entry.sums[i], want[i], 1e-4 * want[i]) << name;
    }
  }
  // Every matrix that text goes through is measured, the output too.
  for (const TensorInfo& tensor : file->tensors()) {
    if (tensor.rows() == 1 || tensor.name == "token_embd.weight") continue;
    ASSERT_TRUE(entries.contains(tensor.name)) << tensor.name;
    EXPECT_EQ(CountOf(entries.find(tensor.name)->second), kTokens) << tensor.name;
  }
}

TEST_F(InputSumsTest, EachExpertHasItsOwnRows) {
  const auto file = MakeFile("tiny-moe");
  const InputSums::Entries entries = Measure(file, {});
  const auto n_experts = static_cast<size_t>(*file->GetInt("qwen3moe.expert_count"));
  const int64_t n_used = *file->GetInt("qwen3moe.expert_used_count");
  const auto of = [&](const char* name) -> const ImportanceMatrix::Entry& {
    return entries.at(StrCat("blk.0.", name, ".weight"));
  };
  const ImportanceMatrix::Entry &up = of("ffn_up_exps"), &gate = of("ffn_gate_exps");
  EXPECT_EQ(up.counts.size(), n_experts);
  EXPECT_EQ(CountOf(up), static_cast<double>(kTokens * n_used));
  EXPECT_EQ(up.counts, gate.counts);
  EXPECT_EQ(up.counts, of("ffn_down_exps").counts);
  EXPECT_EQ(up.sums, gate.sums);
  // All rows go to the router, and to as many experts each.
  const ImportanceMatrix::Entry& router = of("ffn_gate_inp");
  const size_t width = router.sums.size();
  for (size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (size_t expert = 0; expert < n_experts; ++expert) sum += up.sums[expert * width + i];
    EXPECT_NEAR(sum, static_cast<double>(n_used) * router.sums[i], 1e-9 * sum);
  }
}

TEST_F(InputSumsTest, StepsAndThreadsChangeNothing) {
  for (const char* shape : {"tiny-llama", "tiny-lfm2", "tiny-qwen35"}) {
    const auto file = MakeFile(shape);
    std::vector<float> logits;
    const InputSums::Entries whole = Measure(file, {}, 1, &logits);
    const InputSums::Entries cut = Measure(file, {7, 1, 19}, 3);
    ASSERT_EQ(whole.size(), cut.size());
    for (const auto& [name, entry] : whole) {
      EXPECT_EQ(entry.sums, cut.at(name).sums) << shape << " " << name;
      EXPECT_EQ(entry.counts, cut.at(name).counts) << shape << " " << name;
    }
    // Measuring changes no result.
    const auto weights = CpuBackend()->Load(file, *BuildModelSpec(*file, {}), {});
    const auto plain = testing::RunTokens({CpuBackend(), *weights}, tokens_);
    EXPECT_EQ(*plain, logits) << shape;
  }
}

}  // namespace
}  // namespace weft::cpu
