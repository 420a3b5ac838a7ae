// Specs with recurrent state of which the reference data has no model.
#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using testing::ExpectError;
using testing::OpOf;
using testing::SpecJudge;
using testing::TinyModel;

// Four layers of one block each: a state space of 4 heads of 8 values in two groups,
// attention, a feed-forward, another state space.
TinyModel TinyNemotron() {
  TinyModel model;
  model.architecture = "nemotron_h";
  model.keys = {{"block_count", int64_t{4}},
                {"context_length", int64_t{64}},
                {"embedding_length", int64_t{16}},
                {"feed_forward_length", std::vector<int32_t>{0, 0, 24, 0}},
                {"attention.head_count", int64_t{2}},
                {"attention.head_count_kv", std::vector<int32_t>{0, 1, 0, 0}},
                {"attention.key_length", int64_t{6}},
                {"attention.value_length", int64_t{6}},
                {"attention.layer_norm_rms_epsilon", 1e-5},
                {"ssm.conv_kernel", int64_t{4}},
                {"ssm.inner_size", int64_t{32}},
                {"ssm.state_size", int64_t{5}},
                {"ssm.time_step_rank", int64_t{4}},
                {"ssm.group_count", int64_t{2}}};
  model.tensors = {
      {"token_embd.weight", {16, 10}}, {"output_norm.weight", {16}}, {"output.weight", {16, 10}}};
  for (int64_t layer = 0; layer < 4; ++layer) {
    model.AddLayerTensors(layer, {{"attn_norm.weight", {16}}});
  }
  for (const int64_t layer : {0, 3}) {
    model.AddLayerTensors(layer, {{"ssm_in.weight", {16, 32 + 52 + 4}},
                                  {"ssm_conv1d.weight", {4, 52}},
                                  {"ssm_conv1d.bias", {52}},
                                  {"ssm_dt.bias", {4}},
                                  {"ssm_a", {1, 4}},
                                  {"ssm_d", {1, 4}},
                                  {"ssm_norm.weight", {16, 2}},
                                  {"ssm_out.weight", {32, 16}}});
  }
  model.AddLayerTensors(1, {{"attn_q.weight", {16, 12}},
                            {"attn_k.weight", {16, 6}},
                            {"attn_v.weight", {16, 6}},
                            {"attn_output.weight", {12, 16}}});
  model.AddLayerTensors(2, {{"ffn_up.weight", {16, 24}}, {"ffn_down.weight", {24, 16}}});
  return model;
}

void ExpectJudgedSpec(const TinyModel& model, int n_blocks_of_one_path) {
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  SpecJudge(**file, *spec).Judge();
  int n_single = 0;
  for (const Layer& layer : spec->layers) {
    EXPECT_EQ(layer.blocks.size(), 1u);
    n_single += layer.blocks[0].paths.size() == 1 ? 1 : 0;
  }
  EXPECT_EQ(n_single, n_blocks_of_one_path);
  EXPECT_TRUE(std::holds_alternative<StateSpace>(spec->layers[0].blocks[0].paths[0].op));
  EXPECT_EQ(OpOf<Attention>(*spec, 1, 0).rope, -1);
  EXPECT_EQ(spec->slots.size(), 4u);
}

TEST(NemotronSpecs, LayersAreOneBlockEach) {
  ExpectJudgedSpec(TinyNemotron(), 4);

  TinyModel experts = TinyNemotron();
  experts.architecture = "nemotron_h_moe";
  experts.keys["expert_count"] = int64_t{3};
  experts.keys["expert_used_count"] = int64_t{2};
  experts.keys["expert_feed_forward_length"] = int64_t{8};
  experts.keys["expert_shared_feed_forward_length"] = int64_t{12};
  experts.tensors.erase("blk.2.ffn_up.weight");
  experts.tensors.erase("blk.2.ffn_down.weight");
  experts.AddLayerTensors(2, {{"ffn_gate_inp.weight", {16, 3}},
                              {"exp_probs_b.bias", {3}},
                              {"ffn_up_exps.weight", {16, 8, 3}},
                              {"ffn_down_exps.weight", {8, 16, 3}},
                              {"ffn_up_shexp.weight", {16, 12}},
                              {"ffn_down_shexp.weight", {12, 16}}});
  ExpectJudgedSpec(experts, 3);

  // Ollama's form, with pictures and sound inside.
  for (const TinyModel& text : {TinyNemotron(), experts}) {
    TinyModel omni = text;
    omni.architecture = "nemotron_h_omni";
    omni.tensors["v.patch_embd.weight"] = {4, 4};
    omni.tensors["a.blk.0.attn_q.weight"] = {4, 4};
    omni.tensors["mtp.layers.0.norm.weight"] = {4};
    ExpectJudgedSpec(omni, text.architecture == "nemotron_h" ? 4 : 3);
  }
}

TEST(SpecErrors, StatesThatDoNotFitTheirHeadsAreRefused) {
  const auto with = [](const std::string& key, int64_t value) {
    TinyModel model = TinyNemotron();
    model.keys[key] = value;
    return model;
  };
  ExpectError(with("ssm.inner_size", 34), "ssm.time_step_rank", "34 values");
  ExpectError(with("ssm.group_count", 3), "ssm.time_step_rank", "3 groups");
  ExpectError(with("ssm.conv_kernel", 1), "ssm.conv_kernel", "expected 2");
  ExpectError(with("ssm.state_size", 6), "blk.0.ssm_in.weight", "expected [16, 92]");
  ExpectError(with("attention.head_count", 0), "attention.head_count_kv", "of layer 1");
  const auto latent = with("moe_latent_size", 8).Build();
  EXPECT_EQ(latent.status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weft
