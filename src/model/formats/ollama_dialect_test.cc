// Files as Ollama's converters write them, in few bytes. That they compute the same is in
// tests/conformance.

#include "model/formats/ollama_dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/formats/gguf_test_util.h"
#include "model/formats/gguf_writer.h"
#include "model/formats/model_file.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MustParse;

// A file of one architecture, whose tensors hold the values 0.5, 1.5, 2.5, ...
class OllamaFile {
 public:
  explicit OllamaFile(const std::string& architecture) : architecture_(architecture) {
    writer_.AddString("general.architecture", architecture);
  }
  OllamaFile& Count(const std::string& key, uint32_t value) {
    writer_.AddUint32(Full(key), value);
    return *this;
  }
  OllamaFile& Number(const std::string& key, float value) {
    writer_.AddFloat32(Full(key), value);
    return *this;
  }
  OllamaFile& Text(const std::string& key, const std::string& value) {
    writer_.AddString(Full(key), value);
    return *this;
  }
  OllamaFile& Counts(const std::string& key, const std::vector<uint32_t>& values) {
    writer_.AddUint32Array(Full(key), values);
    return *this;
  }
  OllamaFile& Texts(const std::string& key, const std::vector<std::string>& texts) {
    writer_.AddStringArray(key, texts);
    return *this;
  }
  OllamaFile& Tokens(const std::vector<std::string>& tokens) {
    return Texts("tokenizer.ggml.tokens", tokens);
  }
  OllamaFile& Tensor(const std::string& name, std::vector<int64_t> dims = {2}) {
    writer_.AddTensor(name, DType::kF32, dims, [](int64_t row, std::span<std::byte> bytes) {
      for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
        const float value = static_cast<float>(row * 100 + static_cast<int64_t>(i)) + 0.5f;
        std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
      }
    });
    return *this;
  }
  // The file must not outlive this.
  std::shared_ptr<const ModelFile> Open() {
    bytes_ = writer_.ToBytes();
    return MustParse(bytes_);
  }
  Status Error() {
    bytes_ = writer_.ToBytes();
    return ModelFile::FromBytes("m.gguf", std::as_bytes(std::span(bytes_))).status();
  }

 private:
  std::string Full(const std::string& key) const {
    return key.starts_with('.') ? architecture_ + key : key;
  }
  std::string architecture_;
  GgufWriter writer_;
  std::string bytes_;
};

std::vector<std::string> Names(std::span<const TensorInfo> tensors) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : tensors) names.emplace_back(tensor.name);
  return names;
}

