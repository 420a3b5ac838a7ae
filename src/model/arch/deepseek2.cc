// DeepSeek V2, V3, R1, Kimi K2, Mistral 4 and their kin, V3.2 and GLM 5 with an indexer: latent
// attention in its absorbed form, first layers dense, then routed experts beside shared ones.
#include <cmath>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

struct Latent {
  int64_t latent_dim = 0;
  int64_t nope_dim = 0;
  int64_t v_dim = 0;
  int64_t q_rank = 0;
  int rope = -1;
  float scale = 1;
  QueryTemperature temperature;
};

Latent ReadLatent(SpecBuilder& b, const Dims& dims) {
  Latent latent;
  if (b.HasTensor("blk.0.attn_kv_b.weight") && !b.HasTensor("blk.0.attn_k_b.weight")) {
    b.FailTensor("blk.0.attn_kv_b.weight",
                 "is the old form of latent attention; convert the model again, so that it has "
                 "attn_k_b and attn_v_b");
  }
  const int64_t k_dim = b.Int("attention.key_length_mla", 2);
  latent.latent_dim = b.Int("attention.kv_lora_rank", 1);
  latent.v_dim = b.Int("attention.value_length_mla", 1);
  latent.nope_dim = k_dim - dims.n_rot;
  if (latent.nope_dim < 1) {
    b.FailKey("attention.key_length_mla",
              StrCat("is ", k_dim, ", which leaves nothing next to the ", dims.n_rot,
                     " values that rotate"));
  }
  latent.q_rank = b.IntOr("attention.q_lora_rank", 0, 0);

  // The growth that YaRN asks for lies in the scores' scale. Where the file gives it
  // a multiplier, cosine and sine are left alone.
  RopeScaling scaling = b.ReadRopeScaling();
  latent.temperature.scale = b.ScaleOr("attention.temperature_scale", 0);
  if (latent.temperature) {
    latent.temperature.length = b.Int("attention.temperature_length", 1, SpecBuilder::kMaxContext);
  }
  double growth = scaling.magnitude * YarnGrowth(scaling.factor, scaling.magnitude_multiplier);
  if (scaling.kind == RopeScalingKind::kYarn && scaling.magnitude_multiplier != 0) {
    scaling.magnitude_multiplier = 0.1;
  } else if (scaling.kind != RopeScalingKind::kNone) {
    growth *= YarnGrowth(scaling.factor, 0.1);
  }
  latent.rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), scaling, {}));
  latent.scale = static_cast<float>(growth * growth / std::sqrt(static_cast<double>(k_dim)));
  return latent;
}

LatentAttention BuildAttention(SpecBuilder& b, const Dims& dims, const Latent& latent,
                               int64_t layer) {
  LatentAttention attention;
  const int64_t n_heads = dims.n_heads[layer];
  const int64_t n_q = n_heads * (latent.nope_dim + dims.n_rot);
  attention.n_heads = static_cast<int>(n_heads);
  attention.nope_dim = latent.nope_dim;
  attention.rope_dim = dims.n_rot;
  attention.latent_dim = latent.latent_dim;
  attention.v_dim = latent.v_dim;
  attention.rope = latent.rope;
  attention.scale = latent.scale;
  attention.temperature = latent.temperature;
  attention.kv_layer = b.AddKvLayer(0, 1, latent.latent_dim + dims.n_rot, 0);

  if (b.HasTensor(LayerName(layer, "attn_q_a.weight"))) {
    if (latent.q_rank < 1) b.FailKey("attention.q_lora_rank", "is missing or 0");
    attention.q_a = b.Matrix(LayerName(layer, "attn_q_a"), dims.d_model, latent.q_rank);
    attention.q_a_norm = b.RmsNorm(LayerName(layer, "attn_q_a_norm"), latent.q_rank, dims.epsilon);
    attention.q_b = b.Matrix(LayerName(layer, "attn_q_b"), latent.q_rank, n_q);
  } else {
    attention.q = b.Matrix(LayerName(layer, "attn_q"), dims.d_model, n_q);
  }
  attention.kv_a =
      b.Matrix(LayerName(layer, "attn_kv_a_mqa"), dims.d_model, latent.latent_dim + dims.n_rot);
  attention.kv_norm =
      b.RmsNorm(LayerName(layer, "attn_kv_a_norm"), latent.latent_dim, dims.epsilon);
  attention.k_b =
      b.Stack(LayerName(layer, "attn_k_b"), latent.nope_dim, latent.latent_dim, n_heads);
  attention.v_b = b.Stack(LayerName(layer, "attn_v_b"), latent.latent_dim, latent.v_dim, n_heads);
  attention.out = b.Matrix(LayerName(layer, "attn_output"), n_heads * latent.v_dim, dims.d_model);
  // The same weights before they were parted into k_b and v_b.
  b.Ignore(LayerName(layer, "attn_kv_b.weight"));
  return attention;
}

