// PLaMo 3: q, k and v in one matrix, gate and up in one matrix, norms around both blocks; layers
// that see a window have a rope of their own.
#include "model/arch/architectures.h"

namespace weft {

void BuildPlamo3(SpecBuilder& b) {
  constexpr int64_t kPeriod = 8;
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int global_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  const int64_t window = b.IntOr("attention.sliding_window", 0, 0, SpecBuilder::kMaxContext);
  std::vector<bool> local(dims.n_layers, false);
  int local_rope = -1;
  if (window > 0) {
    local = b.ReadWindowPattern(dims.n_layers, kPeriod);
    rope_shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
    local_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  }
  // Their names have no ".weight".
  const auto post_norm = [&](int64_t layer, std::string_view name) {
    Norm norm = PlainRmsNorm(dims.d_model, dims.epsilon);
    norm.weight = b.Vector(LayerName(layer, name), dims.d_model);
    return norm;
  };
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.norms = HeadNorms::kAlways;
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? local_rope : global_rope;
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), b.MakeAttention(layer, dims, shape),
                    post_norm(layer, "post_attention_norm")),
          MakeBlock(b.StreamNorm(layer, "ffn_norm", dims),
                    b.MakeFusedFfn(layer, dims, dims.n_ff[layer]),
                    post_norm(layer, "post_ffw_norm"))}});
  }
}

}  // namespace weft
