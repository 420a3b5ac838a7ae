// Operations that keep recurrent state.
#include <array>
#include <cmath>

#include "compute/gpu/builder.h"
#include "compute/kernels_gpu/recurrent.h"

namespace weft::gpu {

void Builder::Convolve(const BoundConvolution& convolution, const Rows& x, bool silu,
                       const Rows& out) {
  const Convolution& spec = *convolution.spec;
  device::ConvolveArgs args;
  args.step = buffer_.view();
  args.state = state_.slot(spec.slot);
  args.x = x;
  args.out = out;
  args.kernel = convolution.kernel;
  args.bias = convolution.bias;
  args.n_channels = static_cast<int32_t>(spec.n_channels);
  args.n_taps = static_cast<int32_t>(spec.n_taps);
  args.silu = silu ? 1 : 0;
  Launch(device::ConvolveRows, ColumnsShape(spec.n_channels, size_.rows), args);
  Launch(device::KeepInputs, ColumnsShape(spec.n_channels, size_.sequences), args);
}

void Builder::SetLengths(const Rows& heads, int64_t n_heads, int64_t width, float epsilon,
                         float length) {
  const device::LengthArgs args = {heads, static_cast<int32_t>(width), epsilon, length,
                                   step_rows().n};
  Launch(device::SetLengths, {static_cast<int>(n_heads), static_cast<int>(size_.rows), 1, 32},
         args);
}

void Builder::Run(const Bound<ShortConvolution>& op, const Rows& x, const Rows&, const Rows& out) {
  const int64_t width = op.convolution.spec->n_channels;
  const Rows in = NewRows(3 * width), result = NewRows(width);
  Multiply(op.in, Prepare(x, op.in), in);
  const Rows gated = Columns(in, 2 * width);
  Multiply(in, width, gated);
  Convolve(op.convolution, gated, false, result);
  Multiply(Columns(in, width), width, result);
  Multiply(op.out, Prepare(result, op.out), out);
}

void Builder::Run(const Bound<GatedDeltaNet>& op, const Rows& x, const Rows&, const Rows& out) {
  const GatedDeltaNet& spec = *op.spec;
  const int64_t n_keys = spec.n_k_heads * spec.k_dim, n_values = spec.n_v_heads * spec.v_dim;
  const int64_t width = 2 * n_keys + n_values, n_heads = spec.n_v_heads;
  const Input input = Prepare(
      x, spec_.d_model, {&op.qkv, &op.gate, &op.beta, &op.decay, &op.beta_decay}, step_rows());
  const auto [projected, gate] = MultiplyAll(input, op.qkv, op.gate);
  const Rows qkv = NewRows(width);
  const Rows betas = NewRows(2 * n_heads);  // followed by, or interleaved with, the decays
  Multiply(op.beta_decay, input, betas);
  Multiply(op.beta, input, betas);
  Multiply(op.decay, input, Columns(betas, n_heads));
  Convolve(op.convolution, projected, true, qkv);

  const auto length = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.k_dim)));
  SetLengths(qkv, spec.n_k_heads, spec.k_dim, spec.epsilon, length);
  SetLengths(Columns(qkv, n_keys), spec.n_k_heads, spec.k_dim, spec.epsilon, 1);

  device::GatesArgs gates;
  gates.betas = betas;
  gates.steps = Columns(betas, n_heads);
  gates.bias = op.decay_bias;
  gates.rate = op.decay_rate;
  gates.n_heads = spec.n_v_heads;
  gates.interleaved = op.beta_decay ? spec.n_v_heads / spec.n_k_heads : 0;
  gates.gains = arena_.Take<float>(size_.rows * n_heads);
  gates.decays = arena_.Take<float>(size_.rows * n_heads);
  gates.n_rows = step_rows().n;
  Launch(device::ComputeGates, {device::CeilDiv(n_heads, 32), static_cast<int>(size_.rows), 1, 32},
         gates);

  device::AdvanceArgs advance;
  advance.step = buffer_.view();
  advance.state = state_.slot(spec.slot);
  advance.queries = qkv;
  advance.keys = Columns(qkv, n_keys);
  advance.values = Columns(qkv, 2 * n_keys);
  advance.gains = gates.gains;
  advance.decays = gates.decays;
  advance.n_heads = spec.n_v_heads;
  advance.n_rows = static_cast<int32_t>(spec.k_dim);
  advance.n_columns = static_cast<int32_t>(spec.v_dim);
  advance.tiled = spec.key_heads == KeyHeads::kTiled ? 1 : 0;
  advance.n_key_heads = spec.n_k_heads;
  Launch(device::AdvanceDeltaNet,
         {device::CeilDiv(spec.v_dim, device::kAdvanceThreads), spec.n_v_heads,
          static_cast<int>(size_.sequences), device::kAdvanceThreads},
         advance);

  Norm(op.norm, advance.values, n_values, advance.values);
  device::ActivateArgs gated =
      ActivateArgsOf(Activation::kSilu, {}, gate, advance.values, step_rows());
  gated.out = advance.values;
  Multiply(op.out, PrepareActivated(gated, op.out, size_.rows), out);
}

