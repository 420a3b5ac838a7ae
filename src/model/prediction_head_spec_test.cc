// Heads that predict the token after the next, for every family that has them.
#include "base/strings.h"
#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using testing::SpecJudge;
using testing::TinyDeepSeek;
using testing::TinyExperts;
using testing::TinyModel;

// Adds a head after the model's last layer, with the same tensors as that layer.
TinyModel WithHead(TinyModel model) {
  const int64_t n_layers = std::get<int64_t>(model.keys["block_count"]);
  model.keys["block_count"] = n_layers + 1;
  model.keys["nextn_predict_layers"] = int64_t{1};
  const std::string last = StrCat("blk.", n_layers - 1, ".");
  const auto tensors = model.tensors;
  for (const auto& [name, dims] : tensors) {
    if (!name.starts_with(last)) continue;
    model.tensors[StrCat("blk.", n_layers, ".", name.substr(last.size()))] = dims;
  }
  model.AddLayerTensors(n_layers, {{"nextn.eh_proj.weight", {32, 16}},
                                   {"nextn.enorm.weight", {16}},
                                   {"nextn.hnorm.weight", {16}}});
  return model;
}

// Attention layers only, because only the head matters here.
TinyModel TinyQwenHybrid(const std::string& architecture) {
  TinyModel model = TinyExperts(architecture);
  model.keys["full_attention_interval"] = int64_t{1};
  for (const char* key : {"ssm.group_count", "ssm.time_step_rank"}) model.keys[key] = int64_t{1};
  for (const char* key : {"ssm.state_size", "ssm.inner_size", "ssm.conv_kernel"}) {
    model.keys[key] = int64_t{4};
  }
  model.keys["expert_feed_forward_length"] = int64_t{12};
  model.keys["expert_shared_feed_forward_length"] = int64_t{12};
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.tensors.erase(StrCat("blk.", layer, ".ffn_norm.weight"));
    model.AddLayerTensors(layer, {{"attn_q.weight", {16, 32}},
                                  {"attn_q_norm.weight", {8}},
                                  {"attn_k_norm.weight", {8}},
                                  {"post_attention_norm.weight", {16}},
                                  {"ffn_gate_inp_shexp.weight", {16}},
                                  {"ffn_gate_shexp.weight", {16, 12}},
                                  {"ffn_up_shexp.weight", {16, 12}},
                                  {"ffn_down_shexp.weight", {12, 16}}});
  }
  return model;
}

TinyModel TinyGlm() {
  TinyModel model = TinyExperts("glm4moe");
  model.keys["expert_feed_forward_length"] = int64_t{12};
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.tensors.erase(StrCat("blk.", layer, ".ffn_norm.weight"));
    model.AddLayerTensors(layer, {{"post_attention_norm.weight", {16}}});
  }
  return model;
}

struct Family {
  const char* name;
  TinyModel model;
  bool before_output_norm;
};

std::vector<Family> Families() {
  return {{"qwen3next", TinyQwenHybrid("qwen3next"), false},
          {"qwen35moe", TinyQwenHybrid("qwen35moe"), false},
          {"glm4moe", TinyGlm(), true},
          {"deepseek2", TinyDeepSeek(), true}};
}

TEST(PredictionHeadSpecs, AreModelsOfTheirOwn) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.name);
    const std::string bytes = WithHead(family.model).Bytes();
    const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    SpecJudge(**file, *spec).Judge();
    ASSERT_NE(spec->prediction_head, nullptr) << spec->no_prediction_head;
    const ModelSpec& head = *spec->prediction_head;
    EXPECT_EQ(spec->layers.size(), 2u);
    EXPECT_EQ(spec->kv_layers.size(), 2u);
    EXPECT_FALSE(spec->hidden_input.has_value());
    EXPECT_EQ(head.layers.size(), 1u);
    EXPECT_EQ(head.kv_layers.size(), 1u);
    EXPECT_EQ(head.kv_groups.size(), 1u);
    EXPECT_EQ(head.prediction_head, nullptr);
    EXPECT_EQ(head.hidden_input->before_output_norm, family.before_output_norm);
    // Tensors that the head lacks are the model's.
    EXPECT_EQ(head.embedding, spec->embedding);
    EXPECT_EQ(head.output.weight, spec->output.weight);
    EXPECT_EQ(head.output_norm, spec->output_norm);
    // The model itself is the same as without a head.
    const auto without = family.model.Build();
    ASSERT_TRUE(without.ok()) << without.status();
    EXPECT_EQ(without->prediction_head, nullptr);
    EXPECT_EQ(without->no_prediction_head, "");
    EXPECT_EQ(without->layers.size(), spec->layers.size());
  }
}

TEST(PredictionHeadSpecs, MayHaveEndsOfTheirOwn) {
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.name);
    TinyModel model = WithHead(family.model);
    model.AddLayerTensors(2, {{"nextn.embed_tokens.weight", {16, 10}},
                              {"nextn.shared_head_norm.weight", {16}},
                              {"nextn.shared_head_head.weight", {16, 10}}});
    const auto spec = model.Build();
    ASSERT_TRUE(spec.ok()) << spec.status();
    ASSERT_NE(spec->prediction_head, nullptr) << spec->no_prediction_head;
    EXPECT_FALSE(spec->prediction_head->embedding == spec->embedding);
    EXPECT_FALSE(spec->prediction_head->output.weight == spec->output.weight);
    EXPECT_FALSE(spec->prediction_head->output_norm == spec->output_norm);
  }
}

TEST(PredictionHeadSpecs, ThatAreIncompleteLeaveTheModelAsItIs) {
  for (const Family& family : Families()) {
    const TinyModel whole = WithHead(family.model);
    for (const auto& [name, dims] : whole.tensors) {
      // Not every tensor of a layer is required; without attn_q_a, another one is.
      if (!name.starts_with("blk.2.") || name.ends_with(".bias")) continue;
      if (name.ends_with("attn_q_a.weight")) continue;
      SCOPED_TRACE(StrCat(family.name, " without ", name));
      TinyModel model = whole;
      model.tensors.erase(name);
      auto spec = model.Build();
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->layers.size(), 2u);
      EXPECT_EQ(spec->kv_layers.size(), 2u);
      EXPECT_EQ(spec->prediction_head, nullptr);
      EXPECT_THAT(spec->no_prediction_head, ::testing::HasSubstr(name));
      model.tensors[name] = {5};
      spec = model.Build();
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_THAT(spec->no_prediction_head, ::testing::HasSubstr(name));
    }
  }
}

TEST(PredictionHeadSpecs, FlippedBitsNeverGiveABrokenOne) {
  std::mt19937 random(7);
  int n_specs = 0, n_errors = 0;
  for (const Family& family : Families()) {
    SCOPED_TRACE(family.name);
    testing::JudgeFlippedBits(WithHead(family.model).Bytes(), family.model.architecture, &random,
                              &n_specs, &n_errors);
  }
  EXPECT_GT(n_specs, 50);
  EXPECT_GT(n_errors, 50);
}

TEST(PredictionHeadSpecs, OfUnknownFamiliesAreNamed) {
  const auto spec = WithHead(testing::TinyLlama()).Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->prediction_head, nullptr);
  EXPECT_THAT(spec->no_prediction_head, ::testing::HasSubstr("'llama'"));
}

}  // namespace
}  // namespace weft
