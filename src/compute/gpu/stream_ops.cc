// The operations of several streams, and of RWKV 7.
#include "compute/gpu/builder.h"
#include "compute/kernels_gpu/streams.h"

namespace weft::gpu {

// --- side streams ------------------------------------------------------------------------------

void Builder::MatchLengths(const Rows& like, const Rows& x, int64_t n_heads) {
  Launch(device::MatchLengths, {static_cast<int>(n_heads), static_cast<int>(size_.rows), 1, 32},
         {like, x, static_cast<int32_t>(spec_.d_model), step_rows().n});
}

void Builder::Run(const Bound<EnterSides>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = spec_.d_model;
  const Rows from = Entered(true, false).x;
  MultiplyHeads(op.enter, from, 0, sides_, width);
  MatchLengths(from, sides_, op.enter.count);
  Copy({}, 0, out, 0, 1, width);
}

// Refused when the weights are bound.
void Builder::Run(const Bound<GatherSides>&, const Rows&, const Rows&, const Rows&) {}
void Builder::Run(const Bound<SpreadSides>&, const Rows&, const Rows&, const Rows&) {}
void Builder::Run(const Bound<CompressedAttention>&, const Rows&, const Rows&, const Rows&) {}

void Builder::Run(const Bound<LeaveSides>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = spec_.d_model, n_sides = op.leave.count;
  const Rows from = Entered(true, false).x, left = NewRows(n_sides * width);
  MultiplyHeads(op.leave, sides_, width, left, width);
  MatchLengths(from, left, n_sides);
  const float share = 1 / static_cast<float>(n_sides + 1);
  Copy({}, 0, out, 0, 1, width);
  for (int64_t side = 0; side < n_sides; ++side) {
    Add(Columns(left, side * width), width, out, share);
  }
  Add(from, width, out, share - 1);
}

Rows Builder::MixStreams(const BoundNorm& norm, const BoundLinear& router,
                         const BoundLinear& coefficients, const Rows& x) {
  const Rows normed = Norm(norm, x, spec_.d_model, NewRows(spec_.d_model));
  const Rows modes = NewRows(router.matrix.n_out), mixed = NewRows(coefficients.matrix.n_out);
  Multiply(router, Prepare(normed, router), modes);
  device::ScaleArgs tanh;
  tanh.stream = modes;
  tanh.width = router.matrix.n_out;
  tanh.softcap = 1;
  tanh.n_rows = step_rows().n;
  Launch(device::ScaleRows, ColumnsShape(tanh.width, size_.rows), tanh);
  Multiply(coefficients, Prepare(modes, coefficients), mixed);
  return mixed;
}

void Builder::Run(const Bound<PredictSides>& op, const Rows& x, const Rows&, const Rows& out) {
  device::StreamsArgs args;
  args.x = Entered(true, false).x;
  args.coefficients = MixStreams(op.router_norm, op.router, op.coefficients, args.x);
  args.sides = sides_;
  args.out = out;
  args.width = static_cast<int32_t>(spec_.d_model);
  args.n = op.router.matrix.n_out;
  args.n_rows = step_rows().n;
  Launch(device::PredictStreams, ColumnsShape(spec_.d_model, size_.rows), args);
}

void Builder::Run(const Bound<CorrectSides>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = spec_.d_model, n_gate = op.gate.matrix.n_out;
  device::StreamsArgs args;
  args.x = Entered(true, false).x;
  args.coefficients = MixStreams(op.router_norm, op.router, op.coefficients, args.x);
  args.sides = sides_;
  args.kept = kept_;
  args.out = out;
  args.scaled = NewRows(width);
  args.scale = op.scale;
  args.width = static_cast<int32_t>(width);
  args.n = op.router.matrix.n_out;
  args.n_rows = step_rows().n;
  Launch(device::CorrectStreams, ColumnsShape(width, size_.rows), args);
  const Rows gate = NewRows(n_gate), added = NewRows(width);
  Multiply(op.gate, Prepare(args.scaled, op.gate), gate);
  device::ActivateArgs activate = ActivateArgsOf(
      Activation::kGeluTanh, {}, gate, Columns(per_layer_, op.spec->layer * n_gate), step_rows());
  activate.out = gate;
  Multiply(op.proj, PrepareActivated(activate, op.proj, size_.rows), added);
  Norm(op.post_norm, added, width, added);
  for (int32_t side = 0; side + 1 < args.n; ++side)
    Add(added, width, Columns(sides_, side * width));
}

void Builder::Run(const Bound<LowRank>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = spec_.d_model;
  const Rows low = NewRows(op.down.matrix.n_out);
  Multiply(op.down, Prepare(x, op.down), low);
  Multiply(op.up, Prepare(low, op.up), out);
  Norm(op.norm, out, width, out);
  Add(Entered(true, false).x, width, out);
}

// --- RWKV 7 ------------------------------------------------------------------------------------

Rows Builder::Shift(int shift_slot, const float* lerp, int64_t n_parts, const Rows& x) {
  const int64_t width = spec_.d_model;
  device::ShiftArgs args;
  args.step = buffer_.view();
  args.state = state_.slot(shift_slot);
  args.x = x;
  args.out = NewRows(n_parts * width);
  args.lerp = lerp;
  args.width = static_cast<int32_t>(width);
  args.n_parts = static_cast<int32_t>(n_parts);
  Launch(device::ShiftRows, ColumnsShape(width, size_.rows), args);
  device::ConvolveArgs keep;
  keep.step = args.step;
  keep.state = args.state;
  keep.x = x;
  keep.n_channels = args.width;
  keep.n_taps = 2;
  Launch(device::KeepInputs, ColumnsShape(width, size_.sequences), keep);
  return args.out;
}

Rows Builder::LowRankGate(const BoundLinear& a, const BoundLinear& b, const float* bias,
                          const Rows& x, LowActivation activation) {
  const int32_t rank = a.matrix.n_out, width = b.matrix.n_out;
  const Rows low = NewRows(rank), out = NewRows(width);
  Multiply(a, Prepare(x, a), low);
  if (activation == LowActivation::kTanh) {
    device::ScaleArgs tanh;
    tanh.stream = low;
    tanh.width = rank;
    tanh.softcap = 1;
    tanh.n_rows = step_rows().n;
    Launch(device::ScaleRows, ColumnsShape(rank, size_.rows), tanh);
  } else if (activation == LowActivation::kSigmoid) {
    Launch(device::SigmoidRows, ColumnsShape(rank, size_.rows),
           {low, nullptr, rank, step_rows().n});
  }
  Multiply(b, Prepare(low, b), out);
  if (bias != nullptr) {
    Launch(device::SigmoidRows, ColumnsShape(width, size_.rows), {out, bias, width, step_rows().n});
  }
  return out;
}

void Builder::Run(const Bound<TimeMix>& op, const Rows& x, const Rows&, const Rows& out) {
  const TimeMix& spec = *op.spec;
  const int64_t n = spec_.d_model;
  const Rows mixed = Shift(spec.shift_slot, op.lerp, 6, Entered(true, false).x);
  const auto part = [&](int64_t i) { return Columns(mixed, i * n); };
  const auto project = [&](const BoundLinear& linear, int64_t i) {
    const Rows projected = NewRows(n);
    Multiply(linear, Prepare(part(i), linear), projected);
    return projected;
  };
  device::TimeMixArgs args;
  args.step = buffer_.view();
  args.state = state_.slot(spec.slot);
  args.r = project(op.receptance, 0);
  args.w = LowRankGate(op.decay_a, op.decay_b, op.decay_bias, part(1), LowActivation::kTanh);
  args.k = project(op.key, 2);
  args.v = project(op.value, 3);
  args.a = LowRankGate(op.rate_a, op.rate_b, op.rate_bias, part(4), LowActivation::kNone);
  args.g = LowRankGate(op.gate_a, op.gate_b, nullptr, part(5), LowActivation::kSigmoid);
  if (op.mix_a) {
    args.mix = LowRankGate(op.mix_a, op.mix_b, op.mix_bias, part(3), LowActivation::kNone);
  }
  args.d = NewRows(n);
  args.y = NewRows(n);
  args.first = first_values_;
  args.removal = op.removal;
  args.renewal = op.renewal;
  args.bonus = op.bonus;
  args.n_heads = spec.n_heads;
  args.head_dim = static_cast<int32_t>(spec.head_dim);
  Launch(device::PrepareMix, ColumnsShape(n, size_.rows), args);
  SetLengths(args.d, spec.n_heads, spec.head_dim, 1e-12f, 1);
  Launch(device::AdvanceMix,
         {device::CeilDiv(spec.head_dim, device::kAdvanceThreads), spec.n_heads,
          static_cast<int>(size_.sequences), device::kAdvanceThreads},
         args);
  Norm(op.norm, args.y, n, args.y);
  Launch(device::FinishMix, {spec.n_heads, static_cast<int>(size_.rows), 1, 32}, args);
  Multiply(op.out, Prepare(args.y, op.out), out);
}

void Builder::Run(const Bound<ChannelMix>& op, const Rows& x, const Rows&, const Rows& out) {
  const Rows mixed = Shift(op.spec->shift_slot, op.lerp, 1, Entered(true, false).x);
  const Rows inner = NewRows(op.key.matrix.n_out);
  Multiply(op.key, Prepare(mixed, op.key), inner);
  device::ActivateArgs activate =
      ActivateArgsOf(Activation::kReluSquared, {}, inner, {}, step_rows());
  activate.out = inner;
  Multiply(op.value, PrepareActivated(activate, op.value, size_.rows), out);
}

}  // namespace weft::gpu
