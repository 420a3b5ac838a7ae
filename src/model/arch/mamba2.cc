// Models of Mamba 2's state spaces: Mamba 2 itself, Falcon H1 (attention and a state
// space side by side in every layer), and Nemotron H (every layer one block: a state
// space, attention without position, or a feed-forward, dense or with experts).
// Granite's are in granite.cc.
#include "model/arch/architectures.h"

namespace weft {

void BuildMamba2(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  const StateSpaceShape shape = b.ReadStateSpaceShape();
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                    b.MakeStateSpace(layer, dims, shape))}});
  }
}

void BuildFalconH1(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  const int rope =
      b.AddRope(MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {}));
  const StateSpaceShape state_space = b.ReadStateSpaceShape();
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    AttentionShape shape = b.ShapeOf(dims, layer);
    shape.rope = rope;
    Block mixers = MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon),
                             b.MakeAttention(layer, dims, shape));
    mixers.paths.push_back({Norm(), b.MakeStateSpace(layer, dims, state_space), Norm()});
    // Its name has no ".weight".
    Norm ffn_norm = PlainRmsNorm(dims.d_model, dims.epsilon);
    ffn_norm.weight = b.Vector(LayerName(layer, "ffn_norm"), dims.d_model);
    b.spec().layers.push_back(
        {{mixers, MakeBlock(ffn_norm, b.MakeFfn(layer, dims, dims.n_ff[layer]))}});
  }
}

namespace {

// Routed experts without gates beside a shared one.
void AddNemotronExperts(SpecBuilder& b, const Dims& dims, const MixtureOfExperts& experts,
                        int64_t n_ff, int64_t n_ff_shared, int64_t layer, Block* block) {
  MixtureOfExperts moe = experts;
  moe.router = b.Matrix(LayerName(layer, "ffn_gate_inp"), dims.d_model, moe.n_experts);
  moe.selection_bias = b.OptionalVector(LayerName(layer, "exp_probs_b.bias"), moe.n_experts);
  moe.up = b.Stack(LayerName(layer, "ffn_up_exps"), dims.d_model, n_ff, moe.n_experts);
  moe.down = b.Stack(LayerName(layer, "ffn_down_exps"), n_ff, dims.d_model, moe.n_experts);
  block->paths.push_back({Norm(), moe, Norm()});
  if (n_ff_shared < 1) return;
  DenseFfn shared;
  shared.activation = experts.activation;
  shared.up = b.Matrix(LayerName(layer, "ffn_up_shexp"), dims.d_model, n_ff_shared);
  shared.down = b.Matrix(LayerName(layer, "ffn_down_shexp"), n_ff_shared, dims.d_model);
  block->paths.push_back({Norm(), shared, Norm()});
}

}  // namespace

void BuildNemotronH(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  const StateSpaceShape state_space = b.ReadStateSpaceShape();
  if (b.IntOr("moe_latent_size", 0, 0) > 0) {
    b.Fail(
        Unimplemented("Nemotron H's experts in a latent space (moe_latent_size) are not "
                      "supported"));
  }
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  const MixtureOfExperts experts =
      has_experts
          ? b.ReadMoe({.weights = RouterWeights::kSigmoid, .activation = Activation::kReluSquared})
          : MixtureOfExperts();
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Block block;
    block.pre = b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon);
    const int64_t n_ff = dims.n_ff[layer];
    if (n_ff > 0 && has_experts) {
      AddNemotronExperts(b, dims, experts, n_ff_expert > 0 ? n_ff_expert : n_ff, n_ff_shared, layer,
                         &block);
    } else if (n_ff > 0) {
      block.paths.push_back(
          {Norm(), b.MakeFfnWithoutGate(layer, dims, n_ff, Activation::kReluSquared), Norm()});
    } else if (dims.n_kv_heads[layer] > 0) {
      block.paths.push_back({Norm(), b.MakeAttention(layer, dims, b.ShapeOf(dims, layer)), Norm()});
    } else {
      block.paths.push_back({Norm(), b.MakeStateSpace(layer, dims, state_space), Norm()});
    }
    b.spec().layers.push_back({{std::move(block)}});
  }
}

}  // namespace weft
