// Mamba 1 and Falcon Mamba, which norms steps, B and C without weights. Jamba: layers without key
// heads have a Mamba 1 state space, the others attention without positions; layers with a router
// have experts.
#include "model/arch/architectures.h"

namespace weft {
namespace {

struct ScanShape {
  int64_t n_channels = 1, state_dim = 1, step_rank = 1, n_taps = 2;
};

ScanShape ReadScanShape(SpecBuilder& b) {
  return {
      .n_channels = b.Int("ssm.inner_size", 1),
      .state_dim = b.Int("ssm.state_size", 1, SpecBuilder::kMaxHeadDim),
      .step_rank = b.Int("ssm.time_step_rank", 1, SpecBuilder::kMaxHeadDim),
      .n_taps = b.Int("ssm.conv_kernel", 2, SpecBuilder::kMaxTaps),
  };
}

SelectiveScan MakeSelectiveScan(SpecBuilder& b, const Dims& dims, const ScanShape& shape,
                                int64_t layer) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  const int64_t n = shape.n_channels, n_state = shape.state_dim;
  SelectiveScan op;
  op.n_channels = n;
  op.state_dim = n_state;
  op.in = b.Matrix(name("ssm_in"), dims.d_model, 2 * n);
  op.convolution = b.MakeConvolution(name("ssm_conv1d"), n, shape.n_taps);
  op.select = b.Matrix(name("ssm_x"), n, shape.step_rank + 2 * n_state);
  op.step_norm = b.OptionalRmsNorm(name("ssm_dt_norm"), shape.step_rank, dims.epsilon);
  op.b_norm = b.OptionalRmsNorm(name("ssm_b_norm"), n_state, dims.epsilon);
  op.c_norm = b.OptionalRmsNorm(name("ssm_c_norm"), n_state, dims.epsilon);
  op.step = b.Matrix(name("ssm_dt"), shape.step_rank, n);
  op.rate = b.Values(name("ssm_a"), {n_state, n});
  op.skip = b.Vector(name("ssm_d"), n);
  op.out = b.Matrix(name("ssm_out"), n, dims.d_model);
  op.slot = b.AddSlot(SlotKind::kStateSpace, n * n_state);
  return op;
}

}  // namespace

void BuildMamba(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  const ScanShape shape = ReadScanShape(b);
  const bool norms_parts = b.BoolOr("ssm.dt_b_c_rms", false);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    SelectiveScan scan = MakeSelectiveScan(b, dims, shape, layer);
    if (norms_parts) {
      scan.step_norm = PlainRmsNorm(shape.step_rank, dims.epsilon);
      scan.b_norm = scan.c_norm = PlainRmsNorm(shape.state_dim, dims.epsilon);
    }
    b.spec().layers.push_back({{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), scan)}});
  }
}

void BuildJamba(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero);
  b.ReadEnds(dims);
  const ScanShape shape = ReadScanShape(b);
  const bool has_experts = b.IntOr("expert_count", 0, 0) > 0;
  const ExpertLayers experts = has_experts ? b.ReadExpertLayers(dims, {}) : ExpertLayers();
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    Op mixer;
    if (dims.n_kv_heads[layer] == 0) {
      mixer = MakeSelectiveScan(b, dims, shape, layer);
    } else {
      mixer = b.MakeAttention(layer, dims, b.ShapeOf(dims, layer));
    }
    ExpertLayers own = experts;
    const bool is_dense = !has_experts || !b.HasTensor(LayerName(layer, "ffn_gate_inp.weight"));
    if (is_dense) own.n_dense = dims.n_layers;
    Block ffn;
    ffn.pre = b.StreamNorm(layer, "ffn_norm", dims);
    b.AddFfnPaths(layer, dims, own, &ffn);
    b.spec().layers.push_back({{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), mixer), ffn}});
  }
}

}  // namespace weft
