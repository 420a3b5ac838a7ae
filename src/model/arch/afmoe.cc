// Trinity (AFMoE): scaled embeddings, norms around both blocks, a gate on the values that
// attention gives, sigmoid routing. Every fourth layer sees all and has no positions.
#include <cmath>

#include "model/arch/architectures.h"

namespace weft {

void BuildAfmoe(SpecBuilder& b) {
  constexpr int64_t kPeriod = 4;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  const std::vector<bool> local = window > 0 ? b.ReadWindowPattern(dims.n_layers, kPeriod)
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

}  // namespace weft