Convolution ChannelConvolution(SpecBuilder& b, const std::string& name, int64_t n, int64_t n_taps) {
  Convolution convolution;
  convolution.kernel = b.Values(name, {n_taps, 1, n});
  convolution.n_channels = n;
  convolution.n_taps = n_taps;
  convolution.slot = b.AddSlot(SlotKind::kConvolution, (n_taps - 1) * n);
  return convolution;
}

ChannelDeltaNet MakeChannelDeltaNet(SpecBuilder& b, const Dims& dims, int64_t layer) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  const int64_t dim = b.Int("kda.head_dim", 1, SpecBuilder::kMaxHeadDim);
  const int64_t n_heads = dims.n_heads[layer], n = n_heads * dim;
  const int64_t n_taps = b.Int("ssm.conv_kernel", 2, SpecBuilder::kMaxTaps);
  ChannelDeltaNet op;
  op.n_heads = static_cast<int>(n_heads);
  op.head_dim = dim;
  op.epsilon = dims.epsilon;
  op.q = b.Matrix(name("attn_q"), dims.d_model, n);
  op.k = b.Matrix(name("attn_k"), dims.d_model, n);
  op.v = b.Matrix(name("attn_v"), dims.d_model, n);
  op.q_convolution = ChannelConvolution(b, name("ssm_conv1d_q.weight"), n, n_taps);
  op.k_convolution = ChannelConvolution(b, name("ssm_conv1d_k.weight"), n, n_taps);
  op.v_convolution = ChannelConvolution(b, name("ssm_conv1d_v.weight"), n, n_taps);
  op.decay_a = b.Matrix(name("ssm_f_a"), dims.d_model, dim);
  op.decay_b = b.Matrix(name("ssm_f_b"), dim, n);
  op.gate_a = b.Matrix(name("ssm_g_a"), dims.d_model, dim);
  op.gate_b = b.Matrix(name("ssm_g_b"), dim, n);
  op.beta = b.Matrix(name("ssm_beta"), dims.d_model, n_heads);
  op.decay_bias = b.Vector(name("ssm_dt.bias"), n);
  op.decay_rate = b.Values(name("ssm_a"), {1, n_heads});
  op.norm = b.RmsNorm(name("ssm_norm"), dim, dims.epsilon);
  op.out = b.Matrix(name("attn_output"), n, dims.d_model);
  op.slot = b.AddSlot(SlotKind::kDeltaNet, n * dim);
  return op;
}

// The indexer of DeepSeek V3.2 and GLM 5.
struct LatentIndexer {
  KeyChoice choice;              // without a KvLayer
  std::vector<int64_t> has_own;  // 0: the layer attends to the keys of the last that has one
};

LatentIndexer ReadLatentIndexer(SpecBuilder& b, const Dims& dims, const Latent& latent) {
  const bool is_glm = b.architecture() == "glm-dsa";
  LatentIndexer indexer;
  indexer.choice.kind = KeyChoice::Kind::kKeys;
  indexer.choice.n_heads = static_cast<int>(b.Int("attention.indexer.head_count", 1, 1 << 16));
  indexer.choice.dim = b.Int("attention.indexer.key_length", 1, SpecBuilder::kMaxHeadDim);
  indexer.choice.count = b.Int("attention.indexer.top_k", 1);
  if (b.ok() && indexer.choice.dim < dims.n_rot) {
    b.FailKey("attention.indexer.key_length", "is less than rope.dimension_count");
  }
  // Where keys are rotated in adjacent pairs, DeepSeek's index keys are in halves.
  Rope rope = b.ok() ? b.spec().ropes[static_cast<size_t>(latent.rope)] : Rope();
  rope.pairs = is_glm ? RopePairs::kAdjacent : RopePairs::kHalves;
  if (b.ok()) indexer.choice.rope = b.AddRope(rope);
  indexer.has_own = b.IntsOr("attention.indexer.types", b.n_blocks(), 1, 0, 1);
  if (!b.HasKey("attention.indexer.types")) {
    for (int64_t layer = 0; layer < std::ssize(indexer.has_own); ++layer) {
      if (b.HasTensor(LayerName(layer, "indexer.attn_k.weight"))) continue;
      indexer.has_own[static_cast<size_t>(layer)] = layer == 0 ? 1 : 0;
    }
  }
  if (b.ok() && indexer.has_own[0] == 0) {
    b.FailKey("attention.indexer.types", "leaves the first layer without an indexer");
  }
  return indexer;
}

