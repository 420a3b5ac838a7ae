// SmallThinker: the router reads the stream before attention does; experts have ReLU. With
// windows, every fourth layer, the first included, sees all and has no positions.
#include "model/arch/architectures.h"

namespace weft {

void BuildSmallThinker(SpecBuilder& b) {
  constexpr int64_t kPeriod = 4;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  ExpertLayers experts =
      b.ReadExpertLayers(dims, {.renormalize = true, .activation = Activation::kRelu});
  experts.experts.routes_kept = true;
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  const std::vector<bool> local =
      window > 0 ? b.ReadWindowPattern(dims.n_layers, kPeriod, /*first_sees_all=*/true)
                 : std::vector<bool>(dims.n_layers, false);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = window > 0 && !local[layer] ? -1 : rope;
    Block attention =
        MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape));
    attention.keeps_input = true;
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    b.spec().layers.push_back({{std::move(attention), std::move(ffn)}});
  }
}

}  // namespace weft
