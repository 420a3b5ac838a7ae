// Specs of whole files: the reference models, small synthetic ones, and broken ones.

#include "model/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "model/model_spec_test_util.h"
#include "tests/support/goldens.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::ExpectError;
using ::testing::HasSubstr;
using testing::OpOf;
using testing::SpecJudge;
using testing::TinyDeepSeek;
using testing::TinyExperts;
using testing::TinyLlama;
using testing::TinyModel;

// --- the reference models -----------------------------------------------------------

struct Expected {
  const char* model;
  int n_layers;
  int n_kv_layers;
  std::vector<int64_t> windows;  // one per KvGroup
  bool tied;
  int n_slots = 0;
};

const Expected kExpected[] = {
    {"deepseek2", 3, 3, {0}, false},
    {"gemma2", 4, 4, {16, 0}, true},
    {"gemma3", 7, 7, {16, 0}, true},
    {"gemma4", 7, 4, {16, 0}, true},
    {"glm4moe", 3, 3, {0}, false},
    {"gpt-oss", 4, 4, {16, 0}, false},
    {"granite", 3, 3, {0}, true},
    {"llama", 2, 2, {0}, false},
    {"llama-moe", 2, 2, {0}, false},
    {"llama-rope3", 2, 2, {0}, true},
    {"olmo2", 3, 3, {0}, false},
    {"phi3", 3, 3, {0}, false},
    {"qwen2", 2, 2, {0}, true},
    {"qwen2moe", 2, 2, {0}, false},
    {"qwen3", 2, 2, {0}, true},
    {"qwen3moe", 2, 2, {0}, false},
    {"smollm3", 4, 4, {0}, true},
    // One slot per convolution, plus one per delta net or state space.
    {"falcon-h1", 2, 2, {0}, false, 4},
    {"granitehybrid", 3, 1, {0}, true, 4},
    {"lfm2", 4, 2, {0}, true, 2},
    {"lfm2moe", 4, 2, {0}, true, 2},
    {"mamba2", 3, 0, {}, true, 6},
    {"qwen35", 4, 1, {0}, false, 6},
    {"qwen35moe", 4, 1, {0}, false, 6},
    {"qwen3next", 4, 1, {0}, false, 6},
};

std::string GoldenPath(std::string_view model) {
  return StrCat(testing::GoldensDir(), "/models/", model, ".gguf");
}

StatusOr<ModelSpec> BuildGolden(std::string_view model, SpecOptions options = {}) {
  WEFT_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(GoldenPath(model)));
  return BuildModelSpec(*file, options);
}

TEST(GoldenSpecs, HaveTheirLayersAndGroups) {
  WEFT_REQUIRE_GOLDENS();
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.model);
    const auto file = ModelFile::Open(GoldenPath(expected.model));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->layers.size(), expected.n_layers);
    EXPECT_EQ(spec->kv_layers.size(), expected.n_kv_layers);
    std::vector<int64_t> windows;
    for (const KvGroup& group : spec->kv_groups) windows.push_back(group.window);
    EXPECT_EQ(windows, expected.windows);
    EXPECT_EQ(spec->slots.size(), expected.n_slots);
    EXPECT_EQ(spec->output.weight == spec->embedding, expected.tied);
    SpecJudge(**file, *spec).Judge();
  }
}

TEST(GoldenSpecs, Phi3ChoosesItsDivisorsByContext) {
  WEFT_REQUIRE_GOLDENS();
  const auto near = BuildGolden("phi3", {.context_tokens = 4096});
  const auto far = BuildGolden("phi3", {.context_tokens = 4097});
  const auto trained = BuildGolden("phi3");
  ASSERT_TRUE(near.ok() && far.ok() && trained.ok());
  EXPECT_NE(near->ropes, far->ropes);
  EXPECT_EQ(far->ropes, trained->ropes);
  EXPECT_FLOAT_EQ(near->ropes[0].magnitude, 1.19f);
}

TEST(GoldenSpecs, Gemma4SharesKeysOfTheLastLayersThatStoreThem) {
  WEFT_REQUIRE_GOLDENS();
  const auto spec = BuildGolden("gemma4");
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<int> kv_layers;
  std::vector<bool> writes;
  for (int layer = 0; layer < 7; ++layer) {
    kv_layers.push_back(OpOf<Attention>(*spec, layer, 0).kv_layer);
    writes.push_back(OpOf<Attention>(*spec, layer, 0).writes_kv);
  }
  EXPECT_THAT(kv_layers, ElementsAre(0, 1, 2, 3, 2, 2, 3));
  EXPECT_THAT(writes, ElementsAre(true, true, true, true, false, false, false));
  EXPECT_EQ(LastToWriteState(*spec), &spec->layers[3].blocks[0].paths[0]);
}

