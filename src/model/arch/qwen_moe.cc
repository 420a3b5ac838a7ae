// Qwen 1.5 and 2 MoE (a shared expert with a gate of its own) and Qwen 3 MoE.
#include "model/arch/architectures.h"

namespace weft {

void BuildQwenMoe(SpecBuilder& b) {
  const bool is_qwen3 = b.architecture() == "qwen3moe";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const MixtureOfExperts experts = b.ReadMoe({.renormalize = is_qwen3});
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    if (is_qwen3) b.AddHeadNorms(layer, dims, &attention);

    Block ffn;
    ffn.pre = b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon);
    MixtureOfExperts moe = experts;
    const int64_t n_ff = dims.n_ff[layer];
    b.AddExperts(layer, dims, n_ff_expert > 0 ? n_ff_expert : n_ff / moe.n_used, &moe);
    ffn.paths.push_back({.pre = {}, .op = moe, .post = {}});
    if (!is_qwen3) {
      DenseFfn shared =
          b.MakeFfn(layer, dims, n_ff_shared > 0 ? n_ff_shared : n_ff, Activation::kSilu, "_shexp");
      shared.output_gate = b.Matrix(LayerName(layer, "ffn_gate_inp_shexp"), dims.d_model, 1);
      ffn.paths.push_back({.pre = {}, .op = shared, .post = {}});
    }
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    attention),
          ffn}});
  }
}

}  // namespace weft
