// Qwen 1.5 and 2 MoE (a shared expert with a gate of its own), Qwen 3 MoE and Qwen 3 VL MoE, whose
// rope rotates a picture by time, row and column, and whose first layers add to it.
#include "model/arch/architectures.h"

namespace weft {

void BuildQwenMoe(SpecBuilder& b) {
  const bool is_qwen3 = b.architecture() != "qwen2moe";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  Rope turns = MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {});
  if (b.architecture() == "qwen3vlmoe") b.ReadRopeAxes(/*interleaved=*/true, &turns);
  const int rope = b.AddRope(turns);
  const MixtureOfExperts experts = b.ReadMoe({.renormalize = is_qwen3});
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    if (is_qwen3) shape.norms = HeadNorms::kAlways;

    Block ffn;
    ffn.pre = b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon);
    const int64_t n_ff = dims.n_ff[layer];
    const int64_t n_ff_own = n_ff_expert > 0 ? n_ff_expert : n_ff / experts.n_used;
    if (is_qwen3) {
      MixtureOfExperts moe = experts;
      b.AddExperts(layer, dims, n_ff_own, &moe);
      ffn.paths.push_back({.pre = {}, .op = moe, .post = {}});
    } else {
      b.AddExpertsBesideGated(layer, dims, n_ff_own, n_ff_shared > 0 ? n_ff_shared : n_ff, experts,
                              &ffn);
    }
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          ffn}});
  }
  if (b.architecture() == "qwen3vlmoe") b.ReadRowParts();
}

}  // namespace weft
