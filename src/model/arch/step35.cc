// Step 3.5, MiMo V2, Laguna, Spark 2.5 and Mellum 2: layers that see a window have a rope of their
// own, and some of these models heads of their own. Hy 3 sees everything. Where experts are, layers
// without a router are dense.
#include <algorithm>

#include "base/strings.h"
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

// Rotated values of a head in layers that see a window.
int64_t ReadLocalRotation(SpecBuilder& b, const Dims& dims, int64_t absent) {
  constexpr std::string_view kKey = "rope.dimension_count_swa";
  const int64_t n = b.IntOr(kKey, absent, 2, std::max<int64_t>(dims.k_dim, 2));
  if (n % 2 != 0) b.FailKey(kKey, StrCat("is ", n, ", expected an even number"));
  return n;
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

// A softplus gate for each head or each of its values; the rope of layers that see a window has
// another width and no stretch. Without a window all layers see everything.
void BuildLaguna(SpecBuilder& b) {
  constexpr int64_t kPeriod = 4;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  WindowedLayers layers;
  layers.window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  layers.local = std::vector<bool>(dims.n_layers, false);
  if (layers.window > 0) {
    layers.local = b.ReadWindowPattern(dims.n_layers, kPeriod, /*first_sees_all=*/true);
  }
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  layers.global_rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  rope_shape.n_values = ReadLocalRotation(b, dims, rope_shape.n_values);
  layers.local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  ExpertLayers experts = b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid});
  const int64_t n_shared = b.IntOr("expert_shared_count", 1, 0, 1024);
  experts.n_ff_shared = b.IntOr("expert_shared_feed_forward_length",
                                b.ok() ? n_shared * experts.n_ff[dims.n_layers - 1] : 0, 0);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = layers.ShapeOf(b, dims, layer);
    shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    const std::string gate = LayerName(layer, "attn_gate");
    const bool by_head = b.RowsOf(gate) == shape.n_heads;
    attention.gate =
        b.Matrix(gate, dims.d_model, by_head ? shape.n_heads : shape.n_heads * shape.v_dim);
    attention.gate_activation = GateActivation::kSoftplus;
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention), ffn}});
  }
}

// Dense, with a gate for each head.
void BuildSpark25(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  WindowedLayers layers = ReadWindowedLayers(b, dims);
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  layers.global_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  rope_shape.n_values = ReadLocalRotation(b, dims, rope_shape.n_values);
  layers.local_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = layers.ShapeOf(b, dims, layer);
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.gate = b.Matrix(LayerName(layer, "attn_gate"), dims.d_model, shape.n_heads);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims),
                    b.MakeFfn(layer, dims, dims.n_ff[layer], Activation::kGeluTanh))}});
  }
}

// Mellum 2 (without a window all layers see everything) and Hy 3, which has a shared expert.
void BuildMellum(SpecBuilder& b) {
  constexpr int64_t kPeriod = 4;
  const bool is_hy3 = b.architecture() == "hy_v3";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  WindowedLayers layers;
  if (!is_hy3) layers.window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  layers.local = layers.window > 0 ? b.ReadWindowPattern(dims.n_layers, kPeriod)
                                   : std::vector<bool>(dims.n_layers, false);
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  layers.global_rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  layers.local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  ExpertLayers experts = b.ReadExpertLayers(
      dims, {.weights = is_hy3 ? RouterWeights::kSigmoid : RouterWeights::kSoftmax,
             .renormalize = !is_hy3});
  if (is_hy3 && b.ok()) {
    experts.n_ff_shared =
        b.IntOr("expert_shared_feed_forward_length", experts.n_ff[dims.n_layers - 1], 1);
  }
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = layers.ShapeOf(b, dims, layer);
    shape.norms = HeadNorms::kAlways;
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          ReadRoutedFfn(b, dims, layer, experts)}});
  }
}

}  // namespace weft
