// Qwen 2 and 2.5 (biases on q, k, v), Qwen 3 (norms of each head's q and k) and
// Seed-OSS, a Qwen 2 that calls the norm before its feed-forward by another name. Qwen 2 VL and 3
// VL, too: their ropes rotate a picture by time, row and column, and 3 VL's first layers add to it.
// The first Qwen, whose feed-forward is half as wide as its files say, EXAONE 3 and openPangu
// Embedded (biases after attention as well) are built alike.
#include "model/arch/architectures.h"

namespace weft {

void BuildQwen(SpecBuilder& b) {
  const bool has_head_norms = b.architecture() == "qwen3" || b.architecture() == "qwen3vl";
  const HeadNorms norms = has_head_norms ? HeadNorms::kAlways : HeadNorms::kNone;
  const std::string_view ffn_norm =
      b.architecture() == "seed_oss" ? "post_attention_norm" : "ffn_norm";
  const int64_t ffn_parts = b.architecture() == "qwen" ? 2 : 1;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  Rope turns = MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(),
                        b.ReadRopeDivisors(dims));
  b.ReadRopeAxes(/*interleaved=*/b.architecture() == "qwen3vl", &turns);
  const int rope = b.AddRope(turns);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = norms;
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.RmsNorm(LayerName(layer, ffn_norm), dims.d_model, dims.epsilon),
                    b.MakeFfn(layer, dims, dims.n_ff[layer] / ffn_parts))}});
  }
  if (b.architecture() == "qwen3vl") b.ReadRowParts();
}

}  // namespace weft
