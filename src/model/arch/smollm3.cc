// SmolLM 3: a llama whose every fourth layer has no position.
#include "model/arch/architectures.h"

namespace weft {

void BuildSmolLm3(SpecBuilder& b) {
  constexpr int64_t kNoRopeStep = 4;  // no file says it
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims), b.ReadRopeScaling(), {}));
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = (layer + 1) % kNoRopeStep == 0 ? -1 : rope;
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeAttention(layer, dims, shape)),
          MakeBlock(b.RmsNorm(LayerName(layer, "ffn_norm"), dims.d_model, dims.epsilon),
                    b.MakeFfn(layer, dims, dims.n_ff[layer]))}});
  }
}

}  // namespace weft
