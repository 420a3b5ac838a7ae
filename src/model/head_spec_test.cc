#include "model/head_spec.h"

#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::SpecJudge;
using testing::TinyModel;

// A model of 16 values and 10 tokens: three layers with a window of 6 and keys of 8 values, then
// one without and with keys of 12.
ModelSpec TargetSpec() {
  ModelSpec model;
  model.name = "target";
  model.n_vocab = 10;
  model.d_model = 16;
  model.context_tokens = 64;
  model.kv_layers = {{0, 1, 8, 8}, {0, 1, 8, 8}, {0, 1, 8, 8}, {1, 2, 12, 12}};
  model.kv_groups = {{6, {0, 1, 2}}, {0, {3}}};
  for (int layer = 0; layer < 4; ++layer) {
    Attention attention;
    attention.kv_layer = layer;
    Block block;
    block.paths.push_back({.pre = {}, .op = attention, .post = {}});
    model.layers.push_back({.blocks = {block}});
  }
  return model;
}

// Two layers of a stream of 24 values: one with a window, one without.
TinyModel TinyHead() {
  TinyModel head;
  head.architecture = "gemma4-assistant";
  head.keys = {{"block_count", int64_t{2}},
               {"nextn_predict_layers", int64_t{2}},
               {"context_length", int64_t{64}},
               {"embedding_length", int64_t{24}},
               {"embedding_length_out", int64_t{16}},
               {"feed_forward_length", int64_t{20}},
               {"attention.head_count", int64_t{4}},
               {"attention.key_length", int64_t{12}},
               {"attention.key_length_swa", int64_t{8}},
               {"attention.sliding_window_pattern", std::vector<int32_t>{1, 0}},
               {"attention.layer_norm_rms_epsilon", 1e-6}};
  head.tensors = {{"token_embd.weight", {24, 10}},
                  {"output_norm.weight", {24}},
                  {"nextn.pre_projection.weight", {32, 24}},
                  {"nextn.post_projection.weight", {24, 16}},
                  {"rope_freqs.weight", {6}},
                  {"masked_embd_ordering", {10}}};
  for (int64_t layer = 0; layer < 2; ++layer) {
    const int64_t width = layer == 0 ? 8 : 12;
    head.AddLayerTensors(layer, {{"attn_norm.weight", {24}},
                                 {"attn_q.weight", {24, 4 * width}},
                                 {"attn_q_norm.weight", {width}},
                                 {"attn_output.weight", {4 * width, 24}},
                                 {"post_attention_norm.weight", {24}},
                                 {"ffn_norm.weight", {24}},
                                 {"ffn_gate.weight", {24, 20}},
                                 {"ffn_up.weight", {24, 20}},
                                 {"ffn_down.weight", {20, 24}},
                                 {"post_ffw_norm.weight", {24}},
                                 {"layer_output_scale.weight", {1}}});
  }
  return head;
}

StatusOr<ModelSpec> BuildOver(const ModelSpec& model, const TinyModel& head) {
  const std::string bytes = head.Bytes();
  const auto file = ModelFile::FromBytes("head.gguf", std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.status();
  EXPECT_TRUE(IsHeadFile(**file));
  auto spec = BuildHeadSpec(**file, model);
  if (spec.ok()) SpecJudge(**file, *spec).Judge();
  return spec;
}

void ExpectRefused(const ModelSpec& model, const TinyModel& head, const std::string& why) {
  const auto spec = BuildOver(model, head);
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(Message(spec.status()), HasSubstr(why));
}

TEST(HeadSpecs, ReadTheStateOfTheModel) {
  const auto spec = BuildOver(TargetSpec(), TinyHead());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(HiddenWidth(*spec), 32);
  EXPECT_EQ(spec->hidden_input->back.n_out, 16);
  EXPECT_EQ(spec->kv_layers.size(), 4u);
  EXPECT_EQ(spec->kv_groups[0].window, 5);
  EXPECT_EQ(spec->kv_groups[1].window, 0);
  EXPECT_EQ(LastToWriteState(*spec), nullptr);
  const auto& local = testing::OpOf<Attention>(*spec, 0, 0);
  const auto& global = testing::OpOf<Attention>(*spec, 1, 0);
  EXPECT_EQ(local.kv_layer, 2);
  EXPECT_EQ(global.kv_layer, 3);
  EXPECT_EQ(global.n_kv_heads, 2);
  EXPECT_NE(local.rope, global.rope);
  for (const Rope& rope : spec->ropes) EXPECT_EQ(rope.ahead, 1);
}

TEST(HeadSpecs, OfOtherModelsAreRefused) {
  ModelSpec other = TargetSpec();
  other.d_model = 32;
  ExpectRefused(other, TinyHead(), "embedding_length_out");
  other = TargetSpec();
  other.n_vocab = 11;
  ExpectRefused(other, TinyHead(), "token_embd.weight");
  other = TargetSpec();
  other.kv_layers[2].k_dim = 4;
  ExpectRefused(other, TinyHead(), "attention.key_length_swa");
  other = TargetSpec();
  other.kv_layers[3].n_heads = 3;
  ExpectRefused(other, TinyHead(), "attention.head_count");
  other = TargetSpec();
  other.kv_groups[0].window = 0;
  ExpectRefused(other, TinyHead(), "has layers with a window");
  other = TargetSpec();
  other.kv_groups[0].window = 1;
  ExpectRefused(other, TinyHead(), "attention.sliding_window");
}

TEST(HeadSpecs, AreNoModels) {
  testing::ExpectError(TinyHead(), "prediction head", "--draft-model");
}

TEST(HeadSpecs, EachPartIsNeeded) {
  const TinyModel whole = TinyHead();
  for (const auto& [name, dims] : whole.tensors) {
    if (name == "rope_freqs.weight" || name == "masked_embd_ordering") continue;
    TinyModel head = whole;
    head.tensors.erase(name);
    ExpectRefused(TargetSpec(), head, name);
    head.tensors[name] = dims;
    head.tensors[name].back() += 1;
    ExpectRefused(TargetSpec(), head, name);
  }
  TinyModel head = whole;
  head.tensors["blk.0.attn_k.weight"] = {24, 8};
  ExpectRefused(TargetSpec(), head, "blk.0.attn_k.weight");
}

TEST(HeadSpecs, WhateverTheBitsSay) {
  const ModelSpec model = TargetSpec();
  std::mt19937 random(3);
  int n_specs = 0, n_errors = 0;
  for (int round = 0; round < 20; ++round) {
    testing::JudgeFlippedBits(TinyHead().Bytes(), "gemma4-assistant", &random, &n_specs, &n_errors,
                              [&](const ModelFile& file) -> StatusOr<ModelSpec> {
                                if (!IsHeadFile(file)) return InvalidArgument("no head");
                                return BuildHeadSpec(file, model);
                              });
  }
  EXPECT_GT(n_specs, 0);
  EXPECT_GT(n_errors, 0);
}

}  // namespace
}  // namespace weft
