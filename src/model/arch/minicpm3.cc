// MiniCPM 3: latent attention whose keys and values are stored as the heads have them, and scales
// that no file says.
#include <cmath>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

UnfoldedLatentAttention MakeUnfolded(SpecBuilder& b, const Dims& dims, int64_t layer, int rope) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  const int64_t n_heads = dims.n_heads[layer];
  const int64_t q_rank = b.Int("attention.q_lora_rank", 1);
  UnfoldedLatentAttention op;
  op.n_heads = static_cast<int>(n_heads);
  op.latent_dim = b.Int("attention.kv_lora_rank", 1);
  op.rope_dim = dims.n_rot;
  op.nope_dim = dims.k_dim - dims.n_rot;
  op.v_dim = dims.v_dim;
  op.rope = rope;
  op.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dims.k_dim)));
  op.q_a = b.Matrix(name("attn_q_a"), dims.d_model, q_rank);
  op.q_a_norm = b.RmsNorm(name("attn_q_a_norm"), q_rank, dims.epsilon);
  op.q_b = b.Matrix(name("attn_q_b"), q_rank, n_heads * dims.k_dim);
  op.kv_a = b.Matrix(name("attn_kv_a_mqa"), dims.d_model, op.latent_dim + op.rope_dim);
  op.kv_norm = b.RmsNorm(name("attn_kv_a_norm"), op.latent_dim, dims.epsilon);
  op.kv_b = b.Matrix(name("attn_kv_b"), op.latent_dim, n_heads * (op.nope_dim + op.v_dim));
  op.out = b.Matrix(name("attn_output"), n_heads * op.v_dim, dims.d_model);
  op.kv_layer = b.AddKvLayer(0, n_heads, dims.k_dim, dims.v_dim);
  return op;
}

}  // namespace

void BuildMiniCpm3(SpecBuilder& b) {
  constexpr float kEmbeddingScale = 12, kDepthScale = 1.4f, kBaseWidth = 256;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  b.spec().embedding_scale = kEmbeddingScale;
  b.spec().logit_scale = kBaseWidth / static_cast<float>(dims.d_model);
  const float residual_scale = kDepthScale / std::sqrt(static_cast<float>(dims.n_layers));
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  if (b.ok() && dims.n_rot >= dims.k_dim) {
    b.FailKey("rope.dimension_count", StrCat("is ", dims.n_rot, ", which leaves nothing of the ",
                                             dims.k_dim, " values of a key"));
  }
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Block attention =
        MakeBlock(b.StreamNorm(layer, "attn_norm", dims), MakeUnfolded(b, dims, layer, rope));
    Block ffn =
        MakeBlock(b.StreamNorm(layer, "ffn_norm", dims), b.MakeFfn(layer, dims, dims.n_ff[layer]));
    attention.residual_scale = ffn.residual_scale = residual_scale;
    b.spec().layers.push_back({{std::move(attention), std::move(ffn)}});
  }
}

}  // namespace weft
