// Specs of encoders, and of text vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/model_spec_test_util.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::ExpectError;
using ::testing::FloatEq;
using testing::OpOf;
using testing::SpecJudge;
using testing::TinyLlama;
using testing::TinyModel;

TinyModel TinyBert(const std::string& architecture = "bert") {
  TinyModel model;
  model.architecture = architecture;
  model.keys = {{"block_count", int64_t{2}},          {"context_length", int64_t{12}},
                {"embedding_length", int64_t{16}},    {"feed_forward_length", int64_t{24}},
                {"attention.head_count", int64_t{2}}, {"attention.layer_norm_epsilon", 1e-5},
                {"attention.causal", false},          {"pooling_type", int64_t{1}}};
  model.tensors = {{"token_embd.weight", {16, 10}},
                   {"token_types.weight", {16, 2}},
                   {"token_embd_norm.weight", {16}},
                   {"token_embd_norm.bias", {16}}};
  if (architecture == "bert") model.tensors["position_embd.weight"] = {16, 12};
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.AddLayerTensors(layer, {{"attn_q.weight", {16, 16}},
                                  {"attn_q.bias", {16}},
                                  {"attn_k.weight", {16, 16}},
                                  {"attn_v.weight", {16, 16}},
                                  {"attn_output.weight", {16, 16}},
                                  {"attn_output_norm.weight", {16}},
                                  {"attn_output_norm.bias", {16}},
                                  {"ffn_up.weight", {16, 24}},
                                  {"ffn_up.bias", {24}},
                                  {"ffn_down.weight", {24, 16}},
                                  {"layer_output_norm.weight", {16}},
                                  {"layer_output_norm.bias", {16}}});
    if (architecture != "bert") {
      model.AddLayerTensors(layer, {{"ffn_gate.weight", {16, 24}}});
      model.tensors.erase("blk." + std::to_string(layer) + ".ffn_up.bias");
    }
  }
  return model;
}

ModelSpec Judged(const TinyModel& model) {
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.status();
  auto spec = BuildModelSpec(**file, {});
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  SpecJudge(**file, *spec).Judge();
  return *std::move(spec);
}

TEST(EncoderSpecs, HaveNoStateAndSeeWholeTexts) {
  const ModelSpec spec = Judged(TinyBert());
  EXPECT_TRUE(NeedsWholeTexts(spec));
  EXPECT_FALSE(KeepsState(spec));
  EXPECT_EQ(LastToWriteState(spec), nullptr);
  EXPECT_FALSE(spec.output);
  EXPECT_FALSE(spec.output_norm);
  EXPECT_TRUE(spec.positions);
  EXPECT_EQ(spec.token_types.n_types, 2);
  EXPECT_EQ(spec.token_types.separator, -1);
  EXPECT_EQ(spec.input_norm.kind, NormKind::kLayer);
  const Block& attention = spec.layers[1].blocks[0];
  EXPECT_EQ(attention.stream_norm.kind, NormKind::kLayer);
  EXPECT_FALSE(attention.pre || attention.post);
  EXPECT_EQ(OpOf<BidirectionalAttention>(spec, 1, 0).reach, -1);
  EXPECT_EQ(OpOf<DenseFfn>(spec, 1, 1).activation, Activation::kGeluErf);
  EXPECT_FALSE(NeedsWholeTexts(Judged(TinyLlama())));
  EXPECT_TRUE(KeepsState(Judged(TinyLlama())));
}

TEST(EncoderSpecs, ATokenHasTheTypeOfTheSeparatorsBeforeIt) {
  const TokenTypes types{.table = {0}, .n_types = 2, .separator = 7};
  EXPECT_EQ(types.TypeAfter(6, 0), 0);
  EXPECT_EQ(types.TypeAfter(7, 0), 1);
  EXPECT_EQ(types.TypeAfter(7, 1), 1);
  EXPECT_EQ(TokenTypes().TypeAfter(7, 0), 0);
}

