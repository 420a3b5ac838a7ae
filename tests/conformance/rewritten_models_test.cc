// The reference models rewritten as Ollama's converters would have written them, and with a factor
// for every matrix. Their results are bitwise identical to the original's.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "gtest/gtest.h"
#include "model/formats/gguf_writer.h"
#include "model/model_spec.h"
#include "tests/conformance/golden_cases.h"
#include "tests/support/goldens.h"
#include "tests/support/model_runner.h"

namespace weft::testing {
namespace {

// A reference model that is rewritten, key by key and tensor by tensor.
class Rewriter {
 public:
  explicit Rewriter(std::shared_ptr<const ModelFile> file)
      : file_(std::move(file)), architecture_(*file_->GetString("general.architecture")) {
    for (const ModelFile::KeyValue& entry : file_->metadata()) {
      keys_.emplace_back(entry.key, entry.value);
    }
    for (const TensorInfo& tensor : file_->tensors()) {
      tensors_.push_back({std::string(tensor.name), tensor});
    }
  }

  // Keys without the architecture.
  void RenameKey(const std::string& from, const std::string& to) {
    for (auto& [key, value] : keys_) {
      if (key == Full(from)) key = Full(to);
    }
  }
  void DropKey(const std::string& key) {
    ASSERT_EQ(std::erase_if(keys_, [&](const auto& entry) { return entry.first == Full(key); }),
              1u);
  }
  void SetKey(const std::string& key, MetaValue value) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == Full(key); });
    keys_.emplace_back(Full(key), std::move(value));
  }
  void Become(const std::string& architecture) {
    for (auto& [key, value] : keys_) {
      if (key == "general.architecture")
        value = std::string_view(texts_.emplace_back(architecture));
      if (key.starts_with(architecture_ + ".")) {
        key = architecture + key.substr(architecture_.size());
      }
    }
    architecture_ = architecture;
  }
  // In every tensor's name.
  void RenameTensors(const std::string& from, const std::string& to) {
    int n_renamed = 0;
    for (auto& [name, tensor] : tensors_) {
      const size_t at = name.find(from);
      if (at == name.npos) continue;
      name.replace(at, from.size(), to);
      ++n_renamed;
    }
    EXPECT_GT(n_renamed, 0) << from;
  }
  // A copy of a tensor under another name, its values less `less`.
  void CopyTensor(const std::string& from, const std::string& to, float less = 0) {
    const int index = file_->FindTensor(from);
    ASSERT_GE(index, 0) << from;
    TensorInfo tensor = file_->tensors()[static_cast<size_t>(index)];
    std::vector<float>& values = values_.emplace_back(static_cast<size_t>(tensor.values()));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    for (float& value : values) value -= less;
    tensor.data = std::as_bytes(std::span(values));
    tensors_.push_back({to, tensor});
  }
  void AddTensor(const std::string& name, std::vector<int64_t> dims) {
    TensorInfo tensor = {
        .name = {}, .type = DType::kF32, .n_dims = 0, .dims = {1, 1, 1, 1}, .data = {}};
    for (const int64_t n : dims) tensor.dims[tensor.n_dims++] = n;
    std::vector<float>& values = values_.emplace_back(static_cast<size_t>(tensor.values()), 0.25f);
    tensor.data = std::as_bytes(std::span(values));
    tensors_.push_back({name, tensor});
  }

  // Every matrix of a layer four times as large, with a factor that makes up for it. Powers of two
  // change no bits.
  void ScaleMatrices() {
    std::vector<std::pair<std::string, TensorInfo>> factors;
    for (auto& [name, tensor] : tensors_) {
      const bool is_matrix = name.starts_with("blk.") && name.ends_with(".weight") &&
                             tensor.n_dims > 1 && name.find("conv") == name.npos &&
                             name.find("ffn_gate_inp") == name.npos;
      if (!is_matrix) continue;
      std::vector<float>& values = values_.emplace_back(static_cast<size_t>(tensor.values()));
      std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
      for (float& value : values) value *= 4;
      tensor.data = std::as_bytes(std::span(values));
      const std::string base = name.substr(0, name.size() - 7);
      for (const char* kind : {".scale", ".input_scale"}) {
        std::vector<float>& own = values_.emplace_back(static_cast<size_t>(tensor.dims[2]), 0.25f);
        TensorInfo factor = {.name = {},
                             .type = DType::kF32,
                             .n_dims = 1,
                             .dims = {tensor.dims[2], 1, 1, 1},
                             .data = std::as_bytes(std::span(own))};
        factors.emplace_back(base + kind, factor);
      }
    }
    tensors_.insert(tensors_.end(), factors.begin(), factors.end());
  }

  const std::string& architecture() const { return architecture_; }
  Status Write(const std::string& path) const {
    GgufWriter writer;
    for (const auto& [key, value] : keys_) writer.AddMeta(key, value);
    for (const auto& [name, tensor] : tensors_) {
      writer.AddTensor(name, tensor.type,
                       std::span(tensor.dims, static_cast<size_t>(tensor.n_dims)), tensor.data);
    }
    return writer.Write(path);
  }

 private:
  std::string Full(const std::string& key) const { return StrCat(architecture_, ".", key); }

  const std::shared_ptr<const ModelFile> file_;
  std::string architecture_;
  std::vector<std::pair<std::string, MetaValue>> keys_;
  std::vector<std::pair<std::string, TensorInfo>> tensors_;
  std::deque<std::string> texts_;
  std::deque<std::vector<float>> values_;
};

