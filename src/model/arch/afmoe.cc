// Trinity (AFMoE): scaled embeddings, norms around both blocks, a gate on the values that
// attention gives, sigmoid routing. Muse Glimmer: the same without experts, over normed embeddings.
// Every fourth layer sees all and has no positions.
#include <cmath>

#include "model/arch/architectures.h"

namespace weft {
namespace {

constexpr int64_t kTrinityPeriod = 4;

}  // namespace

void BuildAfmoe(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  const std::vector<bool> local = window > 0 ? b.ReadWindowPattern(dims.n_layers, kTrinityPeriod)
                                             : std::vector<bool>(dims.n_layers, false);
  ExpertLayers experts = b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid});
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);
  experts.n_ff_shared = b.ok() ? n_shared * experts.n_ff[dims.n_layers - 1] : 0;

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.norms = HeadNorms::kAlways;
    shape.window = local[layer] ? window : 0;
    shape.rope = window > 0 && !local[layer] ? -1 : rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.gate =
        b.Matrix(LayerName(layer, "attn_gate"), dims.d_model, shape.n_heads * shape.v_dim);
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    ffn.post = b.StreamNorm(layer, "post_ffw_norm", dims);
    b.spec().layers.push_back({{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention,
                                          b.StreamNorm(layer, "post_attention_norm", dims)),
                                ffn}});
  }
}

void BuildMuseGlimmer(SpecBuilder& b) {
  constexpr float kPostEpsilon = 1e-8f;  // the norms after the blocks
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  b.spec().input_norm = PlainRmsNorm(dims.d_model, dims.epsilon);
  b.spec().logit_scale = static_cast<float>(b.Float("logit_scale", -1e9, 1e9));
  b.spec().logit_softcap = static_cast<float>(b.FloatOr("final_logit_softcapping", 0, 0, 1e9));
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kAdjacent, dims);
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  const int rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, kTrinityPeriod);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.norms = HeadNorms::kAlways;
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? rope : -1;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.gate =
        b.Matrix(LayerName(layer, "attn_gate"), dims.d_model, shape.n_heads * shape.v_dim);
    const auto post = [&](std::string_view name) {
      Norm norm = b.StreamNorm(layer, name, dims);
      norm.epsilon = kPostEpsilon;
      return norm;
    };
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention, post("post_attention_norm")),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims), b.MakeFfn(layer, dims, dims.n_ff[layer]),
                    post("post_ffw_norm"))}});
  }
}

}  // namespace weft