TEST(LastToWriteState, IsTheLastOfAnyKindInTheLastBlockThatHasOne) {
  const auto last_of = [](const std::vector<std::vector<Op>>& blocks) {
    ModelSpec spec;
    for (const std::vector<Op>& ops : blocks) {
      Block& block = spec.layers.emplace_back().blocks.emplace_back();
      for (const Op& op : ops) block.paths.push_back({{}, op, {}});
    }
    const Path* const last = LastToWriteState(spec);
    for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
      for (int p = 0; p < static_cast<int>(blocks[b].size()); ++p) {
        if (last == &spec.layers[b].blocks[0].paths[p]) return std::pair(b, p);
      }
    }
    EXPECT_EQ(last, nullptr);
    return std::pair(-1, -1);
  };
  Attention reader;
  reader.writes_kv = false;
  EXPECT_EQ(last_of({}), std::pair(-1, -1));
  EXPECT_EQ(last_of({{DenseFfn()}, {reader}}), std::pair(-1, -1));
  EXPECT_EQ(last_of({{Attention()}, {DenseFfn()}, {reader}}), std::pair(0, 0));
  EXPECT_EQ(last_of({{Attention()}, {Attention(), StateSpace(), DenseFfn()}, {PerLayerGate()}}),
            std::pair(1, 1));
  for (const Op& op : {Op(LatentAttention()), Op(ShortConvolution()), Op(GatedDeltaNet())}) {
    EXPECT_EQ(last_of({{Attention()}, {op}, {MixtureOfExperts()}}), std::pair(1, 0));
  }
}

TEST(GoldenSpecs, DeepSeekScalesScoresByYarnSquared) {
  WEFT_REQUIRE_GOLDENS();
  const auto spec = BuildGolden("deepseek2");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const double growth = 1 + 0.0707 * std::log(40.0);
  EXPECT_NEAR(OpOf<LatentAttention>(*spec, 0, 0).scale, growth * growth / std::sqrt(48.0), 1e-6);
  EXPECT_FLOAT_EQ(spec->ropes[0].magnitude, 1);
}

TEST(GoldenSpecs, SmolLm3LeavesEveryFourthLayerWithoutPosition) {
  WEFT_REQUIRE_GOLDENS();
  const auto spec = BuildGolden("smollm3");
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<int> ropes(4);
  for (int layer = 0; layer < 4; ++layer) ropes[layer] = OpOf<Attention>(*spec, layer, 0).rope;
  EXPECT_THAT(ropes, ElementsAre(0, 0, 0, -1));
}

// A damaged header gives either an error or a valid spec.
TEST(GoldenSpecs, FlippedBitsNeverGiveABrokenSpec) {
  WEFT_REQUIRE_GOLDENS();
  std::mt19937 random(7);
  int n_specs = 0;
  int n_errors = 0;
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.model);
    std::ifstream in(GoldenPath(expected.model), std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    testing::JudgeFlippedBits(bytes, BuildGolden(expected.model)->architecture, &random, &n_specs,
                              &n_errors);
  }
  EXPECT_GT(n_specs, 100);
  EXPECT_GT(n_errors, 100);
}

// The folder of further architectures: each known one gives a valid spec, and with a damaged header
// either a valid spec or an error.
TEST(GoldenSpecs, OfFurtherArchitecturesHold) {
  const std::string folder = testing::GoldensDir() + "/architectures";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no reference data: set WEFT_GOLDENS to the goldens' folder";
  }
  std::mt19937 random(8);
  int n_specs = 0, n_errors = 0, n_known = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path().filename());
    const auto file = ModelFile::Open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    const auto spec = BuildModelSpec(**file, {});
    if (spec.status().code() == StatusCode::kUnimplemented) continue;
    ASSERT_TRUE(spec.ok()) << spec.status();
    SpecJudge(**file, *spec).Judge();
    ++n_known;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    testing::JudgeFlippedBits(bytes, spec->architecture, &random, &n_specs, &n_errors);
  }
  EXPECT_GT(n_known, 0);
  EXPECT_GT(n_specs, 100);
  EXPECT_GT(n_errors, 100);
}

