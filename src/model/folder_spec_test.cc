// Folders of Hugging Face's libraries, written from the reference models: the same keys, the same
// tensors with the same values, hence the same specs and logits.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "base/files/mapped_file.h"
#include "base/half.h"
#include "model/formats/hf/safetensors.h"
#include "model/model_spec_test_util.h"
#include "nlohmann/json.hpp"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

struct StoredTensor {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

void WriteSafeTensors(const std::string& path, const std::vector<StoredTensor>& tensors) {
  Json head = {{"__metadata__", {{"format", "pt"}}}};
  size_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    head[tensor.name] = {{"dtype", tensor.type},
                         {"shape", tensor.shape},
                         {"data_offsets", {at, at + tensor.bytes.size()}}};
    at += tensor.bytes.size();
  }
  const std::string text = head.dump();
  const uint64_t n = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&n), sizeof(n)) << text;
  for (const StoredTensor& tensor : tensors) out << tensor.bytes;
}

std::vector<float> FloatsOf(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (tensor.type == DType::kF32) {
      std::memcpy(&values[i], tensor.data.data() + 4 * i, 4);
    } else {
      std::memcpy(&half, tensor.data.data() + 2 * i, 2);
      values[i] = tensor.type == DType::kF16 ? F16ToF32(half) : BF16ToF32(half);
    }
  }
  return values;
}

// How a reference model is saved.
struct Class {
  std::string model, class_name;
  bool reorders = false, minus_one = false, norms_after = false;
  Json more = Json::object();
};

std::vector<Class> Classes() {
  return {{"llama", "LlamaForCausalLM", true},
          {"qwen2", "Qwen2ForCausalLM"},
          {"qwen3", "Qwen3ForCausalLM"},
          {"gemma2", "Gemma2ForCausalLM", false, true, true},
          {"gemma3", "Gemma3ForCausalLM", false, true, true},
          {"gemma3", "Gemma3ForConditionalGeneration", false, true, true},
          {"olmo2", "Olmo2ForCausalLM", false, false, true},
          {"smollm3", "SmolLM3ForCausalLM", true},
          {"granite", "GraniteForCausalLM", true},
          {"phi3", "Phi3ForCausalLM"}};
}

std::string TheirName(const std::string& ours, bool norms_after) {
  static const std::map<std::string, std::string> kWhole = {
      {"token_embd.weight", "model.embed_tokens.weight"},
      {"output_norm.weight", "model.norm.weight"},
      {"output.weight", "lm_head.weight"}};
  static const std::map<std::string, std::string> kParts = {
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"post_attention_norm", "post_attention_layernorm"}};
  if (const auto whole = kWhole.find(ours); whole != kWhole.end()) return whole->second;
  const size_t first = ours.find('.'), second = ours.find('.', first + 1);
  const size_t third = ours.find('.', second + 1);
  const std::string number = ours.substr(first + 1, second - first - 1);
  const std::string part = ours.substr(second + 1, third - second - 1);
  std::string theirs = part == "ffn_norm"
                           ? norms_after ? "pre_feedforward_layernorm" : "post_attention_layernorm"
                           : kParts.at(part);
  return StrCat("model.layers.", number, ".", theirs, ours.substr(third));
}