void Builder::Run(const Bound<StateSpace>& op, const Rows& x, const Rows&, const Rows& out) {
  const StateSpace& spec = *op.spec;
  const int64_t inner = spec.n_heads * spec.head_dim, n_channels = op.convolution.spec->n_channels;
  const Rows in = NewRows(inner + n_channels + spec.n_heads), xbc = NewRows(n_channels);
  Multiply(op.in, Prepare(x, op.in), in);
  Convolve(op.convolution, Columns(in, inner), true, xbc);

  device::GatesArgs gates;
  gates.steps = Columns(in, inner + n_channels);
  gates.bias = op.step_bias;
  gates.rate = op.rate;
  gates.n_heads = spec.n_heads;
  gates.gains = arena_.Take<float>(size_.rows * spec.n_heads);
  gates.decays = arena_.Take<float>(size_.rows * spec.n_heads);
  gates.n_rows = step_rows().n;
  Launch(device::ComputeGates,
         {device::CeilDiv(spec.n_heads, 32), static_cast<int>(size_.rows), 1, 32}, gates);

  device::AdvanceArgs advance;
  advance.step = buffer_.view();
  advance.state = state_.slot(spec.slot);
  advance.keys = Columns(xbc, inner);
  advance.queries = Columns(xbc, inner + spec.n_groups * spec.state_dim);
  advance.values = xbc;
  advance.gains = gates.gains;
  advance.decays = gates.decays;
  advance.skip = op.skip;
  advance.n_heads = spec.n_heads;
  advance.n_rows = static_cast<int32_t>(spec.state_dim);
  advance.n_columns = static_cast<int32_t>(spec.head_dim);
  advance.n_key_heads = spec.n_groups;
  Launch(device::AdvanceStateSpace,
         {device::CeilDiv(spec.head_dim, device::kAdvanceThreads), spec.n_heads,
          static_cast<int>(size_.sequences), device::kAdvanceThreads},
         advance);

  device::ActivateArgs gated = ActivateArgsOf(Activation::kSilu, {}, in, xbc, step_rows());
  gated.out = xbc;
  Activate(gated, inner, size_.rows);
  Norm(op.norm, xbc, inner, xbc);
  Multiply(op.out, Prepare(xbc, op.out), out);
}