// --- errors ---------------------------------------------------------------------------

TEST(SpecErrors, TheTinyModelItselfIsFine) {
  const std::string bytes = TinyLlama().Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  SpecJudge(**file, *spec).Judge();
  EXPECT_EQ(spec->n_vocab, 10);
  EXPECT_FLOAT_EQ(OpOf<Attention>(*spec, 1, 0).scale, 1 / std::sqrt(8.0f));
}

TEST(SpecErrors, AnUnknownArchitectureIsToldWithWhereTheKnownAreListed) {
  TinyModel model = TinyLlama();
  model.architecture = "lla\nma";
  model.keys.clear();
  const auto spec = model.Build();
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(spec.status()), HasSubstr("inspect --architectures"));
  EXPECT_EQ(Message(spec.status()).find('\n'), std::string_view::npos);
  const std::vector<std::string> known = KnownArchitectures();
  EXPECT_TRUE(std::is_sorted(known.begin(), known.end()));
}

TEST(SpecErrors, EveryMissingTensorIsNamed) {
  for (const auto& [name, dims] : TinyLlama().tensors) {
    if (name == "output.weight") continue;  // the embedding replaces it
    TinyModel model = TinyLlama();
    model.tensors.erase(name);
    ExpectError(model, name, "is missing");
  }
}

TEST(SpecErrors, EveryMisshapenTensorIsNamed) {
  for (const auto& [name, dims] : TinyLlama().tensors) {
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      TinyModel model = TinyLlama();
      ++model.tensors[name][axis];
      // More rows of the embedding mean more tokens, which the output then lacks.
      const bool vocabulary = name == "token_embd.weight" && axis == 1;
      ExpectError(model, vocabulary ? "output.weight" : name, "expected [");
    }
    TinyModel model = TinyLlama();
    model.tensors[name].push_back(2);
    ExpectError(model, name, "expected [");
  }
}

TEST(SpecErrors, NormsAreF32AndMatricesHoldWeights) {
  TinyModel model = TinyLlama();
  model.types["blk.1.ffn_norm.weight"] = DType::kF16;
  ExpectError(model, "blk.1.ffn_norm.weight", "expected F32");
  model = TinyLlama();
  model.types["blk.0.attn_q.weight"] = DType::kI32;
  ExpectError(model, "blk.0.attn_q.weight", "I32");
  model.types["blk.0.attn_q.weight"] = DType::kBF16;
  EXPECT_TRUE(model.Build().ok());
}

TEST(SpecErrors, ATensorThatNobodyReadsIsRefused) {
  TinyModel model = TinyLlama();
  model.tensors["blk.1.attn_q_norm.weight"] = {8};
  ExpectError(model, "blk.1.attn_q_norm.weight", "not part of the architecture");
  model = TinyLlama();
  model.AddLayerTensors(2, {{"attn_norm.weight", {16}}});
  ExpectError(model, "blk.2.attn_norm.weight", "not part of the architecture");
  // Layers that predict further tokens follow those that run.
  model.keys["block_count"] = int64_t{3};
  model.keys["nextn_predict_layers"] = int64_t{1};
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers.size(), 2);
}

TEST(SpecErrors, EveryMissingKeyIsNamed) {
  for (const auto& [key, value] : TinyLlama().keys) {
    if (key == "attention.head_count_kv") continue;  // defaults to the number of heads
    TinyModel model = TinyLlama();
    model.keys.erase(key);
    ExpectError(model, key, "");
  }
  TinyModel model = TinyLlama();
  model.keys.erase("attention.head_count_kv");
  ExpectError(model, "blk.0.attn_k.weight", "expected [16, 16]");
}

