// RWKV 7: a time mix and a channel mix in every layer, each with a layer norm before it, and no
// attention.
#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

TimeMix MakeTimeMix(SpecBuilder& b, const Dims& dims, int64_t layer) {
  // The epsilon of the heads' norm; no file says it.
  constexpr float kHeadEpsilon = 64e-5f;
  const int64_t n = dims.d_model;
  const auto name = [&](std::string_view part) {
    return LayerName(layer, StrCat("time_mix_", part));
  };
  const auto vector = [&](std::string_view part) { return b.Vector(name(part) + ".weight", n); };
  const auto low_rank = [&](std::string_view part, std::string_view rank_key, Linear* a,
                            Linear* c) {
    const int64_t rank = b.Int(rank_key, 1);
    *a = b.Matrix(name(StrCat(part, "1")), n, rank);
    *c = b.Matrix(name(StrCat(part, "2")), rank, n);
  };
  TimeMix op;
  op.head_dim = b.Int("wkv.head_size", 1, SpecBuilder::kMaxHeadDim);
  op.n_heads = static_cast<int>(n / op.head_dim);
  op.is_first = layer == 0;
  if (b.ok() && n % op.head_dim != 0) b.FailKey("wkv.head_size", "does not part embedding_length");
  op.lerp = b.Values(name("lerp_fused.weight"), {n, 1, 1, 6});
  op.receptance = b.Matrix(name("receptance"), n, n);
  op.key = b.Matrix(name("key"), n, n);
  op.value = b.Matrix(name("value"), n, n);
  low_rank("w", "attention.decay_lora_rank", &op.decay_a, &op.decay_b);
  low_rank("a", "attention.iclr_lora_rank", &op.rate_a, &op.rate_b);
  low_rank("g", "attention.gate_lora_rank", &op.gate_a, &op.gate_b);
  op.decay_bias = vector("w0");
  op.rate_bias = vector("a0");
  if (op.is_first) {
    // There are no earlier values that these could mix in.
    for (const char* unread : {"v0.weight", "v1.weight", "v2.weight"}) b.Ignore(name(unread));
  } else {
    low_rank("v", "attention.value_residual_mix_lora_rank", &op.mix_a, &op.mix_b);
    op.mix_bias = vector("v0");
  }
  op.removal = vector("k_k");
  op.renewal = vector("k_a");
  op.bonus = vector("r_k");
  op.norm = b.LayerNorm(name("ln"), n, kHeadEpsilon);
  op.norm.width = op.head_dim;
  op.out = b.Matrix(name("output"), n, n);
  op.slot = b.AddSlot(SlotKind::kDeltaNet, n * op.head_dim);
  op.shift_slot = b.AddSlot(SlotKind::kConvolution, n);
  return op;
}

ChannelMix MakeChannelMix(SpecBuilder& b, const Dims& dims, int64_t layer) {
  const int64_t n = dims.d_model, n_ff = dims.n_ff[layer];
  if (n_ff < 1) b.FailKey("feed_forward_length", "is missing or 0");
  ChannelMix op;
  op.lerp = b.Values(LayerName(layer, "channel_mix_lerp_k.weight"), {n, 1, 1});
  op.key = b.Matrix(LayerName(layer, "channel_mix_key"), n, n_ff);
  op.value = b.Matrix(LayerName(layer, "channel_mix_value"), n_ff, n);
  op.shift_slot = b.AddSlot(SlotKind::kConvolution, n);
  return op;
}

}  // namespace

void BuildRwkv7(SpecBuilder& b) {
  const Dims dims = b.ReadDims(HeadCounts::kMayBeZero, NormKind::kLayer);
  b.ReadEnds(dims);
  b.spec().input_norm = b.LayerNorm("token_embd_norm", dims.d_model, dims.epsilon);
  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    b.spec().layers.push_back(
        {{MakeBlock(b.StreamNorm(layer, "attn_norm", dims), MakeTimeMix(b, dims, layer)),
          MakeBlock(b.StreamNorm(layer, "attn_norm_2", dims), MakeChannelMix(b, dims, layer))}});
  }
}

}  // namespace weft
