// gpt-oss: attention sinks, every second layer sees a window, experts with biases and
// a clamped activation, weighted by a softmax over the chosen.
#include "model/arch/architectures.h"

namespace weft {

void BuildGptOss(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const RopeScaling scaling = b.ReadRopeScaling();
  RopeShape rope_shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  const int global_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  rope_shape.base = b.FloatOr("rope.freq_base_swa", rope_shape.base, 1.000001, 1e15);
  const int local_rope = b.AddRope(MakeRope(rope_shape, scaling, {}));
  const int64_t window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  const std::vector<bool> local = b.ReadWindowPattern(dims.n_layers, 2);
  MixtureOfExperts experts = b.ReadMoe(
      {.weights = RouterWeights::kSoftmaxOfChosen, .activation = Activation::kClampedSwiglu});
  experts.numbers.limit = 7;
  const int64_t n_ff_expert = b.Int("expert_feed_forward_length", 1);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.window = local[layer] ? window : 0;
    shape.rope = local[layer] ? local_rope : global_rope;
    Attention attention = b.MakeAttention(layer, dims, shape);
    attention.sinks = b.Vector(LayerName(layer, "attn_sinks.weight"), dims.n_heads[layer]);
    MixtureOfExperts moe = experts;
    b.AddExperts(layer, dims, n_ff_expert, &moe);
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    attention),
          // Named after its place behind attention, it is the norm before the experts.
          MakeBlock(b.RmsNorm(LayerName(layer, "post_attention_norm"), dims.d_model, dims.epsilon),
                    moe)}});
  }
}

}  // namespace weft
