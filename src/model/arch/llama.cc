// Llama 1 to 3, Mistral, Mixtral and the many models converted as such; InternLM 2 and
// ERNIE 4.5, which differ by name alone; Arcee, whose feed-forward has no gate; Ministral 3 and
// Devstral 2 (mistral3), whose queries grow with their position.
#include "model/arch/architectures.h"

namespace weft {

void BuildLlama(SpecBuilder& b) {
  const bool is_arcee = b.architecture() == "arcee";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  RopeScaling scaling = b.ReadRopeScaling();
  QueryTemperature temperature;
  if (b.architecture() == "mistral3") {
    // Here the key is mscale_all_dim itself, not a tenth of it.
    scaling.magnitude_multiplier *= 0.1;
    temperature.scale = b.ScaleOr("attention.temperature_scale", 0);
    temperature.length = static_cast<int64_t>(scaling.original_context);
  }
  const int rope = b.AddRope(
      MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), scaling, b.ReadRopeDivisors(dims)));
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  const MixtureOfExperts experts =
      has_experts ? b.ReadMoe({.renormalize = true}) : MixtureOfExperts();

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.temperature = temperature;
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
                    attention),
          MakeBlock(b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon), ffn)}});
  }
}

}  // namespace weft