TEST(SpecErrors, NonsenseInKeysIsNamed) {
  const std::pair<std::string, TinyModel::Value> cases[] = {
      {"block_count", int64_t{0}},
      {"block_count", int64_t{1} << 40},
      {"block_count", std::string("two")},
      {"context_length", int64_t{0}},
      {"embedding_length", int64_t{-1}},
      {"embedding_length", int64_t{1} << 50},
      {"feed_forward_length", int64_t{0}},
      {"feed_forward_length", std::vector<int32_t>{24}},
      {"attention.head_count", int64_t{0}},
      {"attention.head_count", int64_t{17}},
      {"attention.head_count_kv", int64_t{3}},
      {"attention.head_count_kv", std::vector<int32_t>{1, -1}},
      {"attention.key_length", int64_t{1} << 30},
      {"attention.layer_norm_rms_epsilon", std::nan("")},
      {"attention.layer_norm_rms_epsilon", 2.0},
      {"attention.causal", false},
      {"rope.dimension_count", int64_t{3}},
      {"rope.dimension_count", int64_t{10}},
      {"rope.freq_base", 0.0},
      {"rope.freq_base", std::numeric_limits<double>::infinity()},
      {"rope.scaling.type", std::string("spiral")},
      {"rope.scaling.factor", -2.0},
      {"nextn_predict_layers", int64_t{2}},
      {"expert_count", int64_t{1} << 20},
  };
  for (const auto& [key, value] : cases) {
    TinyModel model = TinyLlama();
    model.keys[key] = value;
    ExpectError(model, key, "");
  }
}

TEST(SpecErrors, RopeDivisorsAreChecked) {
  TinyModel model = TinyLlama();
  model.tensors["rope_freqs.weight"] = {4};
  EXPECT_TRUE(model.Build().ok());
  model.tensors["rope_freqs.weight"] = {3};
  ExpectError(model, "rope_freqs.weight", "expected F32 and [4]");
  model.tensors["rope_freqs.weight"] = {4};
  model.fill = 0;
  ExpectError(model, "rope_freqs.weight", "zero");
}

// --- forms that the reference models lack ----------------------------------------------

TEST(SpecForms, BiasesAreFoundByName) {
  TinyModel model = TinyLlama();
  model.AddLayerTensors(0, {{"attn_q.bias", {16}}, {"ffn_down.bias", {16}}});
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(OpOf<Attention>(*spec, 0, 0).q.bias);
  EXPECT_FALSE(OpOf<Attention>(*spec, 0, 0).k.bias);
  EXPECT_TRUE(OpOf<DenseFfn>(*spec, 0, 1).down.bias);
}

TEST(SpecForms, OneMatrixMayHoldQueryKeyAndValue) {
  TinyModel model = TinyLlama();
  for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
    model.tensors.erase(StrCat("blk.0.", name, ".weight"));
  }
  model.AddLayerTensors(0, {{"attn_qkv.weight", {16, 32}}});
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Attention& attention = OpOf<Attention>(*spec, 0, 0);
  EXPECT_EQ(attention.q.first_row, 0);
  EXPECT_EQ(attention.k.first_row, 16);
  EXPECT_EQ(attention.v.first_row, 24);
  EXPECT_EQ(attention.v.weight, attention.q.weight);
}

void Rename(TinyModel* model, std::string_view from, std::string_view to) {
  for (int64_t layer = 0; layer < 2; ++layer) {
    auto node = model->tensors.extract(StrCat("blk.", layer, ".", from, ".weight"));
    ASSERT_FALSE(node.empty()) << from;
    if (to.empty()) continue;
    node.key() = StrCat("blk.", layer, ".", to, ".weight");
    model->tensors.insert(std::move(node));
  }
}

void ExpectBuilds(const TinyModel& model) {
  SCOPED_TRACE(model.architecture);
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  SpecJudge(**file, *spec).Judge();
}

TEST(SpecForms, RelativesOfLlama) {
  for (const char* name : {"internlm2", "ernie4_5", "qwen2"}) {
    TinyModel model = TinyLlama();
    model.architecture = name;
    ExpectBuilds(model);
  }
  TinyModel arcee = TinyLlama();
  arcee.architecture = "arcee";
  Rename(&arcee, "ffn_gate", "");
  ExpectBuilds(arcee);
  EXPECT_EQ(OpOf<DenseFfn>(*arcee.Build(), 0, 1).activation, Activation::kReluSquared);

  TinyModel seed = TinyLlama();
  seed.architecture = "seed_oss";
  Rename(&seed, "ffn_norm", "post_attention_norm");
  ExpectBuilds(seed);

  TinyModel gemma = TinyLlama();
  gemma.architecture = "gemma";
  gemma.tensors.erase("output.weight");
  ExpectBuilds(gemma);
  EXPECT_FLOAT_EQ(gemma.Build()->embedding_scale, 4);

  TinyModel glm4 = TinyLlama();
  glm4.architecture = "glm4";
  Rename(&glm4, "ffn_gate", "");
  for (int64_t layer = 0; layer < 2; ++layer) {
    glm4.AddLayerTensors(layer, {{"ffn_up.weight", {16, 48}},
                                 {"post_attention_norm.weight", {16}},
                                 {"post_ffw_norm.weight", {16}}});
  }
  ExpectBuilds(glm4);
  EXPECT_EQ(OpOf<DenseFfn>(*glm4.Build(), 0, 1).up.first_row, 24);
}

