// Specs of older architectures: files they refuse, and numbers that do not change the logits.
#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using testing::OpOf;
using testing::TinyExperts;
using testing::TinyLlama;
using testing::TinyModel;

TinyModel TinyOf(std::string architecture) {
  TinyModel model = TinyLlama();
  model.architecture = std::move(architecture);
  return model;
}

void ExpectRefused(const TinyModel& model, std::string_view what) {
  const auto spec = model.Build();
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(spec.status()), ::testing::HasSubstr(std::string(what)));
}

TEST(FurtherSpecs, Baichuan7BHasRopesAnd13BIsRefused) {
  TinyModel model = TinyOf("baichuan");
  const auto small = model.Build();
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(OpOf<Attention>(*small, 1, 0).rope, 0);
  model.keys["block_count"] = int64_t{40};
  model.tensors["blk.39.attn_norm.weight"] = {16};
  for (int i = 0; i < 40; ++i) model.tensors[StrCat("unused.", i)] = {1};
  ExpectRefused(model, "use Baichuan 7B");
}

TEST(FurtherSpecs, DeciLeavesOutWhatPruningTookAway) {
  TinyModel model = TinyOf("deci");
  model.keys["attention.head_count"] = std::vector<int32_t>{2, 0};
  model.keys["attention.head_count_kv"] = std::vector<int32_t>{1, 0};
  model.keys["feed_forward_length"] = std::vector<int32_t>{0, 24};
  for (const char* name : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"}) {
    model.tensors.erase(StrCat("blk.1.", name, ".weight"));
  }
  for (const char* name : {"ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}) {
    model.tensors.erase(StrCat("blk.0.", name, ".weight"));
  }
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->layers.size(), 2);
  EXPECT_EQ(spec->layers[0].blocks.size(), 1);
  EXPECT_EQ(spec->kv_layers.size(), 1);
  EXPECT_EQ(OpOf<DenseFfn>(*spec, 1, 0).up.n_out, 24);

  model.keys["attention.head_count"] = std::vector<int32_t>{2, 2};
  ExpectRefused(model, "instead of attention");
}

TEST(FurtherSpecs, OlmoThatClampsIsRefused) {
  TinyModel model = TinyOf("olmo");
  model.keys.erase("attention.layer_norm_rms_epsilon");
  model.keys["attention.layer_norm_epsilon"] = 1e-5;
  for (const char* name :
       {"output_norm", "blk.0.attn_norm", "blk.1.attn_norm", "blk.0.ffn_norm", "blk.1.ffn_norm"}) {
    model.tensors.erase(StrCat(name, ".weight"));
  }
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->output_norm.kind, NormKind::kLayer);
  EXPECT_FALSE(spec->output_norm.weight);
  model.keys["attention.clamp_kqv"] = 8.0;
  ExpectRefused(model, "attention.clamp_kqv");
}

TEST(FurtherSpecs, MiniCpmKnowsTheScalesThatOldFilesLeaveOut) {
  const auto spec = TinyOf("minicpm").Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FLOAT_EQ(spec->embedding_scale, 12);
  EXPECT_FLOAT_EQ(spec->logit_scale, 256.0f / 16);
  EXPECT_FLOAT_EQ(spec->layers[0].blocks[0].residual_scale, 1.4f / std::sqrt(2.0f));
}

TEST(FurtherSpecs, LagunaGatesHeadsOrTheirValues) {
  for (const int64_t rows : {2, 16, 3}) {
    TinyModel model = TinyExperts("laguna");
    model.keys["leading_dense_block_count"] = int64_t{0};
    model.keys["expert_feed_forward_length"] = int64_t{12};
    for (int64_t layer = 0; layer < 2; ++layer) {
      model.AddLayerTensors(layer, {{"attn_q_norm.weight", {8}},
                                    {"attn_k_norm.weight", {8}},
                                    {"attn_gate.weight", {16, rows}},
                                    {"ffn_gate_shexp.weight", {16, 12}},
                                    {"ffn_up_shexp.weight", {16, 12}},
                                    {"ffn_down_shexp.weight", {12, 16}}});
    }
    const auto spec = model.Build();
    ASSERT_EQ(spec.ok(), rows != 3) << rows;
    if (rows == 3) {
      EXPECT_THAT(Message(spec.status()), ::testing::HasSubstr("attn_gate.weight"));
      continue;
    }
    EXPECT_EQ(OpOf<Attention>(*spec, 0, 0).gate.n_out, rows);
    EXPECT_EQ(OpOf<Attention>(*spec, 0, 0).gate_activation, GateActivation::kSoftplus);
    EXPECT_EQ(OpOf<MixtureOfExperts>(*spec, 0, 1).weights, RouterWeights::kSigmoid);
  }
}

TEST(FurtherSpecs, LagunaRotatesAnEvenNumberOfValues) {
  TinyModel model = TinyExperts("laguna");
  model.keys["rope.dimension_count_swa"] = int64_t{5};
  testing::ExpectError(model, "rope.dimension_count_swa", "even");
}

}  // namespace
}  // namespace weft
