// Llama 1 to 3, Mistral, Mixtral and the many models converted as such; InternLM 2, ERNIE 4.5,
// XVERSE and Baichuan 7B, which differ by name alone; Arcee, whose feed-forward has no gate;
// Ministral 3 and Devstral 2 (mistral3), whose queries grow with their position; Maincoder, which
// norms rotated heads. Then Llama Nemotron (deci), whose layers lack what pruning took away.
#include "model/arch/architectures.h"

namespace weft {
namespace {

// Baichuan 13B has no ropes: its scores fall with the distance. Files differ by their depth alone.
constexpr int64_t kBaichuanLayersWithRopes = 32;

}  // namespace

void BuildLlama(SpecBuilder& b) {
  const bool is_arcee = b.architecture() == "arcee";
  const bool is_maincoder = b.architecture() == "maincoder";
  const Dims dims = b.ReadDims();
  if (b.ok() && b.architecture() == "baichuan" && dims.n_layers > kBaichuanLayersWithRopes) {
    b.Fail(Unimplemented("Baichuan 13B, which has no ropes, is not supported; use Baichuan 7B"));
  }
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
    if (is_maincoder) shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.norms_after_rope = is_maincoder;
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

// A layer without heads has no attention, one without a feed-forward width has none of that.
void BuildDeci(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Layer out;
    if (dims.n_kv_heads[layer] > 0) {
      AttentionShape shape = b.ShapeOf(dims, layer);
      shape.rope = rope;
      out.blocks.push_back(
          MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)));
    } else if (dims.n_heads[layer] > 0) {
      b.Fail(Unimplemented(
          "layers with one matrix instead of attention (Llama Nemotron 51B) are not supported"));
    }
    if (dims.n_ff[layer] > 0) {
      out.blocks.push_back(MakeBlock(b.StreamNorm(layer, "ffn_norm", dims),
                                     b.MakeFfn(layer, dims, dims.n_ff[layer])));
    }
    if (!out.blocks.empty()) b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