TEST(SpecForms, ExpertsOfGraniteAndOlmoe) {
  TinyModel granite = TinyExperts("granitemoe");
  granite.keys["feed_forward_length"] = int64_t{12};
  granite.keys["logit_scale"] = 4.0;
  ExpectBuilds(granite);
  EXPECT_FLOAT_EQ(granite.Build()->logit_scale, 0.25f);
  EXPECT_TRUE(OpOf<MixtureOfExperts>(*granite.Build(), 0, 1).renormalize);

  TinyModel olmoe = TinyExperts("olmoe");
  olmoe.keys["feed_forward_length"] = int64_t{12};
  for (int64_t layer = 0; layer < 2; ++layer) {
    olmoe.AddLayerTensors(layer, {{"attn_q_norm.weight", {16}}, {"attn_k_norm.weight", {8}}});
  }
  ExpectBuilds(olmoe);
  EXPECT_FALSE(OpOf<MixtureOfExperts>(*olmoe.Build(), 0, 1).renormalize);
}

TEST(SpecForms, Qwen2MoeDerivesWidthsThatAreMissing) {
  TinyModel model = TinyExperts("qwen2moe");
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.AddLayerTensors(layer, {{"ffn_gate_inp_shexp.weight", {16}},
                                  {"ffn_gate_shexp.weight", {16, 24}},
                                  {"ffn_up_shexp.weight", {16, 24}},
                                  {"ffn_down_shexp.weight", {24, 16}}});
  }
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(OpOf<MixtureOfExperts>(*spec, 0, 1).renormalize);
  EXPECT_EQ(OpOf<DenseFfn>(*spec, 0, 1, 1).output_gate.n_out, 1);
}

TEST(SpecForms, DeepSeekWithLowRankQueryAndGroups) {
  const std::string bytes = TinyDeepSeek().Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  SpecJudge(**file, *spec).Judge();
  EXPECT_TRUE(OpOf<LatentAttention>(*spec, 0, 0).q_a);
  EXPECT_FLOAT_EQ(OpOf<LatentAttention>(*spec, 0, 0).scale, 1 / std::sqrt(10.0f));
  const auto& moe = OpOf<MixtureOfExperts>(*spec, 1, 1);
  EXPECT_EQ(moe.weights, RouterWeights::kSigmoid);
  EXPECT_TRUE(moe.selection_bias);
  EXPECT_TRUE(moe.renormalize);
  EXPECT_FLOAT_EQ(moe.weight_scale, 2.5f);
  EXPECT_EQ(moe.n_groups, 2);
  EXPECT_EQ(moe.n_groups_used, 1);
}

TEST(SpecForms, DeepSeekErrors) {
  TinyModel model = TinyDeepSeek();
  model.keys["expert_group_count"] = int64_t{3};
  ExpectError(model, "expert_group_count", "does not part");
  model = TinyDeepSeek();
  model.keys["expert_used_count"] = int64_t{3};
  ExpectError(model, "expert_used_count", "only 2 experts");
  model = TinyDeepSeek();
  model.keys["attention.key_length_mla"] = int64_t{4};
  ExpectError(model, "attention.key_length_mla", "nothing next to");
  model = TinyDeepSeek();
  model.tensors.erase("blk.0.attn_k_b.weight");
  model.tensors["blk.0.attn_kv_b.weight"] = {7, 22};
  ExpectError(model, "blk.0.attn_kv_b.weight", "convert the model again");
  model = TinyDeepSeek();
  model.keys["expert_gating_func"] = int64_t{9};
  ExpectError(model, "expert_gating_func", "not known");
}

