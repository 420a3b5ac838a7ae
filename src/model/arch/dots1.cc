// Mixtures of experts over plain attention: DeepSeek 1 and Ling 1 (bailingmoe), without norms of
// heads; dots.llm1 and Ling/Ring 2 (bailingmoe2), which norm each head; ERNIE 4.5 with experts;
// MiniMax M2, which norms all heads at once, and M3.
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

void BuildDeepSeek1(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = ReadMoeRope(b, dims, RopePairs::kAdjacent);
  ExpertLayers experts = b.ReadExpertLayers(dims, {});
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);
  experts.n_ff_shared = b.ok() ? n_shared * experts.n_ff[dims.n_layers - 1] : 0;
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
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

// MiniMax M3: norms of each head, clamped activations, a shared expert; layers with experts attend
// to the best blocks of keys.
void BuildMiniMaxM3(SpecBuilder& b) {
  constexpr float kLimit = 7;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = ReadMoeRope(b, dims, RopePairs::kHalves);
  ExpertLayers experts = b.ReadExpertLayers(dims, {.activation = Activation::kClampedSwiglu});
  const int64_t n_shared = b.IntOr("expert_shared_count", 0, 0, 1024);
  experts.n_ff_shared = b.ok() ? n_shared * experts.n_ff[dims.n_layers - 1] : 0;
  experts.experts.numbers.limit = kLimit;
  KeyChoice choice = {.kind = KeyChoice::Kind::kBlocks, .rope = rope};
  choice.count = b.Int("attention.indexer.top_k", 1);
  choice.block = b.Int("attention.indexer.block_size", 1);
  choice.n_local = b.Int("attention.indexer.local_blocks", 0);
  choice.n_heads = static_cast<int>(b.Int("attention.indexer.head_count", 1, 1 << 16));
  choice.dim = b.Int("attention.indexer.key_length", dims.n_rot, SpecBuilder::kMaxHeadDim);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    if (layer >= experts.n_dense) {
      const auto name = [&](std::string_view part) { return LayerName(layer, part); };
      if (choice.n_heads != shape.n_kv_heads) {
        b.FailKey("attention.indexer.head_count", "differs from attention.head_count_kv");
      }
      attention.choice = choice;
      attention.choice.kv_layer = b.AddKvLayer(0, 1, choice.dim, 0);
      attention.index_q =
          b.Matrix(name("indexer.q_proj"), dims.d_model, choice.n_heads * choice.dim);
      attention.index_k = b.Matrix(name("indexer.k_proj"), dims.d_model, choice.dim);
      attention.index_q_norm = b.RmsNorm(name("indexer.q_norm"), choice.dim, dims.epsilon);
      attention.index_k_norm = b.RmsNorm(name("indexer.k_norm"), choice.dim, dims.epsilon);
    }
    AddMoeLayer(b, dims, layer, attention, experts);
    for (Path& path : b.spec().layers.back().blocks[1].paths) {
      if (auto* dense = std::get_if<DenseFfn>(&path.op)) {
        dense->activation = Activation::kClampedSwiglu;
        dense->numbers.limit = kLimit;
      }
    }
  }
}

}  // namespace weft