// The tensor as the class stores it, in BF16 where that loses nothing.
StoredTensor Stored(const Class& saved, const TensorInfo& tensor, int64_t n_heads) {
  std::vector<float> values = FloatsOf(tensor);
  const std::string name(tensor.name);
  if (saved.reorders && (name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight"))) {
    const std::vector<float> from = values;
    const int64_t width = tensor.dims[0], half = tensor.dims[1] / n_heads / 2;
    for (int64_t row = 0; row < tensor.dims[1]; ++row) {
      const int64_t head = row / (2 * half), in_head = row % (2 * half);
      const int64_t source =
          head * 2 * half + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
      std::copy_n(from.begin() + source * width, width, values.begin() + row * width);
    }
  }
  if (saved.minus_one && tensor.n_dims == 1) {
    for (float& value : values) value -= 1;
  }
  std::string their_name = TheirName(name, saved.norms_after);
  if (const size_t up = their_name.find("up_proj");
      saved.model == "phi3" && up != their_name.npos) {
    their_name.insert(up, "gate_");  // both in one matrix
  }
  StoredTensor stored{.name = their_name, .type = "BF16", .shape = {}, .bytes = {}};
  for (int i = tensor.n_dims; i-- > 0;) stored.shape.push_back(tensor.dims[i]);
  for (const float value : values) {
    if ((std::bit_cast<uint32_t>(value) & 0xFFFF) != 0) stored.type = "F32";
  }
  for (const float value : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const auto high = static_cast<uint16_t>(bits >> 16);
    if (stored.type == "F32") {
      stored.bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    } else {
      stored.bytes.append(reinterpret_cast<const char*>(&high), sizeof(high));
    }
  }
  return stored;
}

Json ConfigOf(const Class& saved, const ModelFile& file) {
  const std::string architecture(*file.GetString("general.architecture"));
  const std::pair<const char*, const char*> kKeys[] = {
      {"block_count", "num_hidden_layers"},
      {"embedding_length", "hidden_size"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_key_value_heads"},
      {"attention.key_length", "head_dim"},
      {"context_length", "max_position_embeddings"},
      {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
      {"rope.freq_base", "rope_theta"},
      {"rope.freq_base_swa", "rope_local_base_freq"},
      {"attention.sliding_window", "sliding_window"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"attention.scale", "attention_multiplier"},
      {"logit_scale", "logits_scaling"}};
  Json config = {{"architectures", {saved.class_name}}};
  for (const auto& [ours, theirs] : kKeys) {
    const std::string key = StrCat(architecture, ".", ours);
    if (!file.HasMeta(key)) continue;
    if (const auto n = file.GetInt(key); n.ok()) {
      config[theirs] = *n;
    } else {
      config[theirs] = *file.GetFloat(key);
    }
  }
  if (file.HasMeta(architecture + ".rope.scaling.factor")) {
    config["rope_scaling"] = {{"rope_type", *file.GetString(architecture + ".rope.scaling.type")},
                              {"factor", *file.GetFloat(architecture + ".rope.scaling.factor")}};
  }
  if (saved.model == "phi3") {
    const auto factors = [&](const char* name) {
      return FloatsOf(file.tensors()[static_cast<size_t>(file.FindTensor(name))]);
    };
    config["original_max_position_embeddings"] = 4096;
    config["rope_scaling"] = {{"type", "longrope"},
                              {"attention_factor", *file.GetFloat("phi3.rope.scaling.attn_factor")},
                              {"long_factor", factors("rope_factors_long.weight")},
                              {"short_factor", factors("rope_factors_short.weight")}};
  }
  return config;
}

class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "weft_folder_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    Write(
        "tokenizer.json",
        Json({{"model",
               {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", {{"a", 0}, {"<0x41>", 1}}}}}}));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string In(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const Json& json) const {
    std::ofstream(In(name)) << json.dump();
  }
  std::string Error() const { return std::string(Message(ModelFile::Open(folder_).status())); }

  std::string folder_;
};

TEST_F(FolderTest, HoldsTheReferenceModels) {
  WEFT_REQUIRE_GOLDENS();
  for (const Class& saved : Classes()) {
    SCOPED_TRACE(saved.model);
    const auto gguf = ModelFile::Open(testing::GoldensDir() + "/models/" + saved.model + ".gguf");
    ASSERT_TRUE(gguf.ok()) << gguf.status();
    const std::string architecture(*(*gguf)->GetString("general.architecture"));
    // Where text is one of a model's senses, its configuration is a part, and says less.
    const bool has_vision = saved.class_name.ends_with("ForConditionalGeneration");
    Json config = ConfigOf(saved, **gguf);
    if (has_vision) {
      for (const char* name : {"rms_norm_eps", "rope_theta", "rope_local_base_freq"}) {
        config.erase(name);
      }
      config.erase("architectures");
      config = {{"architectures", {saved.class_name}}, {"text_config", config}};
    }
    Write("config.json", config);
    std::vector<StoredTensor> shards[2];
    for (const TensorInfo& tensor : (*gguf)->tensors()) {
      // The configuration has them.
      if (tensor.name.starts_with("rope_factors_")) continue;
      const bool is_k = tensor.name.ends_with("attn_k.weight");
      const int64_t n_heads = *(*gguf)->GetInt(
          StrCat(architecture, is_k ? ".attention.head_count_kv" : ".attention.head_count"));
      StoredTensor stored = Stored(saved, tensor, n_heads);
      if (has_vision) stored.name = "language_model." + stored.name;
      shards[tensor.name.ends_with("norm.weight") ? 0 : 1].push_back(std::move(stored));
    }
    if (has_vision) shards[0].push_back({"vision_tower.x", "F32", {1}, "abcd"});
    WriteSafeTensors(In("model-00001-of-00002.safetensors"), shards[0]);
    WriteSafeTensors(In("model-00002-of-00002.safetensors"), shards[1]);

    const auto folder = ModelFile::Open(folder_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_EQ((*folder)->tensors().size(), (*gguf)->tensors().size());
    for (const TensorInfo& tensor : (*gguf)->tensors()) {
      const int index = (*folder)->FindTensor(tensor.name);
      ASSERT_GE(index, 0) << tensor.name;
      const std::vector<float> mine = FloatsOf((*folder)->tensors()[static_cast<size_t>(index)]);
      const std::vector<float> theirs = FloatsOf(tensor);
      ASSERT_EQ(mine.size(), theirs.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        ASSERT_NEAR(mine[i], theirs[i], saved.minus_one && tensor.n_dims == 1 ? 1e-6 : 0)
            << tensor.name << " " << i;
      }
    }
    const auto a = BuildModelSpec(**gguf, {}), b = BuildModelSpec(**folder, {});
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(a->ropes, b->ropes);
    EXPECT_EQ(a->embedding_scale, b->embedding_scale);
    EXPECT_EQ(a->logit_scale, b->logit_scale);
    EXPECT_EQ(a->logit_softcap, b->logit_softcap);
    ASSERT_EQ(a->layers.size(), b->layers.size());
    for (size_t layer = 0; layer < a->layers.size(); ++layer) {
      const Attention& x = std::get<Attention>(a->layers[layer].blocks[0].paths[0].op);
      const Attention& y = std::get<Attention>(b->layers[layer].blocks[0].paths[0].op);
      EXPECT_EQ(x.scale, y.scale);
      EXPECT_EQ(x.softcap, y.softcap);
      EXPECT_EQ(x.rope, y.rope);
      EXPECT_EQ(a->layers[layer].blocks[0].residual_scale,
                b->layers[layer].blocks[0].residual_scale);
      EXPECT_EQ(x.q_norm.epsilon, y.q_norm.epsilon);
      EXPECT_EQ(a->kv_groups[static_cast<size_t>(a->kv_layers[layer].group)].window,
                b->kv_groups[static_cast<size_t>(b->kv_layers[layer].group)].window);
    }
  }
}

TEST_F(FolderTest, SaysWhatIsMissing) {
  EXPECT_THAT(Error(), HasSubstr("a folder without config.json"));
  Write("config.json", {{"architectures", {"BloomForCausalLM"}}});
  EXPECT_THAT(Error(), HasSubstr("'BloomForCausalLM' are read from GGUF files only"));
  Write("config.json",
        {{"architectures", {"LlamaForCausalLM"}}, {"quantization_config", {{"bits", 4}}}});
  EXPECT_THAT(Error(), HasSubstr("quantized"));
  Write("config.json", {{"architectures", {"LlamaForCausalLM"}}, {"hidden_size", "wide"}});
  EXPECT_THAT(Error(), HasSubstr("config.json: hidden_size must be an integer"));
  Write("config.json", {{"architectures", {"LlamaForCausalLM"}}});
  EXPECT_THAT(Error(), HasSubstr("no *.safetensors"));
  Write("model.safetensors.index.json", {{"weight_map", {{"x", "other.safetensors"}}}});
  EXPECT_THAT(Error(), HasSubstr("other.safetensors is missing"));
}

TEST_F(FolderTest, RefusesBrokenSafeTensors) {
  Write("config.json", {{"architectures", {"Qwen2ForCausalLM"}}});
  const std::string path = In("model.safetensors");
  const auto error_of = [&](const std::string& head, size_t n_values) {
    const uint64_t n = head.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&n), sizeof(n)) << head << std::string(n_values, 'x');
    out.close();
    return Error();
  };
  const auto entry = [](const std::string& type, const std::string& shape, const std::string& at) {
    return R"({"t":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + at +
           "}}";
  };
  std::ofstream(path).close();
  EXPECT_THAT(Error(), HasSubstr("no safetensors file"));
  EXPECT_THAT(error_of("{", 0), HasSubstr("its head"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("no object"));
  EXPECT_THAT(error_of(entry("F32", "[2]", "[0,8]"), 7), HasSubstr("end at byte 8 of 7"));
  EXPECT_THAT(error_of(entry("F32", "[3]", "[0,8]"), 8), HasSubstr("needs 12"));
  EXPECT_THAT(error_of(entry("F32", "[0]", "[0,0]"), 8), HasSubstr("its shape"));
  EXPECT_THAT(error_of(entry("F32", "[1,1,1,1,1]", "[0,4]"), 8), HasSubstr("5 dimensions"));
  EXPECT_THAT(error_of(entry("F32", "[4294967296,4294967296]", "[0,4]"), 8),
              HasSubstr("its shape"));
  EXPECT_THAT(error_of(entry("F32", "[1]", "[4,0]"), 8), HasSubstr("end at byte 0"));
  EXPECT_THAT(error_of(entry("I8", "[1]", "[0,1]"), 8), HasSubstr("its type I8"));
  EXPECT_THAT(error_of(entry("F32", "\"x\"", "[0,4]"), 8), HasSubstr("no shape"));
  std::ofstream(path, std::ios::binary) << std::string(16, '\xFF');
  EXPECT_THAT(Error(), HasSubstr("no safetensors file, or not all of one"));
}

// A BERT of one layer, as old files name its norms.
std::vector<StoredTensor> TinyBertTensors() {
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    tensors.push_back({name, "F32", shape, std::string(static_cast<size_t>(4 * n), 0)});
  };
  add("bert.embeddings.word_embeddings.weight", {6, 4});
  add("bert.embeddings.position_embeddings.weight", {8, 4});
  add("bert.embeddings.token_type_embeddings.weight", {2, 4});
  add("bert.embeddings.LayerNorm.gamma", {4});
  add("bert.embeddings.LayerNorm.beta", {4});
  tensors.push_back({"bert.embeddings.position_ids", "I64", {1, 8}, std::string(64, 0)});
  add("bert.pooler.dense.weight", {4, 4});
  add("bert.pooler.dense.bias", {4});
  const std::string layer = "bert.encoder.layer.0.";
  for (const char* part : {"attention.self.query", "attention.self.key", "attention.self.value",
                           "attention.output.dense"}) {
    add(StrCat(layer, part, ".weight"), {4, 4});
    add(StrCat(layer, part, ".bias"), {4});
  }
  add(layer + "intermediate.dense.weight", {16, 4});
  add(layer + "intermediate.dense.bias", {16});
  add(layer + "output.dense.weight", {4, 16});
  add(layer + "output.dense.bias", {4});
  for (const char* part : {"attention.output", "output"}) {
    add(StrCat(layer, part, ".LayerNorm.gamma"), {4});
    add(StrCat(layer, part, ".LayerNorm.beta"), {4});
  }
  return tensors;
}

TEST_F(FolderTest, HoldsEncoders) {
  Json config = {
      {"architectures", {"BertModel"}}, {"num_hidden_layers", 1},   {"hidden_size", 4},
      {"intermediate_size", 16},        {"num_attention_heads", 2}, {"max_position_embeddings", 8},
      {"layer_norm_eps", 1e-12},        {"hidden_act", "gelu"}};
  Write("config.json", config);
  Write("tokenizer.json",
        {{"added_tokens",
          {{{"id", 0}, {"content", "[CLS]"}, {"special", true}},
           {{"id", 1}, {"content", "[SEP]"}, {"special", true}}}},
         {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}}},
         {"model",
          {{"type", "WordPiece"},
           {"unk_token", "[UNK]"},
           {"vocab", {{"[CLS]", 0}, {"[SEP]", 1}, {"[UNK]", 2}, {"a", 3}, {"##b", 4}}}}}});
  std::filesystem::create_directories(In("1_Pooling"));
  Write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}});
  WriteSafeTensors(In("model.safetensors"), TinyBertTensors());
  auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*(*file)->GetStringArray("tokenizer.ggml.tokens"),
              ::testing::ElementsAre("[CLS]", "[SEP]", "[UNK]", "\u2581a", "b"));
  EXPECT_EQ(*(*file)->GetInt("tokenizer.ggml.seperator_token_id"), 1);
  auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->text_vector->pooling, Pooling::kMean);
  EXPECT_TRUE(NeedsWholeTexts(*spec));

  config["architectures"] = {"BertForSequenceClassification"};
  Write("config.json", config);
  std::vector<StoredTensor> tensors = TinyBertTensors();
  tensors.push_back({"classifier.weight", "F32", {1, 4}, std::string(16, 0)});
  tensors.push_back({"classifier.bias", "F32", {1}, std::string(4, 0)});
  WriteSafeTensors(In("model.safetensors"), tensors);
  file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->text_vector->scores);
  config["hidden_act"] = "relu";
  Write("config.json", config);
  EXPECT_THAT(Error(), HasSubstr("hidden_act"));
}

