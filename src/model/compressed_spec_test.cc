// Specs of models that attend to compressed entries (DeepSeek V4).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using testing::ExpectError;
using testing::OpOf;
using testing::TinyModel;

constexpr int64_t kWidth = 32, kStreams = 4, kMixes = 24;

void AddEntries(TinyModel* model, int64_t layer, const std::string& name, int64_t stride,
                int64_t dim) {
  const int64_t width = stride == 4 ? 2 * dim : dim;
  model->AddLayerTensors(layer, {{name + "_compressor_kv.weight", {kWidth, width}},
                                 {name + "_compressor_gate.weight", {kWidth, width}},
                                 {name + "_compressor_ape.weight", {width, stride}},
                                 {name + "_compressor_norm.weight", {dim}}});
}

void AddLayer(TinyModel* model, int64_t layer, int64_t stride) {
  model->AddLayerTensors(layer, {{"attn_norm.weight", {kWidth}},
                                 {"attn_q_a.weight", {kWidth, 6}},
                                 {"attn_q_a_norm.weight", {6}},
                                 {"attn_q_b.weight", {6, 4 * 8}},
                                 {"attn_kv.weight", {kWidth, 8}},
                                 {"attn_kv_a_norm.weight", {8}},
                                 {"attn_sinks.weight", {4}},
                                 {"attn_output_a.weight", {16, 2 * 5}},
                                 {"attn_output_b.weight", {2 * 5, kWidth}},
                                 {"ffn_norm.weight", {kWidth}},
                                 {"ffn_gate_inp.weight", {kWidth, 4}},
                                 {"ffn_gate_exps.weight", {kWidth, 12, 4}},
                                 {"ffn_up_exps.weight", {kWidth, 12, 4}},
                                 {"ffn_down_exps.weight", {12, kWidth, 4}},
                                 {"ffn_gate_shexp.weight", {kWidth, 12}},
                                 {"ffn_up_shexp.weight", {kWidth, 12}},
                                 {"ffn_down_shexp.weight", {12, kWidth}}});
  for (const std::string mix : {"hc_attn", "hc_ffn"}) {
    model->AddLayerTensors(layer, {{mix + "_fn.weight", {kStreams * kWidth, kMixes}},
                                   {mix + "_base.weight", {kMixes}},
                                   {mix + "_scale.weight", {3}}});
  }
  if (stride > 0) AddEntries(model, layer, "attn", stride, 8);
  if (stride == 4) {
    AddEntries(model, layer, "indexer", stride, 10);
    model->AddLayerTensors(
        layer, {{"indexer.proj.weight", {kWidth, 3}}, {"indexer.attn_q_b.weight", {6, 3 * 10}}});
  }
}

