// LFM 2, dense and with experts: layers without key heads have a short convolution in
// place of attention.
#include "model/arch/architectures.h"

namespace weft {
namespace {

ShortConvolution BuildConvolution(SpecBuilder& b, const Dims& dims, int64_t n_taps, int64_t layer) {
  ShortConvolution op;
  op.in = b.Matrix(LayerName(layer, "shortconv.in_proj"), dims.d_model, 3 * dims.d_model);
  op.convolution = b.MakeConvolution(LayerName(layer, "shortconv.conv"), dims.d_model, n_taps);
  op.out = b.Matrix(LayerName(layer, "shortconv.out_proj"), dims.d_model, dims.d_model);
  return op;
}

}  // namespace

void BuildLfm2(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  // The name is a mistake of the first converter that has stayed.
  b.ReadEnds(dims, "token_embd_norm");
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const int64_t n_taps = b.Int("shortconv.l_cache", 2, SpecBuilder::kMaxTaps);
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  const bool has_experts = b.architecture() == "lfm2moe";
  const MixtureOfExperts experts =
      has_experts ? b.ReadMoe({.weights = RouterWeights::kSigmoid, .renormalize = true})
                  : MixtureOfExperts();
  const int64_t n_ff_expert = has_experts ? b.Int("expert_feed_forward_length", 1) : 0;
  const int64_t n_dense = has_experts ? b.IntOr("leading_dense_block_count", 0, 0) : dims.n_layers;

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Op mixer;
    if (dims.n_kv_heads[layer] == 0) {
      mixer = BuildConvolution(b, dims, n_taps, layer);
    } else {
      AttentionShape shape = b.ShapeOf(dims, layer);
      shape.rope = rope;
      shape.window = window;
      shape.norms = HeadNorms::kAlways;
      mixer = b.MakeAttention(layer, dims, shape);
    }
    Block ffn;
    ffn.pre = b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon);
    b.AddDenseOrExperts(layer, dims, n_dense, n_ff_expert, 0, experts, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon), mixer),
          ffn}});
  }
}

}  // namespace weft