float FirstValue(const ModelFile& file, std::string_view name) {
  float value = -1;
  const int index = file.FindTensor(name);
  if (index < 0) return value;
  const TensorInfo& tensor = file.tensors()[static_cast<size_t>(index)];
  std::vector<std::byte> bytes(sizeof(value));
  EXPECT_TRUE(file.Read(tensor, 0, bytes).ok());
  EXPECT_EQ(std::memcmp(bytes.data(), tensor.data.data(), bytes.size()), 0);
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

TEST(OllamaDialect, LeavesOtherFilesAlone) {
  OllamaFile written("llama");
  written.Count(".block_count", 2).Tensor("blk.0.attn_out.weight").Tensor("blk.0.ssm_dt");
  const auto file = written.Open();
  EXPECT_THAT(Names(file->tensors()), ElementsAre("blk.0.attn_out.weight", "blk.0.ssm_dt"));
  EXPECT_THAT(file->set_aside(), IsEmpty());
  EXPECT_EQ(file->TranslationNote(), "");
}

TEST(OllamaDialect, SetsPicturesSoundAndHeadsAside) {
  OllamaFile written("llama4");
  written.Tensor("v.blk.0.attn_q.weight").Tensor("token_embd.weight", {2, 3}).Tensor("mm.0.weight");
  written.Tensor("a.conv1d.0.weight").Tensor("mtp.layers.0.x").Tensor("value.weight");
  const auto file = written.Open();
  EXPECT_THAT(Names(file->tensors()), ElementsAre("token_embd.weight", "value.weight"));
  EXPECT_THAT(Names(file->set_aside()), ElementsAre("v.blk.0.attn_q.weight", "mm.0.weight",
                                                    "a.conv1d.0.weight", "mtp.layers.0.x"));
  EXPECT_EQ(file->FindTensor("mm.0.weight"), -1);
  EXPECT_EQ(FirstValue(*file, "token_embd.weight"), 0.5f);
  EXPECT_THAT(file->TranslationNote(), HasSubstr("leaves out 4 tensors"));

  // A projector consists of these tensors only.
  OllamaFile projector("clip");
  projector.Tensor("v.blk.0.attn_q.weight");
  EXPECT_THAT(projector.Open()->set_aside(), IsEmpty());
}

TEST(OllamaDialect, RenamesArchitectureKeysAndTensors) {
  OllamaFile written("gptoss");
  written.Count(".block_count", 1).Text("tokenizer.ggml.model", "gpt2");
  written.Tensor("blk.0.attn_out.weight").Tensor("blk.0.attn_out.bias").Tensor("blk.0.attn_sinks");
  written.Tensor("blk.0.ffn_norm.weight").Tensor("blk.0.ffn_gate_exps.weight", {2, 3, 4});
  const auto file = written.Open();
  EXPECT_EQ(*file->GetString("general.architecture"), "gpt-oss");
  EXPECT_EQ(*file->GetInt("gpt-oss.block_count"), 1);
  EXPECT_EQ(*file->GetInt("gpt-oss.expert_feed_forward_length"), 3);
  EXPECT_EQ(*file->GetString("tokenizer.ggml.pre"), "gpt-4o");
  EXPECT_FALSE(file->HasMeta("gptoss.block_count"));
  EXPECT_THAT(
      Names(file->tensors()),
      ElementsAre("blk.0.attn_output.weight", "blk.0.attn_output.bias", "blk.0.attn_sinks.weight",
                  "blk.0.post_attention_norm.weight", "blk.0.ffn_gate_exps.weight"));
  EXPECT_THAT(file->TranslationNote(), HasSubstr("'gptoss'"));
}

TEST(OllamaDialect, RefusesOldAndNewNamesTogether) {
  OllamaFile keys("gptoss");
  keys.Count(".block_count", 1).Count("gpt-oss.block_count", 2);
  EXPECT_THAT(Message(keys.Error()), HasSubstr("its old name and its new one"));
  OllamaFile tensors("gptoss");
  tensors.Tensor("blk.0.attn_sinks").Tensor("blk.0.attn_sinks.weight");
  EXPECT_THAT(Message(tensors.Error()), HasSubstr("blk.0.attn_sinks.weight: it is there under"));
}

TEST(OllamaDialect, AssumesWhatGemma3LeavesOut) {
  OllamaFile written("gemma3");
  written.Count(".context_length", 131072).Number(".rope.local.freq_base", 5000);
  written.Tokens({"a", "b", "c", "<image>"}).Tensor("token_embd.weight", {2, 3});
  const auto file = written.Open();
  EXPECT_FLOAT_EQ(*file->GetFloat("gemma3.attention.layer_norm_rms_epsilon"), 1e-6);
  EXPECT_EQ(*file->GetFloat("gemma3.rope.freq_base"), 1e6);
  EXPECT_EQ(*file->GetFloat("gemma3.rope.freq_base_swa"), 5000);
  EXPECT_EQ(*file->GetFloat("gemma3.rope.scaling.factor"), 8);
  EXPECT_EQ(file->GetStringArray("tokenizer.ggml.tokens")->size(), 3u);

  // Nothing is assumed for llama.cpp's own files.
  OllamaFile other("gemma3");
  other.Number(".attention.layer_norm_rms_epsilon", 1e-5f).Count(".context_length", 131072);
  EXPECT_FALSE(other.Open()->HasMeta("gemma3.rope.freq_base"));
}

TEST(OllamaDialect, TellsAnEmbeddingModelByItsHead) {
  OllamaFile written("gemma3");
  written.Count(".block_count", 1).Tensor("dense.0.weight").Tensor("dense.1.weight");
  written.Tensor("norm.weight");
  const auto file = written.Open();
  EXPECT_EQ(*file->GetString("general.architecture"), "gemma-embedding");
  EXPECT_EQ(*file->GetInt("gemma-embedding.block_count"), 1);
  EXPECT_THAT(Names(file->tensors()),
              ElementsAre("dense_2.weight", "dense_3.weight", "output_norm.weight"));
}

TEST(OllamaDialect, CutsTablesToTheRowsOfText) {
  OllamaFile written("gemma3n");
  written.Tokens({"a", "b", "c", "d"}).Tensor("token_embd.weight", {2, 4});
  written.Tensor("per_layer_token_embd.weight", {6, 3});
  const auto file = written.Open();
  const TensorInfo& embedding = file->tensors()[0];
  EXPECT_EQ(embedding.dims[1], 3);
  EXPECT_EQ(embedding.data.size(), 3 * 2 * sizeof(float));
  EXPECT_EQ(file->GetStringArray("tokenizer.ggml.tokens")->size(), 3u);
}

TEST(OllamaDialect, MovesAHeadBehindTheLayers) {
  OllamaFile written("qwen35");
  written.Count(".block_count", 2).Counts(".attention.head_count_kv", {0, 4});
  written.Tensor("blk.0.ssm_dt").Tensor("blk.1.attn_norm.weight");
  written.Tensor("mtp.fc.weight", {4, 2}).Tensor("mtp.pre_fc_norm_hidden.weight");
  written.Tensor("mtp.norm.weight").Tensor("mtp.layers.0.attn_q_norm.weight");
  written.Tensor("mtp.layers.0.attn_q.weight", {2, 2});
  const auto file = written.Open();
  EXPECT_EQ(*file->GetInt("qwen35.attention.head_count_kv"), 4);
  EXPECT_EQ(*file->GetInt("qwen35.block_count"), 3);
  EXPECT_EQ(*file->GetInt("qwen35.nextn_predict_layers"), 1);
  EXPECT_THAT(
      Names(file->tensors()),
      ElementsAre("blk.0.ssm_dt.bias", "blk.1.attn_norm.weight", "blk.2.nextn.eh_proj.weight",
                  "blk.2.nextn.hnorm.weight", "blk.2.nextn.shared_head_norm.weight",
                  "blk.2.attn_q_norm.weight", "blk.2.attn_q.weight"));
  // Norms of the head lack the one that those of the layers include.
  for (const char* name : {"nextn.hnorm", "nextn.shared_head_norm", "attn_q_norm"}) {
    EXPECT_EQ(FirstValue(*file, std::string("blk.2.") + name + ".weight"), 1.5f) << name;
  }
  EXPECT_EQ(FirstValue(*file, "blk.1.attn_norm.weight"), 0.5f);
  EXPECT_EQ(FirstValue(*file, "blk.2.attn_q.weight"), 0.5f);
}

TEST(OllamaDialect, SetsAHeadOfSingleExpertsAside) {
  OllamaFile written("qwen35moe");
  written.Count(".block_count", 1).Counts(".attention.head_count_kv", {2, 4});
  written.Tensor("blk.0.attn_norm.weight").Tensor("mtp.fc.weight", {4, 2});
  written.Tensor("mtp.layers.0.mlp.experts.0.up_proj.weight");
  const auto file = written.Open();
  EXPECT_EQ(file->set_aside().size(), 2u);
  EXPECT_EQ(*file->GetInt("qwen35moe.block_count"), 1);
  EXPECT_FALSE(file->HasMeta("qwen35moe.nextn_predict_layers"));
  EXPECT_THAT(*file->GetIntArray("qwen35moe.attention.head_count_kv"), ElementsAre(2, 4));
}

TEST(OllamaDialect, PutsTheSizesOfLatentAttentionInPlace) {
  OllamaFile written("glm4moelite");
  written.Count(".attention.kv_lora_rank", 16).Count(".rope.dimension_count", 4);
  written.Count(".attention.key_length", 12).Count(".attention.value_length", 12);
  written.Count(".attention.head_count_kv", 2);
  written.Tensor("blk.0.attn_k_b.weight", {8, 16, 2}).Tensor("blk.0.attn_v_b.weight", {16, 6, 2});
  const auto file = written.Open();
  EXPECT_EQ(*file->GetString("general.architecture"), "deepseek2");
  const std::pair<const char*, int64_t> expected[] = {{"head_count_kv", 1},
                                                      {"key_length", 20},
                                                      {"value_length", 16},
                                                      {"key_length_mla", 12},
                                                      {"value_length_mla", 6}};
  for (const auto& [key, value] : expected) {
    EXPECT_EQ(*file->GetInt(std::string("deepseek2.attention.") + key), value) << key;
  }
}

TEST(OllamaDialect, GivesTokenizersTheirNames) {
  OllamaFile gemma("gemma4");
  gemma.Text("tokenizer.ggml.model", "llama").Counts("tokenizer.ggml.merges", {1});
  EXPECT_EQ(*gemma.Open()->GetString("tokenizer.ggml.model"), "gemma4");
  OllamaFile pieces("gemma4");
  pieces.Text("tokenizer.ggml.model", "llama");
  EXPECT_EQ(*pieces.Open()->GetString("tokenizer.ggml.model"), "llama");

  OllamaFile mistral("mistral3");
  mistral.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "default");
  mistral.Number(".rope.scaling.beta_fast", 32).Number(".rope.scaling_beta", 0.1f);
  const auto file = mistral.Open();
  EXPECT_EQ(*file->GetString("tokenizer.ggml.pre"), "tekken");
  EXPECT_EQ(*file->GetFloat("mistral3.rope.scaling.yarn_beta_fast"), 32);
  EXPECT_TRUE(file->HasMeta("mistral3.attention.temperature_scale"));
}