// Experts with a dense feed-forward; one global layer whose values are its keys.
TEST(SpecForms, Gemma4WithExperts) {
  TinyModel model = TinyExperts("gemma4");
  model.keys.insert({{"attention.sliding_window", int64_t{4}},
                     {"attention.sliding_window_pattern", std::vector<int32_t>{1, 0}},
                     {"attention.key_length", int64_t{12}},
                     {"attention.value_length", int64_t{12}},
                     {"attention.key_length_swa", int64_t{8}},
                     {"attention.value_length_swa", int64_t{8}},
                     {"expert_feed_forward_length", int64_t{12}}});
  model.keys["attention.head_count_kv"] = std::vector<int32_t>{2, 1};
  for (int64_t layer = 0; layer < 2; ++layer) {
    const int64_t head_dim = layer == 0 ? 8 : 12;
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps", "attn_v"}) {
      model.tensors.erase(StrCat("blk.", layer, ".", name, ".weight"));
    }
    model.AddLayerTensors(layer, {{"attn_q.weight", {16, 2 * head_dim}},
                                  {"attn_k.weight", {16, (2 - layer) * head_dim}},
                                  {"attn_output.weight", {2 * head_dim, 16}},
                                  {"attn_q_norm.weight", {head_dim}},
                                  {"attn_k_norm.weight", {head_dim}},
                                  {"post_attention_norm.weight", {16}},
                                  {"ffn_gate.weight", {16, 24}},
                                  {"ffn_up.weight", {16, 24}},
                                  {"ffn_down.weight", {24, 16}},
                                  {"ffn_gate_up_exps.weight", {16, 24, 4}},
                                  {"ffn_down_exps.scale", {4}},
                                  {"ffn_gate_inp.scale", {16}},
                                  {"post_ffw_norm.weight", {16}},
                                  {"post_ffw_norm_1.weight", {16}},
                                  {"pre_ffw_norm_2.weight", {16}},
                                  {"post_ffw_norm_2.weight", {16}},
                                  {"layer_output_scale.weight", {1}}});
  }
  model.tensors["blk.0.attn_v.weight"] = {16, 16};
  model.tensors["rope_freqs.weight"] = {6};
  const std::string bytes = model.Bytes();
  const auto file = ModelFile::FromBytes("tiny.gguf", std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto spec = BuildModelSpec(**file, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  SpecJudge(**file, *spec).Judge();
  EXPECT_FALSE(OpOf<Attention>(*spec, 0, 0).v_from_k);
  EXPECT_TRUE(OpOf<Attention>(*spec, 1, 0).v_from_k);
  const auto& moe = OpOf<MixtureOfExperts>(*spec, 1, 1, 1);
  EXPECT_FLOAT_EQ(moe.router_norm.factor, 0.25f);
  EXPECT_EQ(moe.up.first_row, 12);
  EXPECT_TRUE(moe.down.scale);
  EXPECT_TRUE(moe.renormalize);
  EXPECT_TRUE(spec->layers[1].blocks[1].stream_scale);
  EXPECT_FLOAT_EQ(spec->logit_softcap, 30);
}

TEST(SpecForms, Olmo3StretchesItsGlobalLayersAlone) {
  TinyModel model = TinyLlama();
  model.architecture = "olmo2";
  model.keys.insert({{"attention.sliding_window", int64_t{4}},
                     {"attention.sliding_window_pattern", int64_t{2}},
                     {"rope.scaling.type", std::string("yarn")},
                     {"rope.scaling.factor", 8.0},
                     {"rope.scaling.original_context_length", int64_t{16}}});
  for (int64_t layer = 0; layer < 2; ++layer) {
    model.tensors.erase(StrCat("blk.", layer, ".attn_norm.weight"));
    model.tensors.erase(StrCat("blk.", layer, ".ffn_norm.weight"));
    model.AddLayerTensors(layer, {{"attn_q_norm.weight", {16}},
                                  {"attn_k_norm.weight", {8}},
                                  {"post_attention_norm.weight", {16}},
                                  {"post_ffw_norm.weight", {16}}});
  }
  const auto spec = model.Build();
  ASSERT_TRUE(spec.ok()) << spec.status();
  const Rope& local = spec->ropes.at(OpOf<Attention>(*spec, 0, 0).rope);
  const Rope& global = spec->ropes.at(OpOf<Attention>(*spec, 1, 0).rope);
  EXPECT_FLOAT_EQ(local.magnitude, 1);
  EXPECT_NEAR(global.magnitude, 1 + 0.1 * std::log(8.0), 1e-6);
  EXPECT_NEAR(global.frequencies.back() * 8, local.frequencies.back(), 1e-12);
}

}  // namespace
}  // namespace weft