void Builder::Run(const Bound<ChannelDeltaNet>& op, const Rows& x, const Rows&, const Rows& out) {
  const ChannelDeltaNet& spec = *op.spec;
  const int64_t dim = spec.head_dim, n = spec.n_heads * dim;
  const Input input = Prepare(
      x, spec_.d_model, {&op.q, &op.k, &op.v, &op.beta, &op.decay_a, &op.gate_a}, step_rows());
  const auto projected = MultiplyAll(input, op.q, op.k, op.v, op.beta, op.decay_a, op.gate_a);
  const BoundConvolution* const convolutions[] = {&op.q_convolution, &op.k_convolution,
                                                  &op.v_convolution};
  std::array<Rows, 3> qkv;
  for (size_t i = 0; i < qkv.size(); ++i) {
    qkv[i] = NewRows(n);
    Convolve(*convolutions[i], projected[i], true, qkv[i]);
  }
  SetLengths(qkv[0], spec.n_heads, dim, spec.epsilon,
             static_cast<float>(1 / std::sqrt(static_cast<double>(dim))));
  SetLengths(qkv[1], spec.n_heads, dim, spec.epsilon, 1);

  device::ChannelGatesArgs gates;
  gates.decays = NewRows(n);
  gates.betas = projected[3];
  gates.bias = op.decay_bias;
  gates.rate = op.decay_rate;
  gates.n_heads = spec.n_heads;
  gates.head_dim = static_cast<int32_t>(dim);
  gates.gains = arena_.Take<float>(size_.rows * spec.n_heads);
  gates.n_rows = step_rows().n;
  Multiply(op.decay_b, Prepare(projected[4], op.decay_b), gates.decays);
  Launch(device::ComputeChannelGates, ColumnsShape(n, size_.rows), gates);
  const Rows gate_rows = NewRows(n);
  Multiply(op.gate_b, Prepare(projected[5], op.gate_b), gate_rows);

  device::AdvanceArgs advance;
  advance.step = buffer_.view();
  advance.state = state_.slot(spec.slot);
  advance.queries = qkv[0];
  advance.keys = qkv[1];
  advance.values = qkv[2];
  advance.gains = gates.gains;
  advance.row_decays = gates.decays;
  advance.n_heads = advance.n_key_heads = spec.n_heads;
  advance.n_rows = advance.n_columns = static_cast<int32_t>(dim);
  Launch(device::AdvanceChannelDeltaNet,
         {device::CeilDiv(dim, device::kAdvanceThreads), spec.n_heads,
          static_cast<int>(size_.sequences), device::kAdvanceThreads},
         advance);
  Norm(op.norm, advance.values, n, advance.values);
  device::GateArgs gate;
  gate.x = advance.values;
  gate.gate = gate_rows;
  gate.width = static_cast<int32_t>(n);
  gate.n_rows = step_rows().n;
  Launch(device::GateRows, ColumnsShape(n, size_.rows), gate);
  Multiply(op.out, Prepare(advance.values, op.out), out);
}

void Builder::Run(const Bound<SelectiveScan>& op, const Rows& x, const Rows&, const Rows& out) {
  const SelectiveScan& spec = *op.spec;
  const int64_t n = spec.n_channels, rank = op.step.matrix.n_in, n_state = spec.state_dim;
  const Rows in = NewRows(2 * n), values = NewRows(n), steps = NewRows(n);
  const Rows selected = NewRows(op.select.matrix.n_out);
  Multiply(op.in, Prepare(x, op.in), in);
  Convolve(op.convolution, in, true, values);
  Multiply(op.select, Prepare(values, op.select), selected);
  const auto norm_part = [&](const BoundNorm& norm, int64_t first) {
    if (norm) NormGroups(norm, Columns(selected, first), 1, 0, Columns(selected, first));
  };
  norm_part(op.step_norm, 0);
  norm_part(op.b_norm, rank);
  norm_part(op.c_norm, rank + n_state);
  Multiply(op.step, Prepare(selected, op.step), steps);

  device::ScanArgs scan;
  scan.step = buffer_.view();
  scan.state = state_.slot(spec.slot);
  scan.steps = steps;
  scan.values = values;
  scan.b = Columns(selected, rank);
  scan.c = Columns(selected, rank + n_state);
  scan.rate = op.channel_rate;
  scan.skip = op.skip;
  scan.n_channels = static_cast<int32_t>(n);
  scan.state_dim = static_cast<int32_t>(n_state);
  Launch(device::ScanChannels,
         {device::CeilDiv(n, device::kAdvanceThreads), static_cast<int>(size_.sequences), 1,
          device::kAdvanceThreads},
         scan);
  device::ActivateArgs gated =
      ActivateArgsOf(Activation::kSilu, {}, Columns(in, n), values, step_rows());
  gated.out = values;
  Multiply(op.out, PrepareActivated(gated, op.out, size_.rows), out);
}

}  // namespace weft::gpu