struct Form {
  std::string model;
  std::function<void(Rewriter&)> rewrite;
};

// A head with the tensors of the last layer, which attends.
void AddHead(Rewriter& file) {
  for (const char* name : {"attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm"}) {
    file.CopyTensor(StrCat("blk.3.", name, ".weight"), StrCat("mtp.layers.0.", name, ".weight"), 1);
  }
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    file.CopyTensor(StrCat("blk.3.", name, ".weight"), StrCat("mtp.layers.0.", name, ".weight"));
  }
  file.AddTensor("mtp.fc.weight", {256, 128});
  for (const char* name : {"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"}) {
    file.AddTensor(StrCat(name, ".weight"), {128});
  }
}

void WithVision(Rewriter& file) {
  file.AddTensor("v.patch_embd.weight", {4, 8});
  file.AddTensor("v.blk.0.attn_q.weight", {8, 8});
  file.AddTensor("mm.input_projection.weight", {8, 4});
}

void KeyHeadsPerLayer(Rewriter& file) {
  file.SetKey("attention.head_count_kv", MetaArray{.items = std::vector<uint64_t>{0, 0, 0, 2}});
  file.RenameTensors(".ssm_dt.bias", ".ssm_dt");
}

std::vector<Form> Forms() {
  const auto hybrid = [](Rewriter& file) {
    WithVision(file);
    KeyHeadsPerLayer(file);
    file.SetKey("vision.block_count", uint64_t{1});
  };
  return {
      {"gemma3",
       [](Rewriter& file) {
         WithVision(file);
         file.DropKey("attention.layer_norm_rms_epsilon");
         file.DropKey("rope.freq_base");
         file.RenameKey("rope.freq_base_swa", "rope.local.freq_base");
       }},
      {"gemma4",
       [](Rewriter& file) {
         WithVision(file);
         file.AddTensor("a.conv1d.0.weight", {3, 3});
       }},
      {"qwen35",
       [hybrid](Rewriter& file) {
         hybrid(file);
         AddHead(file);
       }},
      {"qwen35moe",
       [hybrid](Rewriter& file) {
         hybrid(file);
         file.AddTensor("mtp.layers.0.mlp.experts.0.up_proj.weight", {4, 4});
       }},
      {"qwen3next", KeyHeadsPerLayer},
      {"gpt-oss",
       [](Rewriter& file) {
         file.DropKey("expert_feed_forward_length");
         file.Become("gptoss");
         file.RenameTensors(".attn_output.", ".attn_out.");
         file.RenameTensors(".attn_sinks.weight", ".attn_sinks");
         file.RenameTensors(".post_attention_norm.", ".ffn_norm.");
       }},
      {"lfm2",
       [](Rewriter& file) {
         file.SetKey("feed_forward_length", uint64_t{384});
         file.RenameTensors("token_embd_norm", "output_norm");
       }},
      {"olmo2", [](Rewriter& file) { file.Become("olmo3"); }},
      {"mistral3",
       [](Rewriter& file) {
         WithVision(file);
         file.RenameKey("rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast");
         file.RenameKey("rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow");
         file.RenameKey("rope.scaling.yarn_log_multiplier", "rope.scaling.mscale_all_dim");
         file.RenameKey("attention.temperature_scale", "rope.scaling_beta");
       }},
      {"qwen3vl",
       [](Rewriter& file) {
         WithVision(file);
         file.DropKey("rope.dimension_sections");
       }},
      {"qwen2vl",
       [](Rewriter& file) {
         WithVision(file);
         file.Become("qwen25vl");
       }},
      {"deepseek2",
       [](Rewriter& file) {
         file.SetKey("attention.head_count_kv", uint64_t{4});
         file.SetKey("attention.key_length", uint64_t{48});
         file.SetKey("attention.value_length", uint64_t{32});
         file.SetKey("attention.key_length_mla", uint64_t{64});
         file.SetKey("attention.value_length_mla", uint64_t{48});
         file.Become("glm4moelite");
       }},
  };
}

class RewrittenTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& model) const {
    return (folder_ / StrCat(model, ".gguf")).string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // That the rewritten model computes what the original does.
  void Compare(const std::string& backend, const Form& form) const {
    SCOPED_TRACE(StrCat(form.model, " on ", backend));
    const std::string original = FloatModelPath(form.model), path = PathOf(form.model);
    auto file = ModelFile::Open(original);
    ASSERT_TRUE(file.ok()) << file.status();
    Rewriter rewriter(*file);
    form.rewrite(rewriter);
    ASSERT_TRUE(rewriter.Write(path).ok());
    const auto run = ReadShortRun(form.model);
    ASSERT_TRUE(run.ok()) << run.status();
    std::vector<float> logits[2];
    for (const bool rewritten : {false, true}) {
      const auto model = LoadModel(backend, rewritten ? path : original, run->context_tokens);
      ASSERT_TRUE(model.ok()) << model.status();
      auto result = RunTokens(*model, run->tokens);
      ASSERT_TRUE(result.ok()) << result.status();
      logits[rewritten ? 1 : 0] = *std::move(result);
    }
    ASSERT_EQ(logits[0].size(), logits[1].size());
    EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
  }

 private:
  const std::filesystem::path folder_ = [] {
    std::string name = (std::filesystem::temp_directory_path() / "weft_rewritten_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return std::filesystem::path(name);
  }();
};

TEST_F(RewrittenTest, OllamasFormComputesTheSameBits) {
  WEFT_REQUIRE_GOLDENS();
  const std::vector<std::string> known = FloatModelNames();
  for (const Form& form : Forms()) {
    // Slow builds take a few of the models.
    if (std::ranges::find(known, form.model) != known.end()) Compare("cpu", form);
  }
}

TEST_F(RewrittenTest, FactorsOfMatricesComputeTheSameBits) {
  WEFT_REQUIRE_GOLDENS();
  const std::vector<std::string> known = FloatModelNames();
  for (const std::string_view backend : UsableBackends()) {
    for (const char* model : {"llama", "qwen3", "qwen3moe", "lfm2"}) {
      if (std::ranges::find(known, model) == known.end()) continue;
      Compare(std::string(backend), {model, &Rewriter::ScaleMatrices});
    }
  }
}

// The head takes part as one in llama.cpp's form would.
TEST_F(RewrittenTest, OllamasHeadIsKept) {
  WEFT_REQUIRE_GOLDENS();
  auto file = ModelFile::Open(FloatModelPath("qwen35"));
  ASSERT_TRUE(file.ok()) << file.status();
  Rewriter rewriter(*file);
  AddHead(rewriter);
  const std::string path = PathOf("qwen35");
  ASSERT_TRUE(rewriter.Write(path).ok());
  const auto rewritten = ModelFile::Open(path);
  ASSERT_TRUE(rewritten.ok()) << rewritten.status();
  const auto spec = BuildModelSpec(**rewritten, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_NE(spec->prediction_head, nullptr) << spec->no_prediction_head;
  const Norm& norm = spec->prediction_head->layers[0].blocks[0].pre;
  const auto data = (*rewritten)->tensors()[static_cast<size_t>(norm.weight.index)].data;
  const auto original =
      (*file)->tensors()[static_cast<size_t>((*file)->FindTensor("blk.3.attn_norm.weight"))].data;
  for (size_t i = 0; i < data.size() / sizeof(float); ++i) {
    float mine = 0, theirs = 0;
    std::memcpy(&mine, data.data() + i * sizeof(mine), sizeof(mine));
    std::memcpy(&theirs, original.data() + i * sizeof(theirs), sizeof(theirs));
    EXPECT_NEAR(mine, theirs, 1e-6) << i;
  }
}

}  // namespace
}  // namespace weft::testing
