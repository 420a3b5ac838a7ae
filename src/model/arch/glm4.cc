// GLM 4 and GLM 4.5 to 4.7; before them ChatGLM 3 and the first GLM 4 (chatglm).
//
// GLM 4.5 to 4.7: first layers dense, then sigmoid routing with a bias for choosing and
// shared experts; part of each head rotates.
#include "model/arch/architectures.h"

namespace weft {

void BuildGlm4Moe(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const MixtureOfExperts experts = b.ReadMoe({.weights = RouterWeights::kSigmoid});
  const int64_t n_dense = b.IntOr("leading_dense_block_count", 0, 0);
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);

  const auto add_layer = [&](int64_t layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = HeadNorms::kIfAny;

    Block ffn;
    // Named after its place behind attention, it is the norm before the experts.
    ffn.pre = b.RmsNorm(LayerName(layer, "post_attention_norm"), dims.d_model, dims.epsilon);
    b.AddDenseOrExperts(layer, dims, n_dense, n_ff_expert, n_shared, experts, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          ffn}});
  };
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) add_layer(layer);
  b.ReadPredictionHead(dims, /*before_output_norm=*/true, add_layer);
}

// GLM 4 (9B, 32B, Z1): norms around both blocks, gate and up in one matrix, part of
// each head rotates.
void BuildGlm4(SpecBuilder& b) {
  if (b.HasKey("rope.dimension_sections")) {
    b.Fail(Unimplemented("GLM 4's models for images (rope.dimension_sections) are not supported"));
  }
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) {
      return b.RmsNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    b.spec().layers.push_back(
        {{MakeBlock(norm("attn_norm"), b.MakeAttention(layer, dims, shape),
                    norm("post_attention_norm")),
          MakeBlock(norm("ffn_norm"), b.MakeFusedFfn(layer, dims, dims.n_ff[layer]),
                    norm("post_ffw_norm"))}});
  }
}

// ChatGLM 3, GLM 4 9B of 2024, GLM Edge: gate and up in one matrix, part of each head rotates.
void BuildChatGlm(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims),
                    b.MakeFusedFfn(layer, dims, dims.n_ff[layer]))}});
  }
}

}  // namespace weft
