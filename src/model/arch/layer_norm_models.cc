// Models of layer norms: Nemotron, StarCoder 2, CodeShell, Jais 2; Phi 2; StableLM 2, Orion; OLMo;
// GPT-NeoX; Falcon.
#include "model/arch/architectures.h"

namespace weft {

// Nemotron (weights of norms hold their "+ 1" already), Jais 2, StarCoder 2 and CodeShell: a
// feed-forward without gate, part of each head may rotate.
void BuildNemotron(SpecBuilder& b) {
  const bool squares = b.architecture() == "nemotron" || b.architecture() == "jais2";
  const Activation activation = squares ? Activation::kReluSquared : Activation::kGeluTanh;
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

// StableLM 2 and Orion. A file without ffn_norm means one norm for both, as in Phi 2; the larger
// models of StableLM norm each head.
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

// Norms without weights. Some of its models clamp queries, keys and values, which is not known
// here.
void BuildOlmo(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  if (b.FloatOr("attention.clamp_kqv", 0, 0, 1e9) > 0) {
    b.Fail(Unimplemented("OLMo models that clamp keys (attention.clamp_kqv) are not supported"));
  }
  Norm norm = PlainRmsNorm(dims.d_model, dims.epsilon);
  norm.kind = NormKind::kLayer;
  b.ReadEndsWithNorm(dims, norm);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    b.spec().layers.push_back({{MakeBlock(norm, b.MakeAttention(layer, dims, shape)),
                                MakeBlock(norm, b.MakeFfn(layer, dims, dims.n_ff[layer]))}});
  }
}

// GPT-NeoX and Pythia: attention and feed-forward have a norm each, and most files add both to the
// same stream.
void BuildGptNeoX(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  b.ReadEnds(dims);
  const bool is_parallel = b.BoolOr("use_parallel_residual", true);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    const Norm attn_norm = b.StreamNorm(layer, "attn_norm", dims),
               ffn_norm = b.StreamNorm(layer, "ffn_norm", dims);
    const Attention attention = b.MakeAttention(layer, dims, shape);
    const DenseFfn ffn = b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], Activation::kGeluTanh);
    if (!is_parallel) {
      b.spec().layers.push_back({{MakeBlock(attn_norm, attention), MakeBlock(ffn_norm, ffn)}});
      continue;
    }
    Block block;
    block.paths.push_back({attn_norm, attention, Norm()});
    block.paths.push_back({ffn_norm, ffn, Norm()});
    b.spec().layers.push_back({{std::move(block)}});
  }
}

// Falcon 7B, and 40B with a norm of its own for attention.
void BuildFalcon(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kAlways, NormKind::kLayer);
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    const Norm norm = b.StreamNorm(layer, "attn_norm", dims);
    const Norm own =
        b.OptionalLayerNorm(LayerName(layer, "attn_norm_2"), dims.d_model, dims.epsilon);
    Block block;
    block.paths.push_back({own ? own : norm, b.MakeAttention(layer, dims, shape), Norm()});
    block.paths.push_back(
        {norm, b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], Activation::kGeluTanh), Norm()});
    b.spec().layers.push_back({{std::move(block)}});
  }
}

}  // namespace weft
