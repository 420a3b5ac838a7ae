// Apertus: a feed-forward without gate, whose activation has numbers of its own in each layer.
#include <cmath>

#include "model/arch/architectures.h"

namespace weft {

void BuildApertus(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  // These keys have no architecture before them. Files hold what softplus is taken of.
  const auto read = [&](std::string_view key) {
    return b.PlainFloats(key, dims.n_layers, -1e6, 1e6);
  };
  const std::vector<float> rise = read("xielu.alpha_p"), fall = read("xielu.alpha_n"),
                           slope = read("xielu.beta"), limit = read("xielu.eps");
  const auto softplus = [](float x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    shape.norms = HeadNorms::kAlways;
    DenseFfn ffn = b.MakeFfnWithoutGate(layer, dims, dims.n_ff[layer], Activation::kXielu);
    ffn.numbers.rise = softplus(rise[layer]);
    ffn.numbers.fall = slope[layer] + softplus(fall[layer]);
    ffn.numbers.slope = slope[layer];
    ffn.numbers.limit = limit[layer];
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims), ffn)}});
  }
}

}  // namespace weft