TEST_F(FolderTest, HoldsEmbeddingGemma) {
  Json config = {{"architectures", {"Gemma3TextModel"}},
                 {"num_hidden_layers", 1},
                 {"hidden_size", 4},
                 {"intermediate_size", 8},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"head_dim", 4},
                 {"max_position_embeddings", 16},
                 {"sliding_window", 8},
                 {"layer_types", {"full_attention"}},
                 {"use_bidirectional_attention", true}};
  Write("config.json", config);
  std::vector<StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    tensors.push_back({name, "F32", shape, std::string(static_cast<size_t>(4 * n), 0)});
  };
  add("embed_tokens.weight", {2, 4});
  add("norm.weight", {4});
  for (const char* norm :
       {"input_layernorm", "post_attention_layernorm", "post_feedforward_layernorm",
        "pre_feedforward_layernorm", "self_attn.k_norm", "self_attn.q_norm"}) {
    add(StrCat("layers.0.", norm, ".weight"), {4});
  }
  add("layers.0.mlp.down_proj.weight", {4, 8});
  add("layers.0.mlp.gate_proj.weight", {8, 4});
  add("layers.0.mlp.up_proj.weight", {8, 4});
  add("layers.0.self_attn.k_proj.weight", {4, 4});
  add("layers.0.self_attn.o_proj.weight", {4, 8});
  add("layers.0.self_attn.q_proj.weight", {8, 4});
  add("layers.0.self_attn.v_proj.weight", {4, 4});
  WriteSafeTensors(In("model.safetensors"), tensors);
  const auto dense = [&](const std::string& part, int64_t n_out, int64_t n_in) {
    std::filesystem::create_directories(In(part));
    Write(part + "/config.json", {{"activation_function", "torch.nn.modules.linear.Identity"}});
    WriteSafeTensors(In(part + "/model.safetensors"),
                     {{"linear.weight",
                       "F32",
                       {n_out, n_in},
                       std::string(static_cast<size_t>(4 * n_out * n_in), 0)}});
  };
  // The embedding has no row for this one.
  Write(
      "tokenizer.json",
      {{"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", {{"a", 0}, {"<0x41>", 1}}}}},
       {"added_tokens", {{{"id", 2}, {"content", "<image>"}, {"special", true}}}}});
  dense("2_Dense", 12, 4);
  dense("3_Dense", 6, 12);
  const auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(NeedsWholeTexts(*spec));
  EXPECT_EQ(spec->text_vector->pooling, Pooling::kMean);
  EXPECT_EQ((*file)->GetStringArray("tokenizer.ggml.tokens")->size(), 2u);
  ASSERT_EQ(spec->text_vector->head.size(), 2u);
  EXPECT_EQ(spec->text_vector->head[1].linear.n_out, 6);

  Write("2_Dense/config.json", {{"activation_function", "torch.nn.modules.activation.Tanh"}});
  EXPECT_THAT(Error(), HasSubstr("Tanh, which is not known here"));
  config["use_bidirectional_attention"] = false;
  Write("config.json", config);
  EXPECT_THAT(Error(), HasSubstr("use_bidirectional_attention"));
}