// Three layers: a window alone, entries of 4 and of 128 positions. The first chooses experts by the
// token's id.
TinyModel TinyDeepSeek4() {
  TinyModel model;
  model.architecture = "deepseek4";
  model.fill = 0;  // of the table of experts, too
  model.keys = {{"block_count", int64_t{3}},
                {"context_length", int64_t{64}},
                {"embedding_length", kWidth},
                {"attention.head_count", int64_t{4}},
                {"attention.head_count_kv", int64_t{1}},
                {"attention.key_length", int64_t{8}},
                {"attention.value_length", int64_t{8}},
                {"attention.layer_norm_rms_epsilon", 1e-5},
                {"attention.q_lora_rank", int64_t{6}},
                {"attention.sliding_window", int64_t{20}},
                {"attention.output_group_count", int64_t{2}},
                {"attention.output_lora_rank", int64_t{5}},
                {"attention.compress_ratios", std::vector<int32_t>{0, 4, 128, 0}},
                {"attention.compress_rope_freq_base", 160000.0},
                {"attention.indexer.head_count", int64_t{3}},
                {"attention.indexer.key_length", int64_t{10}},
                {"attention.indexer.top_k", int64_t{2}},
                {"rope.dimension_count", int64_t{4}},
                {"hyper_connection.count", kStreams},
                {"hyper_connection.sinkhorn_iterations", int64_t{3}},
                {"hyper_connection.epsilon", 1e-6},
                {"hash_layer_count", int64_t{1}},
                {"expert_count", int64_t{4}},
                {"expert_used_count", int64_t{2}},
                {"expert_feed_forward_length", int64_t{12}},
                {"expert_shared_count", int64_t{1}},
                {"expert_gating_func", int64_t{4}},
                {"expert_weights_norm", true},
                {"swiglu_clamp_exp", 7.0}};
  model.tensors = {
      {"token_embd.weight", {kWidth, 10}},   {"output_norm.weight", {kWidth}},
      {"output.weight", {kWidth, 10}},       {"output_hc_fn.weight", {kStreams * kWidth, kStreams}},
      {"output_hc_base.weight", {kStreams}}, {"output_hc_scale.weight", {1}}};
  for (const auto& [layer, stride] : {std::pair(0, 0), std::pair(1, 4), std::pair(2, 128)}) {
    AddLayer(&model, layer, stride);
    if (layer > 0) model.AddLayerTensors(layer, {{"exp_probs_b.bias", {4}}});
  }
  model.AddLayerTensors(0, {{"ffn_gate_tid2eid.weight", {2, 10}}});
  model.types["blk.0.ffn_gate_tid2eid.weight"] = DType::kI32;
  return model;
}

StatusOr<ModelSpec> BuildAndJudge(const TinyModel& model) {
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  if (!file.ok()) return file.status();
  auto spec = BuildModelSpec(**file, {});
  if (spec.ok()) testing::SpecJudge(**file, *spec).Judge();
  return spec;
}

TEST(CompressedSpec, LayersKeepTheStateOfTheirEntries) {
  const auto spec = BuildAndJudge(TinyDeepSeek4());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(OpOf<CompressedAttention>(*spec, 0, 1).series);

  const auto& indexed = OpOf<CompressedAttention>(*spec, 1, 1);
  EXPECT_TRUE(indexed.series.overlaps && indexed.index.overlaps);
  EXPECT_EQ(indexed.series.reach(), 8);
  const auto& heavy = OpOf<CompressedAttention>(*spec, 2, 1);
  EXPECT_FALSE(heavy.series.overlaps);
  EXPECT_FALSE(heavy.index);
  EXPECT_EQ(heavy.series.reach(), 128);

  const KvLayer& entries = spec->kv_layers[static_cast<size_t>(heavy.series.entry_layer)];
  EXPECT_EQ(entries.n_values(1024), 8 * 8);
  EXPECT_EQ(entries.n_values(127), 0);
  EXPECT_EQ(entries.RowTokens(32), 32);
  EXPECT_EQ(entries.RowTokens(256), 128);
  std::vector<int64_t> windows;
  for (const KvGroup& group : spec->kv_groups) windows.push_back(group.window);
  EXPECT_THAT(windows, ::testing::UnorderedElementsAre(20, 8, 128, 0));
}

TEST(CompressedSpec, AHeadThatIsCountedButMissingCostsNoLayer) {
  TinyModel model = TinyDeepSeek4();
  model.keys["nextn_predict_layers"] = int64_t{1};
  const auto spec = BuildAndJudge(model);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 3);
}

TEST(CompressedSpec, EntriesEndWithTheirRun) {
  EntrySeries series;
  series.stride = 4;
  EXPECT_EQ(series.SeenFrom(2), 0);
  EXPECT_EQ(series.SeenFrom(3), 1);
  EXPECT_TRUE(series.EndsAt(3) && !series.EndsAt(4) && series.EndsAt(7));
  EXPECT_FALSE(EntrySeries().EndsAt(3));
}