TEST(EncoderSpecs, JinaFallsWithTheDistance) {
  TinyModel model = TinyBert("jina-bert-v2");
  const ModelSpec two = Judged(model);
  EXPECT_THAT(OpOf<BidirectionalAttention>(two, 0, 0).slopes,
              ElementsAre(FloatEq(1.0f / 16), FloatEq(1.0f / 256)));
  EXPECT_FALSE(two.positions);
  model.keys["attention.head_count"] = int64_t{4};
  model.keys["attention.key_length"] = int64_t{4};
  EXPECT_THAT(
      OpOf<BidirectionalAttention>(Judged(model), 0, 0).slopes,
      ElementsAre(FloatEq(0.25f), FloatEq(0.0625f), FloatEq(1.0f / 64), FloatEq(1.0f / 256)));
  // Gate and up in one matrix.
  for (const char* const layer : {"blk.0.", "blk.1."}) {
    model.tensors.erase(std::string(layer) + "ffn_gate.weight");
    model.tensors[std::string(layer) + "ffn_up.weight"] = {16, 48};
  }
  EXPECT_EQ(OpOf<DenseFfn>(Judged(model), 0, 1).up.first_row, 24);
}

TEST(EncoderSpecs, PoolingIsAsTheFileSays) {
  TinyModel model = TinyBert();
  EXPECT_EQ(PurposeOf(Judged(model)), "vectors of texts (embeddings; pooling mean)");
  model.keys["pooling_type"] = int64_t{2};
  EXPECT_EQ(Judged(model).text_vector->pooling, Pooling::kFirst);
  model.keys.erase("pooling_type");
  EXPECT_EQ(Judged(model).text_vector->pooling, Pooling::kNone);
  model.keys["pooling_type"] = int64_t{5};
  ExpectError(model, "bert.pooling_type", "expected 0 to 4");

  TinyModel llama = TinyLlama();
  EXPECT_FALSE(Judged(llama).text_vector.has_value());
  EXPECT_EQ(PurposeOf(Judged(llama)), "text");
  llama.keys["pooling_type"] = int64_t{3};
  EXPECT_EQ(PurposeOf(Judged(llama)), "text, and vectors of texts (embeddings; pooling last)");
}

TEST(EncoderSpecs, AClassifierGivesScores) {
  TinyModel model = TinyBert();
  model.keys["pooling_type"] = int64_t{4};
  ExpectError(model, "bert.pooling_type", "cls.output.weight");
  model.tensors["cls.weight"] = {16, 16};
  model.tensors["cls.bias"] = {16};
  model.tensors["cls.output.weight"] = {16, 1};
  model.tensors["cls.output.bias"] = {1};
  const ModelSpec spec = Judged(model);
  EXPECT_TRUE(spec.text_vector->scores);
  EXPECT_FALSE(spec.text_vector->softmax);
  EXPECT_EQ(spec.text_vector->pooling, Pooling::kFirst);
  EXPECT_EQ(spec.token_types.separator, 102) << "of the two texts of a pair";
  ASSERT_EQ(spec.text_vector->head.size(), 2u);
  EXPECT_EQ(spec.text_vector->head[0].activation, HeadActivation::kTanh);
  model.tokenizer = "gpt2";
  EXPECT_EQ(Judged(model).token_types.separator, -1) << "RoBERTa's pairs are of one type";

  // A text model whose last token answers yes or no.
  TinyModel llama = TinyLlama();
  llama.keys["pooling_type"] = int64_t{4};
  llama.tensors["cls.output.weight"] = {16, 2};
  EXPECT_EQ(Judged(llama).text_vector->pooling, Pooling::kLast);
  EXPECT_TRUE(Judged(llama).text_vector->softmax);
}

TEST(EncoderSpecs, WhatDoesNotFitIsRefused) {
  TinyModel causal = TinyBert();
  causal.keys["attention.causal"] = true;
  ExpectError(causal, "bert.attention.causal", "see those that follow");
  TinyModel seeing = TinyLlama();
  seeing.keys["attention.causal"] = false;
  ExpectError(seeing, "llama.attention.causal", "known here as causal");
  TinyModel no_positions = TinyBert();
  no_positions.tensors.erase("position_embd.weight");
  ExpectError(no_positions, "position_embd.weight", "is missing");
  TinyModel short_positions = TinyBert();
  short_positions.tensors["position_embd.weight"] = {16, 11};
  ExpectError(short_positions, "position_embd.weight", "expected [16, 12]");
  TinyModel unknown = TinyBert();
  unknown.tensors["cls.output.weight"] = {16, 1};
  ExpectError(unknown, "cls.output.weight", "not part of the architecture");
}

}  // namespace
}  // namespace weft
