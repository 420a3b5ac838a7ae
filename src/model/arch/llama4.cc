// Llama 4: three of four layers rotate and see their own run of 8192 tokens; the fourth has no
// positions, and its queries grow slowly with theirs. Experts see their input times the weight.
#include "model/arch/architectures.h"

namespace weft {

void BuildLlama4(SpecBuilder& b) {
  // No file says these.
  constexpr int64_t kNoRopeStep = 4, kChunk = 8192, kManyExperts = 128;
  constexpr QueryTemperature kTemperature = {.scale = 0.1f, .length = kChunk, .offset = 1};
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope = b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kAdjacent, dims),
                                      b.ReadRopeScaling(), b.ReadRopeDivisors(dims)));
  // A window of 0 means that all layers rotate and see all.
  const bool in_chunks =
      b.IntOr("attention.sliding_window", kChunk, 0, SpecBuilder::kMaxContext) > 0;
  ExpertLayers experts = b.ReadExpertLayers(dims, {.weights = RouterWeights::kSigmoid});
  experts.experts.weighs_inputs = true;
  const int64_t step = b.Int("interleave_moe_layer_step", 1);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const bool rotates = !in_chunks || (layer + 1) % kNoRopeStep != 0;
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rotates ? rope : -1;
    shape.window = in_chunks && rotates ? kChunk : 0;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.chunk = shape.window;
    if (!rotates) attention.temperature = kTemperature;
    if (rotates && experts.experts.n_experts != kManyExperts) {
      attention.q_norm = attention.k_norm = PlainRmsNorm(shape.k_dim, dims.epsilon);
      attention.norms_after_rope = true;
    }
    ExpertLayers own = experts;
    own.n_dense = (layer + 1) % step == 0 ? 0 : dims.n_layers;
    own.n_ff_shared = experts.n_ff[layer];
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, own, &ffn);
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), attention), ffn}});
  }
}

}  // namespace weft
