// BERT and those that came after it: encoders, whose tokens see those that follow.
//
// bert: learned positions. nomic-bert: ropes and a gate. jina-bert-v2: scores that fall with
// the distance, and a gate. In all three norms stand behind the blocks, on the stream. They
// have no last norm.
#include <cmath>
#include <string>

#include "model/arch/architectures.h"

namespace weft {
namespace {

// A block after which the stream is normalised.
Block PostNormed(Op op, Norm norm) {
  Block block = MakeBlock(Norm(), std::move(op));
  block.stream_norm = norm;
  return block;
}

// How fast the scores of each head fall with the distance: by powers of two from head to
// head, with those of twice as many heads in between where their number is no power of two.
std::vector<float> AlibiSlopes(int64_t n_heads) {
  constexpr double kMaxBias = 8;
  const double whole = std::exp2(std::floor(std::log2(static_cast<double>(n_heads))));
  std::vector<float> slopes;
  for (int64_t h = 0; h < n_heads; ++h) {
    const auto head = static_cast<double>(h);
    const double power = head < whole ? kMaxBias / whole * (head + 1)
                                      : kMaxBias / 2 / whole * (2 * (head - whole) + 1);
    slopes.push_back(static_cast<float>(std::exp2(-power)));
  }
  return slopes;
}

DenseFfn ReadFfn(SpecBuilder& b, const Dims& dims, int64_t layer) {
  const int64_t n_ff = dims.n_ff[layer];
  if (b.architecture() == "nomic-bert") return b.MakeFfn(layer, dims, n_ff);
  if (b.architecture() == "bert") {
    return b.MakeFfnWithoutGate(layer, dims, n_ff, Activation::kGeluErf);
  }
  if (b.HasTensor(LayerName(layer, "ffn_gate.weight"))) {
    return b.MakeFfn(layer, dims, n_ff, Activation::kGeluErf);
  }
  DenseFfn ffn = b.MakeFusedFfn(layer, dims, n_ff);
  ffn.activation = Activation::kGeluErf;
  return ffn;
}

}  // namespace

void BuildBert(SpecBuilder& b) {
  const bool is_bert = b.architecture() == "bert";
  const bool is_jina = b.architecture() == "jina-bert-v2";
  const Dims dims = b.ReadEncoderDims(NormKind::kLayer);
  b.ReadEncoderInput(dims);
  if (is_bert && b.ok() && !b.spec().positions) {
    b.FailTensor("position_embd.weight", "is missing");
  }
  const int rope =
      b.architecture() == "nomic-bert"
          ? b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}))
          : -1;
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) {
      return b.LayerNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    BidirectionalAttention attention = b.MakeBidirectionalAttention(layer, dims, shape);
    if (is_jina) {
      attention.slopes = AlibiSlopes(shape.n_heads);
      attention.q_norm = b.OptionalLayerNorm(LayerName(layer, "attn_q_norm"),
                                             shape.n_heads * shape.k_dim, dims.epsilon);
      attention.k_norm = b.OptionalLayerNorm(LayerName(layer, "attn_k_norm"),
                                             shape.n_kv_heads * shape.k_dim, dims.epsilon);
    }
    b.spec().layers.push_back({{PostNormed(std::move(attention), norm("attn_output_norm")),
                                PostNormed(ReadFfn(b, dims, layer), norm("layer_output_norm"))}});
  }
}

// ModernBERT: norms before the blocks, ropes, gates, and two layers of three that see a
// window around each token.
void BuildModernBert(SpecBuilder& b) {
  constexpr int64_t kPeriod = 3;  // the first layer of three sees everything
  const Dims dims = b.ReadEncoderDims(NormKind::kLayer);
  b.ReadEncoderInput(dims);
  b.spec().output_norm = b.LayerNorm("output_norm", dims.d_model, dims.epsilon);
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  const int local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  const std::vector<bool> windowed =
      b.ReadWindowPattern(dims.n_layers, kPeriod, /*first_sees_all=*/true);
  const Activation activation =
      b.StringOr("hidden_activation", "gelu") == "silu" ? Activation::kSilu : Activation::kGeluErf;

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const bool local = window > 0 && windowed[layer];
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local ? window : 0;
    shape.rope = local ? local_rope : rope;
    DenseFfn ffn = b.MakeFusedFfn(layer, dims, dims.n_ff[layer]);
    ffn.activation = activation;
    b.spec().layers.push_back(
        {{MakeBlock(b.OptionalLayerNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeBidirectionalAttention(layer, dims, shape)),
          MakeBlock(b.LayerNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon), ffn)}});
  }
}

// EmbeddingGemma: Gemma 3 whose tokens see those that follow, in windows around each token
// but for every sixth layer.
void BuildGemmaEmbedding(SpecBuilder& b) {
  const Dims dims = b.ReadEncoderDims(NormKind::kRms);
  b.ReadEncoderInput(dims);
  b.Ignore("output.weight");
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  b.spec().output_norm = b.RmsNorm("output_norm", dims.d_model, dims.epsilon);
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int rope = b.AddRope(MakeRope(rope_shape, b.ReadRopeScaling(), {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
  const int local_rope = b.AddRope(MakeRope(rope_shape, RopeScaling(), {}));
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, 6);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) {
      return b.RmsNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? local_rope : rope;
    shape.norms = HeadNorms::kAlways;
    const DenseFfn ffn = b.MakeFfn(layer, dims, dims.n_ff[layer], Activation::kGeluTanh);
    b.spec().layers.push_back(
        {{MakeBlock(norm("attn_norm"), b.MakeBidirectionalAttention(layer, dims, shape),
                    norm("post_attention_norm")),
          MakeBlock(norm("ffn_norm"), ffn, norm("post_ffw_norm"))}});
  }
}

}  // namespace weft
