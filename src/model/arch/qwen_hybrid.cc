// Qwen 3 Next, Qwen 3.5 and 3.6, dense and with experts: gated delta nets, and every few
// layers attention with gated queries.
#include <vector>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

GatedDeltaNet ReadDeltaNetShape(SpecBuilder& b, const Dims& dims) {
  GatedDeltaNet shape;
  shape.n_k_heads = static_cast<int>(b.Int("ssm.group_count", 1, SpecBuilder::kMaxHeadDim));
  shape.n_v_heads = static_cast<int>(b.Int("ssm.time_step_rank", 1, SpecBuilder::kMaxHeadDim));
  shape.k_dim = b.Int("ssm.state_size", 1, SpecBuilder::kMaxHeadDim);
  shape.convolution.n_taps = b.Int("ssm.conv_kernel", 2, SpecBuilder::kMaxTaps);
  shape.epsilon = dims.epsilon;
  const int64_t inner = b.Int("ssm.inner_size", 1);
  shape.v_dim = inner / shape.n_v_heads;
  if (b.ok() && (inner % shape.n_v_heads != 0 || shape.n_v_heads % shape.n_k_heads != 0)) {
    b.FailKey("ssm.time_step_rank",
              StrCat("is ", shape.n_v_heads, " value heads, which do not part ", inner,
                     " values evenly among ", shape.n_k_heads, " key heads"));
  }
  return shape;
}

GatedDeltaNet BuildDeltaNet(SpecBuilder& b, const Dims& dims, const GatedDeltaNet& shape,
                            int64_t layer) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  if (b.HasTensor(name("ssm_in.weight"))) {
    b.FailTensor(name("ssm_in.weight"),
                 "is the old form of the delta net's input; convert the model again, so that it "
                 "has attn_qkv and attn_gate");
  }
  GatedDeltaNet op = shape;
  const int64_t n_values = op.n_v_heads * op.v_dim;
  const int64_t n_channels = 2 * op.n_k_heads * op.k_dim + n_values;
  op.qkv = b.Matrix(name("attn_qkv"), dims.d_model, n_channels);
  op.gate = b.Matrix(name("attn_gate"), dims.d_model, n_values);
  if (b.architecture() == "qwen3next") {
    op.key_heads = KeyHeads::kInterleaved;
    op.beta_decay = b.Matrix(name("ssm_ba"), dims.d_model, int64_t{2} * op.n_v_heads);
  } else {
    op.beta = b.Matrix(name("ssm_beta"), dims.d_model, op.n_v_heads);
    op.decay = b.Matrix(name("ssm_alpha"), dims.d_model, op.n_v_heads);
  }
  op.convolution = b.MakeConvolution(name("ssm_conv1d"), n_channels, shape.convolution.n_taps);
  op.decay_bias = b.Vector(name("ssm_dt.bias"), op.n_v_heads);
  op.decay_rate = b.Vector(name("ssm_a"), op.n_v_heads);
  op.norm = b.RmsNorm(name("ssm_norm"), op.v_dim, dims.epsilon);
  op.out = b.Matrix(name("ssm_out"), n_values, dims.d_model);
  op.slot = b.AddSlot(SlotKind::kDeltaNet, n_values * op.k_dim);
  return op;
}

// Which layers have a delta net.
std::vector<bool> ReadRecurrentLayers(SpecBuilder& b, const Dims& dims) {
  constexpr int64_t kInterval = 4;  // where the file does not say it
  const int64_t interval = b.IntOr("full_attention_interval", kInterval, 1);
  const std::vector<int64_t> flags =
      b.HasKey("attention.recurrent_layers")
          ? b.IntsOr("attention.recurrent_layers", b.n_blocks(), 0, 0, 1)
          : std::vector<int64_t>();
  std::vector<bool> recurrent;
  for (int64_t layer = 0; layer < dims.n_layers; ++layer) {
    recurrent.push_back(flags.empty() ? (layer + 1) % interval != 0 : flags[layer] != 0);
  }
  return recurrent;
}

}  // namespace

void BuildQwenHybrid(SpecBuilder& b) {
  const Dims dims = b.ReadDims();
  b.ReadEnds(dims);
  Rope turns = MakeRope(b.ReadRopeShape(RopePairs::kHalves, dims), b.ReadRopeScaling(), {});
  b.ReadRopeAxes(/*interleaved=*/true, &turns);
  const int rope = b.AddRope(turns);
  const GatedDeltaNet delta_net = ReadDeltaNetShape(b, dims);
  const std::vector<bool> recurrent = ReadRecurrentLayers(b, dims);
  const bool has_experts = b.architecture() != "qwen35";
  const MixtureOfExperts experts =
      has_experts ? b.ReadMoe({.renormalize = true}) : MixtureOfExperts();
  const int64_t n_ff_expert = b.IntOr("expert_feed_forward_length", 0, 0);
  const int64_t n_ff_shared = b.IntOr("expert_shared_feed_forward_length", 0, 0);

  const auto add_layer = [&](int64_t layer) {
    Op mixer;
    if (layer < dims.n_layers && recurrent[layer]) {
      mixer = BuildDeltaNet(b, dims, delta_net, layer);
    } else {
      AttentionShape shape = b.ShapeOf(dims, layer);
      shape.rope = rope;
      shape.gated_query = true;
      shape.norms = HeadNorms::kAlways;
      mixer = b.MakeAttention(layer, dims, shape);
    }
    Block ffn;
    ffn.pre = b.RmsNorm(LayerName(layer, "post_attention_norm"), dims.d_model, dims.epsilon);
    const int64_t n_ff = dims.n_ff[layer];
    if (has_experts) {
      b.AddExpertsBesideGated(layer, dims, n_ff_expert > 0 ? n_ff_expert : n_ff / experts.n_used,
                              n_ff_shared > 0 ? n_ff_shared : n_ff, experts, &ffn);
    } else {
      ffn.paths.push_back({Norm(), b.MakeFfn(layer, dims, n_ff), Norm()});
    }
    b.spec().layers.push_back(
        {{MakeBlock(b.RmsNorm(LayerName(layer, "attn_norm"), dims.d_model, dims.epsilon), mixer),
          ffn}});
  };
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) add_layer(layer);
  // It attends, whatever the interval of the layers is.
  b.ReadPredictionHead(dims, /*before_output_norm=*/false, add_layer);
}

}  // namespace weft
