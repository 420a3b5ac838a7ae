// Mixtures of experts over plain attention: dots.llm1 and Ling/Ring 2 (bailingmoe2), which norm
// each head; ERNIE 4.5 with experts; MiniMax M2, which norms all heads at once.
#include "model/arch/architectures.h"

namespace weft {
namespace {

void AddMoeLayer(SpecBuilder& b, const Dims& dims, int64_t layer, Attention attention,
                 const ExpertLayers& experts) {
  Block ffn;
  ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
  b.AddFfnPaths(layer, dims, experts, &ffn);
  b.spec().layers.push_back(
      {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), std::move(attention)), ffn}});
}

int ReadMoeRope(SpecBuilder& b, const Dims& dims, RopePairs pairs) {
  return b.AddRope(MakeRope(b.ReadRopeShape(pairs, dims), b.ReadRopeScaling(), {}));
}

}  // namespace

void BuildDots1(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = ReadMoeRope(b, dims, RopePairs::kHalves);
  ExpertLayers experts = b.ReadExpertLayers(dims, {});
  const int64_t n_ff = b.ok() ? experts.n_ff[dims.n_layers - 1] : 0;
  const int64_t n_ff_shared = b.architecture() == "bailingmoe2"
                                  ? b.IntOr("expert_shared_feed_forward_length", n_ff, 0)
                                  : n_ff;
  experts.n_ff_shared = n_ff_shared * b.IntOr("expert_shared_count", 0, 0, 1024);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = HeadNorms::kAlways;
    AddMoeLayer(b, dims, layer, b.MakeAttention(layer, dims, shape), experts);
  }
}

void BuildErnieMoe(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = ReadMoeRope(b, dims, RopePairs::kAdjacent);
  ExpertLayers experts = b.ReadExpertLayers(dims, {.renormalize = true});
  experts.n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);
  if (b.IntOr("interleave_moe_layer_step", 1, 1) != 1) {
    b.FailKey("interleave_moe_layer_step",
              "is not 1: layers without experts between those with "
              "some are not supported");
  }
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    AddMoeLayer(b, dims, layer, b.MakeAttention(layer, dims, shape), experts);
  }
}

void BuildMiniMaxM2(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = ReadMoeRope(b, dims, RopePairs::kHalves);
  ExpertLayers experts = b.ReadExpertLayers(dims, {.renormalize = true});
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.q_norm =
        b.RmsNorm(LayerName(layer, "attn_q_norm"), shape.n_heads * shape.k_dim, dims.epsilon);
    attention.k_norm =
        b.RmsNorm(LayerName(layer, "attn_k_norm"), shape.n_kv_heads * shape.k_dim, dims.epsilon);
    AddMoeLayer(b, dims, layer, attention, experts);
  }
}

}  // namespace weft
