// Granite 3 and 4, dense or with experts: a llama with scales on embedding, residuals,
// scores and logits. MiniCPM 1, 2 and 4 have the same, and old files leave them out. In the hybrid
// ones (Bamba too) layers without key heads have a state space in place of attention.
#include <cmath>

#include "model/arch/architectures.h"

namespace weft {
namespace {

float ReadGraniteScales(SpecBuilder& b, bool needs_logit_scale) {
  b.spec().embedding_scale = b.ScaleOr("embedding_scale", 1);
  // Files hold the divisor of the logits.
  b.spec().logit_scale =
      1 / static_cast<float>(needs_logit_scale ? b.Float("logit_scale", 1e-6, 1e9)
                                               : b.FloatOr("logit_scale", 1, 1e-6, 1e9));
  return b.ScaleOr("residual_scale", 1);
}

// The scales of MiniCPM's files that do not say them.
float ReadMiniCpmScales(SpecBuilder& b, const Dims& dims) {
  constexpr float kEmbeddingScale = 12, kDepthScale = 1.4f, kBaseWidth = 256;
  b.spec().embedding_scale = b.ScaleOr("embedding_scale", kEmbeddingScale);
  b.spec().logit_scale =
      1 / b.ScaleOr("logit_scale", static_cast<float>(dims.d_model) / kBaseWidth);
  return b.ScaleOr("residual_scale", kDepthScale / std::sqrt(static_cast<float>(dims.n_layers)));
}

}  // namespace

void BuildGranite(SpecBuilder& b) {
  const bool is_hybrid = b.architecture() == "granitehybrid";
  const Dims dims = b.ReadDims(is_hybrid ? HeadCounts::kMayBeZero : HeadCounts::kAlways);
  b.ReadEnds(dims);
  const float residual_scale =
      b.architecture() == "minicpm" ? ReadMiniCpmScales(b, dims) : ReadGraniteScales(b, !is_hybrid);
  const RopeScaling scaling = b.ReadRopeScaling();
  const int rope = b.AddRope(
      MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), scaling, b.ReadRopeDivisors(dims)));
  const bool has_rope = b.BoolOr("rope.scaling.finetuned", true);
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  const MixtureOfExperts experts =
      has_experts ? b.ReadMoe({.renormalize = true}) : MixtureOfExperts();
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);
  const StateSpaceShape state_space = is_hybrid ? b.ReadStateSpaceShape() : StateSpaceShape();

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Op mixer;
    if (dims.n_kv_heads[layer] == 0) {
      mixer = b.MakeStateSpace(layer, dims, state_space);
    } else {
      AttentionShape shape = b.ShapeOf(dims, layer);
      shape.rope = has_rope ? rope : -1;
      Attention attention = b.MakeAttention(layer, dims, shape);
      attention.scale = b.ScaleOr("attention.scale", attention.scale);
      mixer = attention;
    }
    Block first =
        MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon), mixer);
    first.residual_scale = residual_scale;

    Block second;
    second.pre = b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon);
    second.residual_scale = residual_scale;
    if (has_experts) {
      MixtureOfExperts moe = experts;
      b.AddExperts(layer, dims, dims.n_ff[layer], &moe);
      second.paths.push_back({.pre = {}, .op = moe, .post = {}});
    } else {
      second.paths.push_back(
          {.pre = {}, .op = b.MakeFfn(layer, dims, dims.n_ff[layer]), .post = {}});
    }
    if (has_experts && n_ff_shared > 0) {
      second.paths.push_back(
          {.pre = {},
           .op = b.MakeFfn(layer, dims, n_ff_shared, Activation::kSilu, "_shexp"),
           .post = {}});
    }
    b.spec().layers.push_back({{first, second}});
  }
}

// With sinks, windows by a pattern, positions by another; the shared expert's gate and up lie in
// one matrix.
void BuildGraniteSwa(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const float residual_scale = ReadGraniteScales(b, true);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  if (!b.HasKey("attention.sliding_window_pattern")) {
    b.FailKey("attention.sliding_window_pattern", "is missing");
  }
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, 1);
  const std::vector<int64_t> rotates = b.IntsOr("attention.rope_pattern", b.n_blocks(), 1, 0, 1);
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  ExpertLayers experts;
  if (has_experts) experts = b.ReadExpertLayers(dims, {.renormalize = true});
  if (!has_experts) experts.n_dense = dims.n_layers;
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = rotates[layer] != 0 ? rope : -1;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.scale = b.ScaleOr("attention.scale", attention.scale);
    attention.sinks = b.Vector(LayerName(layer, "attn_sinks.weight"), shape.n_heads);
    Block first = MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention);
    Block second;
    second.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &second);
    if (has_experts && n_ff_shared > 0) {
      second.paths.push_back({Norm(), b.MakeFusedFfn(layer, dims, n_ff_shared, "_shexp"), Norm()});
    }
    first.residual_scale = second.residual_scale = residual_scale;
    b.spec().layers.push_back({{std::move(first), std::move(second)}});
  }
}

}  // namespace weft
