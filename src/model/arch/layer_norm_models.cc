// Models of layer norms: Nemotron, StarCoder 2, Phi 2 and StableLM 2.
#include "model/arch/architectures.h"

namespace weft {

// Nemotron (weights of norms hold their "+ 1" already) and StarCoder 2: a feed-forward without
// gate, part of each head rotates.
void BuildNemotron(SpecBuilder& b) {
  const Activation activation =
      b.architecture() == "nemotron" ? Activation::kReluSquared : Activation::kGeluTanh;
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims),
                    b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], activation))}});
  }
}

// Attention and feed-forward read one norm and are added together.
void BuildPhi2(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Block block =
        MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape));
    block.paths.push_back(
        {Norm(), b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], Activation::kGeluTanh),
         Norm()});
    b.spec().layers.push_back({{std::move(block)}});
  }
}

// A file without ffn_norm means one norm for both, as in Phi 2; the larger models norm each head.
void BuildStableLm(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    const std::string q_norm = LayerName(layer, "attn_q_norm"),
                      k_norm = LayerName(layer, "attn_k_norm");
    if (b.HasTensor(q_norm + ".weight")) {
      attention.q_norm = b.HeadLayerNorm(q_norm, shape.k_dim, shape.n_heads, dims.epsilon);
    }
    if (b.HasTensor(k_norm + ".weight")) {
      attention.k_norm = b.HeadLayerNorm(k_norm, shape.k_dim, shape.n_kv_heads, dims.epsilon);
    }
    Layer out;
    out.blocks.push_back(MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention));
    const DenseFfn ffn = b.MakeFfn(layer, dims, dims.n_ff[layer]);
    if (b.HasTensor(LayerName(layer, "ffn_norm.weight"))) {
      out.blocks.push_back(MakeBlock(b.StreamNorm(layer, "ffn_norm", dims), ffn));
    } else {
      out.blocks[0].paths.push_back({Norm(), ffn, Norm()});
    }
    b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