TEST_F(FolderTest, TakesTokensTemplateAndAdvice) {
  Write("config.json", {{"architectures", {"Qwen3ForCausalLM"}}, {"eos_token_id", {3, 4}}});
  Write("tokenizer.json", Json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<|end|>", "special": true},
                     {"id": 4, "content": "<tool>", "special": false}],
    "pre_tokenizer": {"type": "ByteLevel", "use_regex": true},
    "post_processor": {"single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})"));
  Write("tokenizer_config.json",
        {{"bos_token", {{"content", "<|end|>"}}}, {"chat_template", "old"}});
  Write("generation_config.json", {{"temperature", 0.5}, {"top_k", 7}});
  WriteSafeTensors(In("model.safetensors"), {{"x", "F32", {1}, "abcd"}});
  auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto tokens = (*file)->GetStringArray("tokenizer.ggml.tokens");
  EXPECT_THAT(*tokens, ::testing::ElementsAre("a", "b", "ab", "<|end|>", "<tool>"));
  EXPECT_THAT(*(*file)->GetIntArray("tokenizer.ggml.token_type"),
              ::testing::ElementsAre(1, 1, 1, 3, 4));
  EXPECT_THAT(*(*file)->GetStringArray("tokenizer.ggml.merges"), ::testing::ElementsAre("a b"));
  EXPECT_THAT(*(*file)->GetIntArray("tokenizer.ggml.eos_token_ids"), ::testing::ElementsAre(3, 4));
  EXPECT_EQ(*(*file)->GetString("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(*(*file)->GetInt("tokenizer.ggml.bos_token_id"), 3);
  EXPECT_TRUE(*(*file)->GetBool("tokenizer.ggml.add_bos_token"));
  EXPECT_EQ(*(*file)->GetString("tokenizer.chat_template"), "old");
  EXPECT_EQ(*(*file)->GetFloat("general.sampling.temp"), 0.5);
  std::ofstream(In("chat_template.jinja")) << "new";
  file = ModelFile::Open(folder_);
  EXPECT_EQ(*(*file)->GetString("tokenizer.chat_template"), "new");
  Write("tokenizer.json", {{"model", {{"type", "Unigram"}, {"vocab", Json::object()}}}});
  EXPECT_THAT(Error(), HasSubstr("'Unigram' is read from GGUF files only"));
}

TEST_F(FolderTest, ReadsTheBasesOfNewConfigurations) {
  Write("config.json", Json::parse(R"({
    "architectures": ["Gemma3ForCausalLM"], "rope_theta": 5, "rope_local_base_freq": 6,
    "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
      "sliding_attention": {"rope_type": "default", "rope_theta": 20000}}})"));
  WriteSafeTensors(In("model.safetensors"), {{"x", "F32", {1}, "abcd"}});
  const auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetFloat("gemma3.rope.freq_base"), 1e6);
  EXPECT_EQ(*(*file)->GetFloat("gemma3.rope.freq_base_swa"), 2e4);
  EXPECT_EQ(*(*file)->GetFloat("gemma3.rope.scaling.factor"), 8);
}

TEST_F(FolderTest, StretchesPositionsAsLlama3Does) {
  Write("config.json", {{"architectures", {"LlamaForCausalLM"}},
                        {"hidden_size", 128},
                        {"num_attention_heads", 1},
                        {"rope_theta", 500000.0},
                        {"rope_scaling",
                         {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}}}});
  WriteSafeTensors(In("model.safetensors"), {{"x", "F32", {1}, "abcd"}});
  const auto file = ModelFile::Open(folder_);
  ASSERT_TRUE(file.ok()) << file.status();
  const int index = (*file)->FindTensor("rope_freqs.weight");
  ASSERT_GE(index, 0);
  const std::vector<float> factors = FloatsOf((*file)->tensors()[static_cast<size_t>(index)]);
  ASSERT_EQ(factors.size(), 64u);
  EXPECT_EQ(factors[28], 1);
  EXPECT_NEAR(factors[29], 1.2075, 1e-3);
  EXPECT_EQ(factors[63], 8);
}

}  // namespace
}  // namespace weft
