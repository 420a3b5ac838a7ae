// EXAONE 4, whose norms come after the blocks alone, and its mixtures of experts, whose norms
// come before them. Where layers see a window, those that see all have no positions.
#include "model/arch/architectures.h"

namespace weft {
namespace {

constexpr int64_t kExaonePeriod = 4;
// The 32B model alone has windows; files do not say so otherwise.
constexpr int64_t kExaoneWindowedLayers = 64;
constexpr int64_t kExaoneWindow = 4096;

}  // namespace

void BuildExaone4(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  const bool has_windows = dims.n_layers == kExaoneWindowedLayers;
  const int64_t window =
      b.IntOr("attention.sliding_window", kExaoneWindow, 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = has_windows ? b.ReadWindowPattern(dims.n_layers, kExaonePeriod)
                                              : std::vector<bool>(dims.n_layers, false);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.norms = HeadNorms::kAlways;
    shape.window = local[layer] ? window : 0;
    shape.rope = has_windows && !local[layer] ? -1 : rope;
    b.spec().layers.push_back({{MakeBlock(Norm(), b.MakeAttention(layer, dims, shape),
                                          b.StreamNorm(layer, "post_attention_norm", dims)),
                                MakeBlock(Norm(), b.MakeFfn(layer, dims, dims.n_ff[layer]),
                                          b.StreamNorm(layer, "post_ffw_norm", dims))}});
  }
}

void BuildExaoneMoe(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, kExaonePeriod);
  ExpertLayers experts = b.ReadExpertLayers(dims, {});
  experts.n_ff_shared =
      b.IntOr("expert_shared_feed_forward_length", b.ok() ? experts.n_ff[dims.n_layers - 1] : 0, 1);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.norms = HeadNorms::kAlways;
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? rope : -1;
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, experts, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          ffn}});
  }
}

}  // namespace weft
