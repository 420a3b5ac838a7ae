// Hunyuan, dense or with experts beside a shared one: q and k are normed after their rotation.
// The base of the rope holds its stretch already.
#include "model/arch/architectures.h"

namespace weft {

void BuildHunyuan(SpecBuilder& b) {
  const bool has_experts = b.architecture() == "hunyuan-moe";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  ExpertLayers experts;
  if (has_experts) {
    experts = b.ReadExpertLayers(dims, {.renormalize = true});
    experts.n_ff_shared = b.Int("expert_shared_feed_forward_length", 1);
  } else {
    experts.n_dense = dims.n_layers;
  }
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.norms_after_rope = true;
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention), ffn}});
  }
}

}  // namespace weft