TEST(OllamaDialect, DecodesAMapOfCharacters) {
  OllamaFile written("bert");
  written.Texts("tokenizer.ggml.precompiled_charsmap", {"A", "f", "/", "+", "e", "A", "=", "="});
  EXPECT_THAT(*written.Open()->GetIntArray("tokenizer.ggml.precompiled_charsmap"),
              ElementsAre(1, 0xFF, 0xFE, 0x78));
  OllamaFile odd("bert");
  odd.Texts("tokenizer.ggml.precompiled_charsmap", {"A", "!"});
  EXPECT_EQ(odd.Open()->GetStringArray("tokenizer.ggml.precompiled_charsmap")->size(), 2u);
}

TEST(OllamaDialect, TellsLlama3ByItsTokens) {
  std::vector<std::string> tokens;
  for (int id = 0; id < 128010; ++id) tokens.push_back("t" + std::to_string(id));
  tokens[128006] = "<|start_header_id|>";
  tokens[128009] = "<|eot_id|>";
  OllamaFile written("llama");
  written.Text("tokenizer.ggml.model", "gpt2").Tokens(tokens);
  written.Count("tokenizer.ggml.eos_token_id", 128001);
  const auto file = written.Open();
  EXPECT_EQ(*file->GetInt("tokenizer.ggml.eos_token_id"), 128001);
  EXPECT_EQ(*file->GetString("tokenizer.ggml.pre"), "llama-bpe");
}

TEST(OllamaDialect, FindsTheTextOfNemotronOmni) {
  OllamaFile dense("nemotron_h_omni");
  dense.Count(".block_count", 1).Tensor("a.x").Tensor("blk.0.attn_norm.weight");
  EXPECT_EQ(*dense.Open()->GetString("general.architecture"), "nemotron_h");
  OllamaFile experts("nemotron_h_omni");
  experts.Count(".expert_count", 4).Tensor("blk.0.ffn_latent_in.weight", {4, 2});
  const auto file = experts.Open();
  EXPECT_EQ(*file->GetInt("nemotron_h_moe.expert_count"), 4);
  EXPECT_EQ(*file->GetInt("nemotron_h_moe.moe_latent_size"), 2);
  EXPECT_THAT(Names(file->tensors()), ElementsAre("blk.0.ffn_latent_down.weight"));
}

}  // namespace
}  // namespace weft
