// LoRA adapters: a model with one is the model whose matrices were changed by it, and rows with
// other adapters, or none, in the same step change no bit.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "base/strings.h"
#include "compute/spec_tensors.h"
#include "gtest/gtest.h"
#include "model/adapter_spec.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/logits.h"
#include "tests/support/model_runner.h"
#include "tools/make_adapter.h"
#include "tools/make_model.h"
#include "tools/model_shapes.h"

namespace weft::testing {
namespace {

constexpr size_t kTokens = 40;

// An adapter, and the bytes that its file is made of.
struct MadeAdapter {
  std::string bytes;
  Adapter adapter;
};

class AdaptersTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto run = ReadShortRun(GetParam());
    ASSERT_TRUE(run.ok()) << run.status();
    context_ = run->context_tokens;
    tokens_ = run->tokens;
    tokens_.resize(kTokens);
    auto base = ModelFile::Open(path());
    ASSERT_TRUE(base.ok()) << base.status();
    base_ = *std::move(base);
    auto spec = BuildModelSpec(*base_, {.context_tokens = context_});
    ASSERT_TRUE(spec.ok()) << spec.status();
    spec_ = *std::move(spec);
    Make({.rank = 3, .seed = 5, .type = "F32"}, &one_);
    Make({.rank = 20, .seed = 6, .type = "F16"}, &two_);
  }

  std::string path() const { return FloatModelPath(GetParam()); }

  void Make(const tools::MakeAdapterOptions& options, MadeAdapter* made) const {
    auto bytes = tools::AdapterBytes(*base_, options);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    made->bytes = *std::move(bytes);
    auto file = ModelFile::FromBytes("adapter", std::as_bytes(std::span(made->bytes)));
    ASSERT_TRUE(file.ok()) << file.status();
    made->adapter.file = *std::move(file);
    auto spec = BuildAdapterSpec(*made->adapter.file, *base_, spec_);
    ASSERT_TRUE(spec.ok()) << spec.status();
    made->adapter.spec = *std::move(spec);
  }

  StatusOr<LoadedModel> Load(std::string_view backend, std::vector<Adapter> adapters) const {
    return LoadModel(backend, path(), context_, std::move(adapters));
  }

  // All logits of a sequence alone.
  std::vector<float> Alone(const LoadedModel& model, std::span<const AdapterUse> adapters) const {
    const auto runner = ModelRunner::New(model, {});
    EXPECT_TRUE(runner.ok()) << runner.status();
    ModelRunner::Part part{(*runner)->Add(), tokens_};
    part.adapters = adapters;
    auto logits = (*runner)->Step({&part, 1});
    EXPECT_TRUE(logits.ok()) << logits.status();
    return logits.ok() ? *std::move(logits) : std::vector<float>();
  }

  // Values of a matrix changed by the pair at this scale.
  static std::vector<float> Changed(const TensorInfo& tensor, const Adapter& adapter,
                                    const LowRankPair& pair, bool is_table, double scale) {
    std::vector<float> values = ValuesOf(tensor);
    const std::vector<float> a = ValuesOf(*adapter.file, pair.a),
                             b = ValuesOf(*adapter.file, pair.b);
    const auto n_in = static_cast<size_t>(tensor.dims[0]);
    const auto rank = static_cast<size_t>(pair.rank);
    for (size_t o = 0; o < values.size() / n_in; ++o) {
      for (size_t i = 0; i < n_in; ++i) {
        double sum = 0;
        for (size_t r = 0; r < rank; ++r) {
          sum += is_table ? double{b[i * rank + r]} * a[o * rank + r]
                          : double{b[o * rank + r]} * a[r * n_in + i];
        }
        float& value = values[o * n_in + i];
        value = static_cast<float>(value + scale * pair.factor * sum);
      }
    }
    return values;
  }

  // The base with the first adapter in its matrices.
  std::string MergedBytes(double scale) const {
    GgufWriter writer;
    for (const auto& [key, value] : base_->metadata()) writer.AddMeta(key, value);
    std::vector<std::vector<float>> changed(base_->tensors().size());
    for (size_t i = 0; i < base_->tensors().size(); ++i) {
      const TensorInfo& tensor = base_->tensors()[i];
      const std::vector<int64_t> dims(tensor.dims, tensor.dims + tensor.n_dims);
      const TensorRef ref{static_cast<int>(i)};
      const auto& table = one_.adapter.spec.embedding;
      const bool is_table = table && table->target == ref;
      const LowRankPair* const pair = is_table ? &*table : one_.adapter.spec.Find(ref);
      if (pair == nullptr) {
        writer.AddTensor(tensor.name, tensor.type, dims, tensor.data);
        continue;
      }
      changed[i] = Changed(tensor, one_.adapter, *pair, is_table, scale);
      writer.AddTensor(tensor.name, DType::kF32, dims, std::as_bytes(std::span(changed[i])));
    }
    return writer.ToBytes();
  }

