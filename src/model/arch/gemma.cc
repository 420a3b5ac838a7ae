// Gemma 1, 2 and 3: scaled embeddings, GELU, and from 2 on norms around every block
// and layers that see a window. Norm weights in files already hold the "+ 1".
#include <cmath>

#include "model/arch/architectures.h"

namespace weft {
namespace {

// The 27B models scale by d_model / n_heads, all others by the values of a head; the
// files do not say so, and are told apart by their number of layers.
double ScaledBy(SpecBuilder& b, const Dims& dims) {
  const bool is_27b = (b.architecture() == "gemma2" && dims.n_layers == 46) ||
                      (b.architecture() == "gemma3" && dims.n_layers == 62);
  return static_cast<double>(is_27b ? dims.d_model / dims.n_heads[0] : dims.k_dim);
}

// What layers that see a window have of their own; for the others window 0.
struct Locality {
  std::vector<bool> local;
  int64_t window = 0;
  int global_rope = -1;
  int local_rope = -1;
};

Locality ReadLocality(SpecBuilder& b, const Dims& dims) {
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  Locality locality;
  locality.global_rope = b.AddRope(MakeRope(shape, scaling, {}));
  locality.local.assign(dims.n_layers, false);
  if (b.architecture() == "gemma") return locality;

  const bool is_gemma2 = b.architecture() == "gemma2";
  locality.window =
      b.IntOr("attention.sliding_window", is_gemma2 ? 4096 : 0, 0, SpecBuilder::kMaxContext);
  if (locality.window == 0) return locality;
  locality.local = b.ReadWindowPattern(dims.n_layers, is_gemma2 ? 2 : 6);
  shape.base = b.FloatOr("rope.freq_base_swa", is_gemma2 ? shape.base : 10000, 1.000001, 1e15);
  // Gemma 3 was stretched in its global layers alone.
  locality.local_rope = b.AddRope(MakeRope(shape, is_gemma2 ? scaling : RopeScaling(), {}));
  return locality;
}

}  // namespace

void BuildGemma(SpecBuilder& b) {
  const bool is_gemma2 = b.architecture() == "gemma2";
  const bool post_norms = b.architecture() != "gemma";
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  const float softcap =
      is_gemma2 ? static_cast<float>(b.FloatOr("attn_logit_softcapping", 50, 0, 1e6)) : 0;
  if (post_norms) {
    b.spec().logit_softcap =
        static_cast<float>(b.FloatOr("final_logit_softcapping", is_gemma2 ? 30 : 0, 0, 1e6));
  }
  const Locality locality = ReadLocality(b, dims);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) {
      return b.RmsNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
    };
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = locality.local[layer] ? locality.window : 0;
    shape.rope = locality.local[layer] ? locality.local_rope : locality.global_rope;
    if (b.architecture() == "gemma3") shape.norms = HeadNorms::kAlways;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.scale = static_cast<float>(1 / std::sqrt(ScaledBy(b, dims)));
    attention.softcap = softcap;
    const DenseFfn ffn = b.MakeFfn(layer, dims, dims.n_ff[layer], Activation::kGeluTanh);
    b.spec().layers.push_back(
        {{MakeBlock(norm("attn_norm"), attention,
                    post_norms ? norm("post_attention_norm") : Norm()),
          MakeBlock(norm("ffn_norm"), ffn, post_norms ? norm("post_ffw_norm") : Norm())}});
  }
}

}  // namespace weft
