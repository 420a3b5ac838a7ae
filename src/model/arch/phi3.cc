// Phi 3, 3.5 and 4: fused q, k, v; gate and up in one matrix; two sets of rope
// divisors. A sliding window that a file names is not applied: converters fill the
// key wrongly for this family, and the program they were written for ignores it too.
#include "model/arch/architectures.h"

namespace weft {

void BuildPhi3(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon),
                    b.MakeFusedFfn(layer, dims, dims.n_ff[layer]))}});
  }
}

// Phi 3.5 MoE: layer norms (whose epsilon files call that of an RMS norm), biases, and two experts
// that are each weighed among those with near logits.
void BuildPhiMoe(SpecBuilder& b) {
  Dims dims = b.ReadDims();
  dims.norms = NormKind::kLayer;
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  MixtureOfExperts experts = b.ReadMoe({});
  experts.weights = RouterWeights::kSoftmaxOfNear;
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    MixtureOfExperts moe = experts;
    b.AddExperts(layer, dims, dims.n_ff[layer], &moe);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims), moe)}});
  }
}

}  // namespace weft
