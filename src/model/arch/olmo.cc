// OLMo 2 and 3, and OLMoE.
//
// OLMo 2 and 3: norms only after the blocks, q and k normalised over all heads at
// once; OLMo 3 adds layers that see a window, which were never stretched.
#include "model/arch/architectures.h"

namespace weft {

void BuildOlmo2(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  std::vector<bool> local(dims.n_layers, false);
  int local_rope = -1;
  if (window > 0) {
    local = b.ReadWindowPattern(dims.n_layers, 4);
    local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  }

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name, int64_t width) {
      return b.RmsNorm(LayerName(layer, name), width, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? local_rope : rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.q_norm = norm("attn_q_norm", shape.n_heads * shape.k_dim);
    attention.k_norm = norm("attn_k_norm", shape.n_kv_heads * shape.k_dim);
    b.spec().layers.push_back(
        {{MakeBlock(Norm(), attention, norm("post_attention_norm", dims.d_model)),
          MakeBlock(Norm(), b.MakeFfn(layer, dims, dims.n_ff[layer]),
                    norm("post_ffw_norm", dims.d_model))}});
  }
}

// OLMoE: norms before the blocks, q and k normalised over all heads at once, experts.
void BuildOlmoe(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const MixtureOfExperts experts = b.ReadMoe({});

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name, int64_t width) {
      return b.RmsNorm(LayerName(layer, name), width, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.q_norm = norm("attn_q_norm", shape.n_heads * shape.k_dim);
    attention.k_norm = norm("attn_k_norm", shape.n_kv_heads * shape.k_dim);
    MixtureOfExperts moe = experts;
    b.AddExperts(layer, dims, dims.n_ff[layer], &moe);
    b.spec().layers.push_back({{MakeBlock(norm("attn_norm", dims.d_model), attention),
                                MakeBlock(norm("ffn_norm", dims.d_model), moe)}});
  }
}

}  // namespace weft