TEST(CompressedSpec, StreamsAreMixedAroundEveryBlock) {
  const auto spec = BuildAndJudge(TinyDeepSeek4());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->n_side_streams, kStreams + 1);
  ASSERT_EQ(spec->layers[0].blocks.size(), 6u);
  ASSERT_EQ(spec->layers[2].blocks.size(), 7u);
  EXPECT_TRUE(OpOf<GatherSides>(*spec, 0, 0).begins);
  EXPECT_FALSE(OpOf<GatherSides>(*spec, 0, 3).begins);
  EXPECT_EQ(OpOf<SpreadSides>(*spec, 0, 2).n, kStreams);
  EXPECT_TRUE(OpOf<GatherSides>(*spec, 2, 6).ends);
  for (const Block& block : spec->layers[2].blocks) EXPECT_TRUE(block.replaces_stream);
}

TEST(CompressedSpec, ATokenMayChooseExperts) {
  const auto spec = BuildAndJudge(TinyDeepSeek4());
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto& first = OpOf<MixtureOfExperts>(*spec, 0, 4);
  EXPECT_TRUE(first.by_token && !first.selection_bias);
  EXPECT_EQ(first.weights, RouterWeights::kRootSoftplus);
  EXPECT_EQ(first.activation, Activation::kSiluOfClamped);
  EXPECT_EQ(OpOf<DenseFfn>(*spec, 0, 4, 1).numbers.limit, 7);
  EXPECT_FALSE(OpOf<MixtureOfExperts>(*spec, 1, 4).by_token);
  EXPECT_EQ(CheckTakesRows(*spec).code(), StatusCode::kUnimplemented);
}

TEST(CompressedSpecErrors, NameTheKeyOrTensor) {
  const auto with = [](const std::string& key, TinyModel::Value value) {
    TinyModel model = TinyDeepSeek4();
    model.keys[key] = std::move(value);
    return model;
  };
  const std::string ratios = "attention.compress_ratios";
  ExpectError(with(ratios, std::vector<int32_t>{0, 4, 8}), ratios, "expected 0, 4 or 128");
  ExpectError(with(ratios, std::vector<int32_t>{0, 4}), ratios, "2 values for 3 layers");
  ExpectError(with("attention.head_count_kv", int64_t{2}), "attention.head_count_kv", "not 1");
  ExpectError(with("attention.value_length", int64_t{4}), "attention.value_length", "keys");
  ExpectError(with("attention.output_group_count", int64_t{3}), "attention.output_group_count",
              "divide");
  ExpectError(with("attention.indexer.key_length", int64_t{2}), "attention.indexer.key_length",
              "rope.dimension_count");
  ExpectError(with("hyper_connection.count", int64_t{5}), "hyper_connection.count", "narrow");

  TinyModel model = TinyDeepSeek4();
  model.fill = 1;  // as a number, far too large
  ExpectError(model, "blk.0.ffn_gate_tid2eid.weight", "expected 0 to 3");
  model.types.clear();
  ExpectError(model, "blk.0.ffn_gate_tid2eid.weight", "I32");
  model = TinyDeepSeek4();
  model.AddLayerTensors(0, {{"exp_probs_b.bias", {4}}});
  ExpectError(model, "blk.0.exp_probs_b.bias", "token's id");
  model = TinyDeepSeek4();
  model.AddLayerTensors(1, {{"attn_output_a.scale", {2}}});
  ExpectError(model, "blk.1.attn_output_a.scale", "not part of the architecture");
}

TEST(CompressedSpecErrors, FlippedBitsNeverGiveABrokenSpec) {
  std::mt19937 random(4);
  int n_specs = 0, n_errors = 0;
  testing::JudgeFlippedBits(TinyDeepSeek4().Bytes(), "deepseek4", &random, &n_specs, &n_errors);
  EXPECT_GT(n_specs, 0);
  EXPECT_GT(n_errors, 0);
}

}  // namespace
}  // namespace weft
