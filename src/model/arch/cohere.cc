// Command R, Command R7B and Aya (cohere2), and their mixtures of experts: attention and
// feed-forward read one norm and are added together; logits are scaled. From cohere2 on most
// layers see a window, and the others have no positions.
#include "model/arch/architectures.h"

namespace weft {
namespace {

// A key of the first period: every fourth layer sees all.
constexpr int64_t kCoherePeriod = 4;
// The first Command R with this many layers or more norms each head.
constexpr int64_t kCohereManyLayers = 64;

int ReadCohereEnds(SpecBuilder& b, const Dims& dims) {
  b.ReadEnds(dims);
  b.spec().logit_scale = static_cast<float>(b.Float("logit_scale", -1e9, 1e9));
  return b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));
}

Block OneNormBlock(SpecBuilder& b, const Dims& dims, int64_t layer, Op attention) {
  return MakeBlock(b.StreamNorm(layer, "attn_norm", dims), std::move(attention));
}

}  // namespace

void BuildCommandR(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  const int rope = ReadCohereEnds(b, dims);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    if (dims.n_layers >= kCohereManyLayers) {
      attention.q_norm = b.HeadLayerNorm(LayerName(layer, "attn_q_norm"), shape.k_dim,
                                         shape.n_heads, dims.epsilon);
      attention.k_norm = b.HeadLayerNorm(LayerName(layer, "attn_k_norm"), shape.k_dim,
                                         shape.n_kv_heads, dims.epsilon);
    }
    Block block = OneNormBlock(b, dims, layer, attention);
    block.paths.push_back({Norm(), b.MakeFfn(layer, dims, dims.n_ff[layer]), Norm()});
    b.spec().layers.push_back({{std::move(block)}});
  }
}

void BuildCohere2(SpecBuilder& b) {
  const bool has_experts = b.architecture() == "cohere2moe";
  const bool is_rms = has_experts && b.HasKey("attention.layer_norm_rms_epsilon");
  const Dims dims = b.ReadDims(HeadCounts::kAlways, is_rms ? NormKind::kRms : NormKind::kLayer);
  const int rope = ReadCohereEnds(b, dims);
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, kCoherePeriod);
  ExpertLayers experts;
  if (has_experts) {
    experts = b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid});
    const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);
    const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);
    if (n_shared > 0 && b.ok()) {
      experts.n_ff_shared = n_ff_shared > 0 ? n_ff_shared : n_shared * experts.n_ff[0];
    }
  } else {
    experts.n_dense = dims.n_layers;
  }

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const bool is_dense_lead = has_experts && layer < experts.n_dense;
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] || is_dense_lead ? rope : -1;
    Block block = OneNormBlock(b, dims, layer, b.MakeAttention(layer, dims, shape));
    b.AddFfnPaths(layer, dims, experts, &block);
    // Experts and the shared one are averaged.
    if (block.paths.size() == 3) block.paths[1].scale = block.paths[2].scale = 0.5f;
    b.spec().layers.push_back({{std::move(block)}});
  }
}

}  // namespace weft
