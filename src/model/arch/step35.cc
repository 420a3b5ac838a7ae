// Step 3.5 and MiMo V2: layers that see a window have heads and a rope of their own, sigmoid
// routing, layers without a router are dense.
#include "model/arch/architectures.h"

namespace weft {
namespace {

struct WindowedLayers {
  int64_t window = 0;
  std::vector<bool> local;
  int global_rope = -1, local_rope = -1;
  AttentionShape ShapeOf(SpecBuilder& b, const Dims& dims, int64_t layer) const {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? local_rope : global_rope;
    return shape;
  }
};

WindowedLayers ReadWindowedLayers(SpecBuilder& b, const Dims& dims) {
  WindowedLayers layers;
  layers.window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  if (!b.HasKey("attention.sliding_window_pattern")) {
    b.FailKey("attention.sliding_window_pattern", "is missing");
  }
  layers.local = b.ReadWindowPattern(dims.n_layers, 1);
  return layers;
}

// Experts of a layer with a router, a dense feed-forward otherwise.
Block ReadRoutedFfn(SpecBuilder& b, const Dims& dims, int64_t layer, const ExpertLayers& experts) {
  ExpertLayers own = experts;
  own.n_dense = b.HasTensor(LayerName(layer, "ffn_gate_inp.weight")) ? 0 : dims.n_layers;
  Block block;
  block.pre = b.StreamNorm(layer, "ffn_norm", dims);
  b.AddFfnPaths(layer, dims, own, &block);
  return block;
}

// A limit of 0 is none.
void ClampSilu(float limit, Activation* activation, ActivationNumbers* numbers) {
  if (limit <= 0) return;
  *activation = Activation::kClampedSilu;
  numbers->limit = limit;
}

}  // namespace

// Layers that see all rotate half as many values, with divisors; each head has a gate; the
// activations of some layers are clamped.
void BuildStep35(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  WindowedLayers layers = ReadWindowedLayers(b, dims);
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int64_t n_local = rope_shape.n_values;
  if (n_local % 4 != 0) b.FailKey("rope.dimension_count", "is no multiple of 4");
  rope_shape.n_values = b.ok() ? n_local / 2 : 2;
  layers.global_rope = b.AddRope(
      MakeRope(rope_shape, scaling, b.OptionalDivisors("rope_freqs.weight", n_local / 4)));
  rope_shape.n_values = n_local;
  rope_shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
  layers.local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  ExpertLayers experts = b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid});
  experts.n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);
  const std::vector<float> expert_limits = b.FloatsOr("swiglu_clamp_exp", b.n_blocks(), 0, 0, 1e9),
                           limits = b.FloatsOr("swiglu_clamp_shexp", b.n_blocks(), 0, 0, 1e9);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = layers.ShapeOf(b, dims, layer);
    shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    if (b.HasTensor(LayerName(layer, "attn_gate.weight"))) {
      attention.gate = b.Matrix(LayerName(layer, "attn_gate"), dims.d_model, shape.n_heads);
    }
    Block ffn = ReadRoutedFfn(b, dims, layer, experts);
    for (Path& path : ffn.paths) {
      if (auto* dense = std::get_if<DenseFfn>(&path.op)) {
        ClampSilu(limits[layer], &dense->activation, &dense->numbers);
      } else if (auto* moe = std::get_if<MixtureOfExperts>(&path.op)) {
        ClampSilu(expert_limits[layer], &moe->activation, &moe->numbers);
      }
    }
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention), ffn}});
  }
}

// Values are narrower than keys; some layers have sinks; what attention gives is scaled.
void BuildMimo2(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  WindowedLayers layers = ReadWindowedLayers(b, dims);
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  layers.global_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  layers.local_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  ExpertLayers experts =
      b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid, .renormalize = true});
  const float value_scale = b.ScaleOr("attention.value_scale", 1);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Attention attention = b.MakeAttention(layer, dims, layers.ShapeOf(b, dims, layer));
    attention.sinks = b.OptionalVector(LayerName(layer, "attn_sinks.weight"), dims.n_heads[layer]);
    Block block = MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention);
    block.residual_scale = value_scale;
    b.spec().layers.push_back({{block, ReadRoutedFfn(b, dims, layer, experts)}});
  }
}

}  // namespace weft