void AddIndexer(SpecBuilder& b, const Dims& dims, const LatentIndexer& indexer, int64_t layer,
                LatentAttention* attention) {
  // The epsilon of its layer norm, which no file says.
  constexpr float kIndexEpsilon = 1e-6f;
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  attention->choice = indexer.choice;
  if (indexer.has_own[static_cast<size_t>(layer)] == 0) {
    // A prediction head is a model of its own, whose first layer has nobody's keys to attend to.
    if (b.spec().layers.empty()) {
      b.FailTensor(name("indexer.attn_k.weight"), "is missing in the first layer of a model");
    }
    attention->choice = {.kind = KeyChoice::Kind::kAsBefore};
    return;
  }
  KeyChoice& choice = attention->choice;
  attention->index_q =
      b.Matrix(name("indexer.attn_q_b"), attention->q_a.n_out, choice.n_heads * choice.dim);
  attention->index_k = b.Matrix(name("indexer.attn_k"), dims.d_model, choice.dim);
  attention->index_k_norm = b.LayerNorm(name("indexer.k_norm"), choice.dim, kIndexEpsilon);
  attention->index_weights = b.Matrix(name("indexer.proj"), dims.d_model, choice.n_heads);
  attention->index_scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(choice.n_heads * choice.dim)));
  choice.kv_layer = b.AddKvLayer(0, 1, choice.dim, 0);
  if (!attention->q_a) b.FailTensor(name("attn_q_a.weight"), "is missing; the indexer needs it");
}

}  // namespace

void BuildDeepSeek2(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const Latent latent = ReadLatent(b, dims);
  const bool is_glm = b.architecture() == "glm-dsa";
  const bool has_indexer = is_glm || b.architecture() == "deepseek32";
  const LatentIndexer indexer = has_indexer ? ReadLatentIndexer(b, dims, latent) : LatentIndexer();
  const int64_t n_dense = b.IntOr("leading_dense_block_count", 0, 0);
  const bool has_experts = n_dense < dims.n_layers;
  const MoeDefaults defaults = {.weights =
                                    is_glm ? RouterWeights::kSigmoid : RouterWeights::kSoftmax};
  const MixtureOfExperts experts = has_experts ? b.ReadMoe(defaults) : MixtureOfExperts();
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);

  const auto add_layer = [&](int64_t layer) {
    Block ffn;
    ffn.pre = b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon);
    b.AddDenseOrExperts(layer, dims, n_dense, n_ff_expert, n_shared, experts, &ffn);
    LatentAttention attention = BuildAttention(b, dims, latent, layer);
    if (has_indexer) AddIndexer(b, dims, indexer, layer, &attention);
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    attention),
          ffn}});
  };
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) add_layer(layer);
  b.ReadPredictionHead(dims, /*before_output_norm=*/true, add_layer);
}

// Kimi Linear: layers without key heads have a delta net; latent attention rotates nothing.
void BuildKimiLinear(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  Latent latent = ReadLatent(b, dims);
  latent.rope = -1;
  ExpertLayers experts = b.ReadExpertLayers(dims, {.renormalize = true});
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);
  experts.n_ff_shared = b.ok() ? n_shared * experts.n_ff[dims.n_layers - 1] : 0;
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Op mixer;
    if (dims.n_kv_heads[layer] == 0) {
      mixer = MakeChannelDeltaNet(b, dims, layer);
    } else {
      mixer = BuildAttention(b, dims, latent, layer);
    }
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    b.spec().layers.push_back({{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), mixer), ffn}});
  }
}

}  // namespace weft