  int64_t context_ = 0;
  std::vector<TokenId> tokens_;
  std::shared_ptr<const ModelFile> base_;
  ModelSpec spec_;
  MadeAdapter one_, two_;
};

double Largest(std::span<const float> values) {
  double largest = 1;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

TEST_P(AdaptersTest, IsTheModelWithChangedMatrices) {
  constexpr float kScale = 0.7f;
  const std::string bytes = MergedBytes(kScale);
  const auto file = ModelFile::FromBytes("merged", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  auto spec = BuildModelSpec(**file, {.context_tokens = context_});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Backend* const reference = *FindBackend("reference");
  auto merged_weights = reference->Load(*file, *std::move(spec), {});
  ASSERT_TRUE(merged_weights.ok()) << merged_weights.status();
  const std::vector<float> merged = Alone({reference, *merged_weights}, {});
  const double largest = Largest(merged);
  const AdapterUse use{0, kScale};
  for (const auto& [backend, tolerance] : {std::pair{"reference", 1e-4}, std::pair{"cpu", 1e-3}}) {
    const auto model = Load(backend, {one_.adapter});
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<float> adapted = Alone(*model, {&use, 1});
    EXPECT_LE(MaxDifference(adapted, merged), tolerance * largest) << backend;
    const std::vector<float> plain = Alone(*model, {});
    EXPECT_GT(MaxDifference(plain, merged), 20 * tolerance * largest) << backend;
  }
}

TEST_P(AdaptersTest, NobodyElseInTheStepChangesABit) {
  const std::vector<std::vector<AdapterUse>> mixes = {
      {}, {{0, 1}}, {{1, 0.5f}}, {{0, 0.25f}, {1, -1}}, {{0, 1}}};
  for (const char* const backend : {"reference", "cpu"}) {
    const auto model = Load(backend, {one_.adapter, two_.adapter});
    ASSERT_TRUE(model.ok()) << model.status();
    RunnerOptions options;
    options.executor.n_threads = 3;
    const auto runner = ModelRunner::New(*model, options);
    ASSERT_TRUE(runner.ok()) << runner.status();
    std::vector<int> sequences;
    for (size_t i = 0; i < mixes.size(); ++i) sequences.push_back((*runner)->Add());
    std::vector<std::vector<float>> together(mixes.size());
    // Chunks of other sizes in each step, and results of few rows only.
    for (size_t at = 0; at < kTokens; at += 10) {
      std::vector<ModelRunner::Part> parts;
      for (size_t i = 0; i < mixes.size(); ++i) {
        parts.push_back({sequences[i], std::span(tokens_).subspan(at, 10), 1 + std::ssize(parts)});
        parts.back().adapters = mixes[i];
      }
      auto logits = (*runner)->Step(parts);
      ASSERT_TRUE(logits.ok()) << logits.status();
      std::span<const float> rest(*logits);
      for (size_t i = 0; i < mixes.size(); ++i) {
        const size_t n = static_cast<size_t>(parts[i].n_logits * spec_.n_vocab);
        together[i].insert(together[i].end(), rest.begin(), rest.begin() + static_cast<int64_t>(n));
        rest = rest.subspan(n);
      }
    }
    const auto without = Load(backend, {});
    ASSERT_TRUE(without.ok()) << without.status();
    for (size_t i = 0; i < mixes.size(); ++i) {
      const std::vector<float> alone = Alone(mixes[i].empty() ? *without : *model, mixes[i]);
      std::vector<float> wanted;
      for (size_t at = 0; at < kTokens; at += 10) {
        const auto n_rows = static_cast<size_t>(i + 1);
        const auto width = static_cast<size_t>(spec_.n_vocab);
        const auto rows = std::span(alone).subspan((at + 10 - n_rows) * width, n_rows * width);
        wanted.insert(wanted.end(), rows.begin(), rows.end());
      }
      EXPECT_TRUE(SameBytes(together[i], wanted)) << backend << ", mix " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AdaptersTest, ::testing::ValuesIn(FloatModelNames()),
                         [](const auto& info) { return CaseNameOf("all", info.param); });

// Against another implementation's logits: tools/golden_adapters.py has the same sizes, tokens,
// seeds and scales.
class GoldenAdaptersTest : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenAdaptersTest() { std::filesystem::create_directories(folder_); }
  ~GoldenAdaptersTest() override { std::filesystem::remove_all(folder_); }

  StatusOr<std::shared_ptr<const ModelFile>> MakeBase() const {
    WEFT_ASSIGN_OR_RETURN(auto shape, tools::FindShape(GetParam()));
    shape.embd = 32, shape.ffn = 64;
    shape.heads = 2, shape.kv_heads = 1, shape.head_dim = 16;
    WEFT_RETURN_IF_ERROR(tools::MakeModel(shape, {.type = "F32"}, base_path_).status());
    return ModelFile::Open(base_path_);
  }
  StatusOr<Adapter> MakeAdapter(const ModelFile& base, const std::string& name,
                                const tools::MakeAdapterOptions& options) const {
    const std::string path = folder_ + "/" + name;
    WEFT_RETURN_IF_ERROR(tools::MakeAdapter(base_path_, options, path));
    WEFT_ASSIGN_OR_RETURN(const ModelSpec spec, BuildModelSpec(base, {}));
    Adapter adapter;
    WEFT_ASSIGN_OR_RETURN(adapter.file, ModelFile::Open(path));
    WEFT_ASSIGN_OR_RETURN(adapter.spec, BuildAdapterSpec(*adapter.file, base, spec));
    return adapter;
  }

  const std::string folder_ = ::testing::TempDir() + "weft_adapters_" + std::to_string(getpid());
  const std::string base_path_ = folder_ + "/base.gguf";
};

TEST_P(GoldenAdaptersTest, TwoAtOnceAreAsInAnotherImplementation) {
  const auto base = MakeBase();
  ASSERT_TRUE(base.ok()) << base.status();
  const auto one = MakeAdapter(**base, "one", {.rank = 3, .seed = 5, .type = "F32"});
  const auto two = MakeAdapter(**base, "two", {.rank = 20, .seed = 6, .type = "F32"});
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(two.ok()) << two.status();
  std::vector<TokenId> tokens;
  tokens.reserve(24);
  for (int i = 0; i < 24; ++i) tokens.push_back((7 + 37 * i) % 256);
  const auto bytes =
      ReadFile(StrCat(WEFT_SOURCE_DIR, "/tests/conformance/testdata/adapters/", GetParam(), ".f32"),
               size_t{1} << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  std::vector<float> golden(bytes->size() / sizeof(float));
  std::memcpy(golden.data(), bytes->data(), bytes->size());
  const std::vector<AdapterUse> uses = {{0, 0.7f}, {1, -0.4f}};
  for (const char* const backend : {"reference", "cpu"}) {
    const auto model = LoadModel(backend, base_path_, 512, {*one, *two});
    ASSERT_TRUE(model.ok()) << model.status();
    const auto runner = ModelRunner::New(*model, {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    ModelRunner::Part part{(*runner)->Add(), tokens};
    part.adapters = uses;
    const auto logits = (*runner)->Step({&part, 1});
    ASSERT_TRUE(logits.ok()) << logits.status();
    ASSERT_EQ(logits->size(), golden.size());
    EXPECT_LE(MaxDifference(*logits, golden), 1e-4) << backend;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, GoldenAdaptersTest,
                         ::testing::Values("tiny-llama", "tiny-qwen3", "tiny-lfm2"),
                         [](const auto& info) { return std::string(info.param + 5); });

// What a step may not ask for.
TEST(AdapterStepsTest, AdaptersThatAreNotThereAreRefused) {
  const std::string name = FloatModelNames().front();
  const auto base = ModelFile::Open(FloatModelPath(name));
  ASSERT_TRUE(base.ok()) << base.status();
  for (const std::string_view backend : UsableBackends()) {
    const auto model = LoadModel(backend, FloatModelPath(name), 512);
    if (!model.ok()) continue;
    const auto runner = ModelRunner::New(*model, {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const std::vector<TokenId> tokens = {3, 4};
    const AdapterUse use;
    ModelRunner::Part part{(*runner)->Add(), tokens};
    part.adapters = {&use, 1};
    EXPECT_EQ((*runner)->Step({&part, 1}).status().code(), StatusCode::kInvalidArgument) << backend;
  }
}

TEST(AdapterStepsTest, BackendsWithoutAdaptersSaySo) {
  const std::string name = FloatModelNames().front();
  const auto base = ModelFile::Open(FloatModelPath(name));
  ASSERT_TRUE(base.ok()) << base.status();
  const auto bytes = tools::AdapterBytes(**base, {.type = "F32"});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto file = ModelFile::FromBytes("adapter", std::as_bytes(std::span(*bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**base, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto adapter = BuildAdapterSpec(**file, **base, *spec);
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  for (const std::string_view backend : UsableBackends()) {
    const auto model = LoadModel(backend, FloatModelPath(name), 512, {{*file, *adapter}});
    if ((*FindBackend(backend))->capabilities().adapters) {
      EXPECT_TRUE(model.ok()) << model.status();
      continue;
    }
    EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented) << backend;
    EXPECT_NE(Message(model.status()).find(backend), std::string::npos) << model.status();
  }
}

}  // namespace
}  // namespace weft::testing
