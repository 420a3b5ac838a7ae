// Llama 1 to 3, Mistral, Mixtral and the many models converted as such; InternLM 2 and
// ERNIE 4.5, which differ by name alone; Arcee, whose feed-forward has no gate.
#include "model/arch/architectures.h"

namespace weft {

void BuildLlama(SpecBuilder& b) {
  const bool is_arcee = b.architecture() == "arcee";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  const MixtureOfExperts experts =
      has_experts ? b.ReadMoe({.renormalize = true}) : MixtureOfExperts();

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Op ffn;
    if (has_experts) {
      MixtureOfExperts moe = experts;
      b.AddExperts(layer, dims, dims.n_ff[layer], &moe);
      ffn = moe;
    } else if (is_arcee) {
      ffn = b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], Activation::kReluSquared);
    } else {
      ffn = b.MakeFfn(layer, dims, dims.n_ff[layer]);
    }
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon), ffn)}});
  }
}

}  // namespace weft
