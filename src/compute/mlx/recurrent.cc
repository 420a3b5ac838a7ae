// The operations of step_context.h that keep recurrent state.
//
// Sequences with the same number of rows are computed together. Tokens are computed one after the
// other, so that splitting a prompt changes no sum.
#include <cmath>
#include <vector>

#include "compute/mlx/step_context.h"

namespace weft::mlx {

namespace {

mx::array Number(double value) { return mx::array(static_cast<float>(value)); }
mx::array Softplus(const mx::array& x) { return mx::logaddexp(x, Number(0)); }

// The states of a group's sequences, [sequences, floats].
mx::array ReadStates(StepContext* context, int slot, const RowGroup& group) {
  return mx::take(context->state().slot_states(slot), group.slots, 0);
}

void WriteStates(StepContext* context, int slot, const RowGroup& group, const mx::array& states) {
  mx::array& pool = context->state().slot_states(slot);
  const mx::array rows = mx::reshape(states, {states.shape(0), 1, pool.shape(1)});
  pool = mx::scatter(pool, group.slots, rows, 0);
}

// The group's rows, [sequences, rows of each, width].
mx::array RowsOf(const mx::array& x, const RowGroup& group) {
  const int n = Size(group.count);
  return mx::reshape(mx::take(x, group.rows, 0), {group.slots.shape(0), n, x.shape(1)});
}

// Token `t` of each sequence: dimension 1 disappears.
mx::array At(const mx::array& x, int t) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start[1] = t;
  stop[1] = t + 1;
  return mx::squeeze(mx::slice(x, start, stop), 1);
}

// The state holds the n_taps - 1 latest inputs, oldest first.
mx::array Convolve(StepContext* context, const Convolution& spec, const BoundConvolution& op,
                   const mx::array& x) {
  const int n_old = Size(spec.n_taps - 1), width = Size(spec.n_channels);
  std::vector<mx::array> parts;
  for (const RowGroup& group : context->row_groups()) {
    const int n_sequences = group.slots.shape(0), n = Size(group.count);
    const auto run = [&](const mx::array& all, int first, int count) {
      return mx::slice(all, {0, first, 0}, {n_sequences, first + count, width});
    };
    mx::array inputs = RowsOf(x, group);
    if (n_old > 0) {
      const mx::array old =
          mx::reshape(ReadStates(context, spec.slot, group), {n_sequences, n_old, width});
      inputs = mx::concatenate({old, inputs}, 1);
      WriteStates(context, spec.slot, group, mx::contiguous(run(inputs, n, n_old)));
    }
    std::optional<mx::array> sum = op.bias;
    for (int j = 0; j <= n_old; ++j) {
      const mx::array tap = mx::slice(*op.kernel, {j, 0}, {j + 1, width});
      const mx::array product = run(inputs, j, n) * tap;
      sum = sum ? *sum + product : product;
    }
    parts.push_back(mx::reshape(*sum, {n_sequences * n, width}));
  }
  return context->InStepOrder(parts);
}

// Scales the last dimension to length `factor`; shorter if its length is below `epsilon`.
mx::array Normalized(const mx::array& x, double epsilon, double factor) {
  const mx::array length = mx::sqrt(mx::sum(mx::square(x), -1, /*keepdims=*/true));
  return x * (Number(factor) / mx::maximum(length, Number(epsilon)));
}

struct Gates {
  mx::array decays, betas;  // [rows, value heads]
};

Gates GatesOf(const StepContext* context, const Bound<GatedDeltaNet>& op, const mx::array& x) {
  const GatedDeltaNet& spec = *op.spec;
  const auto learned = [&]() -> Gates {
    if (!op.beta_decay) return {context->Apply(op.decay, x), context->Apply(op.beta, x)};
    const int64_t of_key_head = spec.n_v_heads / spec.n_k_heads;
    const mx::array both = AsHeads(context->Apply(op.beta_decay, x), spec.n_k_heads);
    return {AsRows(Columns(both, of_key_head, of_key_head)), AsRows(Columns(both, 0, of_key_head))};
  };
  const Gates raw = learned();
  return {mx::exp(*op.decay_rate * Softplus(raw.decays + *op.decay_bias)), mx::sigmoid(raw.betas)};
}

// The key head of each value head.
mx::array KeyHeadNumbers(const GatedDeltaNet& spec) {
  std::vector<int32_t> numbers;
  const int of_key_head = spec.n_v_heads / spec.n_k_heads;
  for (int v = 0; v < spec.n_v_heads; ++v) {
    numbers.push_back(spec.key_heads == KeyHeads::kTiled ? v % spec.n_k_heads : v / of_key_head);
  }
  return FromHost<int32_t>(numbers, {spec.n_v_heads});
}

}  // namespace

mx::array RunOp(StepContext* context, const Bound<ShortConvolution>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const Convolution& convolution = op.spec->convolution;
  const int64_t n = convolution.n_channels;
  const mx::array in = context->Apply(op.in, x);
  const mx::array b = Columns(in, 0, n), c = Columns(in, n, n);
  const mx::array y = Convolve(context, convolution, op.convolution, Columns(in, 2 * n, n) * b);
  return context->Apply(op.out, y * c);
}

mx::array RunOp(StepContext* context, const Bound<GatedDeltaNet>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const GatedDeltaNet& spec = *op.spec;
  const mx::array qkv =
      Silu(Convolve(context, spec.convolution, op.convolution, context->Apply(op.qkv, x)));
  const int64_t n_keys = spec.n_k_heads * spec.k_dim, n_values = spec.n_v_heads * spec.v_dim;
  const mx::array key_heads = KeyHeadNumbers(spec);
  // [rows, value heads, k_dim]
  const auto by_value_head = [&](int64_t first, double factor) {
    const mx::array heads = AsHeads(Columns(qkv, first, n_keys), spec.n_k_heads);
    return AsRows(mx::take(Normalized(heads, spec.epsilon, factor), key_heads, 1));
  };
  const mx::array q = by_value_head(0, 1 / std::sqrt(static_cast<double>(spec.k_dim)));
  const mx::array k = by_value_head(n_keys, 1), v = Columns(qkv, 2 * n_keys, n_values);
  const Gates gates = GatesOf(context, op, x);

  std::vector<mx::array> parts;
  const int n_heads = spec.n_v_heads, k_dim = Size(spec.k_dim), v_dim = Size(spec.v_dim);
  for (const RowGroup& group : context->row_groups()) {
    const int n_sequences = group.slots.shape(0), n = Size(group.count);
    const auto rows_of = [&](const mx::array& all, mx::Shape shape) {
      mx::Shape whole = {n_sequences, n, n_heads};
      for (const int size : shape) whole.push_back(size);
      return mx::reshape(RowsOf(all, group), whole);
    };
    const mx::array queries = rows_of(q, {1, k_dim}), keys = rows_of(k, {1, k_dim});
    const mx::array values = rows_of(v, {1, v_dim});
    const mx::array decays = rows_of(gates.decays, {1, 1}), betas = rows_of(gates.betas, {1, 1});
    mx::array state =
        mx::reshape(ReadStates(context, spec.slot, group), {n_sequences, n_heads, k_dim, v_dim});
    std::vector<mx::array> outputs;
    for (int t = 0; t < n; ++t) {
      const mx::array key = At(keys, t);
      state = state * At(decays, t);
      const mx::array learned = At(betas, t) * (At(values, t) - mx::matmul(key, state));
      state = state + mx::swapaxes(key, -1, -2) * learned;
      outputs.push_back(mx::matmul(At(queries, t), state));
    }
    WriteStates(context, spec.slot, group, state);
    parts.push_back(mx::reshape(mx::stack(outputs, 1), {n_sequences * n, Size(n_values)}));
  }
  const mx::array heads = ApplyNorm(op.norm, context->InStepOrder(parts));
  return context->Apply(op.out, heads * Silu(context->Apply(op.gate, x)));
}

mx::array RunOp(StepContext* context, const Bound<StateSpace>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const StateSpace& spec = *op.spec;
  const int64_t inner = spec.n_heads * spec.head_dim, n_of_groups = spec.n_groups * spec.state_dim;
  const int64_t n_channels = spec.convolution.n_channels;
  const mx::array in = context->Apply(op.in, x);
  const mx::array z = Columns(in, 0, inner);
  const mx::array xbc =
      Silu(Convolve(context, spec.convolution, op.convolution, Columns(in, inner, n_channels)));
  const mx::array steps = Softplus(Columns(in, inner + n_channels, spec.n_heads) + *op.step_bias);
  const mx::array decays = mx::exp(steps * *op.rate);
  const mx::array inputs = Columns(xbc, 0, inner);
  // [rows, heads * state_dim]: for each head, the values of its group.
  const auto by_head = [&](int64_t first) {
    const mx::array groups = AsHeads(Columns(xbc, first, n_of_groups), spec.n_groups);
    return AsRows(mx::repeat(groups, spec.n_heads / spec.n_groups, 1));
  };
  const mx::array b = by_head(inner), c = by_head(inner + n_of_groups);

  std::vector<mx::array> parts;
  const int n_heads = spec.n_heads, state_dim = Size(spec.state_dim);
  const int head_dim = Size(spec.head_dim);
  for (const RowGroup& group : context->row_groups()) {
    const int n_sequences = group.slots.shape(0), n = Size(group.count);
    const auto rows_of = [&](const mx::array& all, int height, int width) {
      return mx::reshape(RowsOf(all, group), {n_sequences, n, n_heads, height, width});
    };
    const mx::array values = rows_of(inputs, 1, head_dim), sizes = rows_of(steps, 1, 1);
    const mx::array factors = rows_of(decays, 1, 1);
    const mx::array to_state = rows_of(b, state_dim, 1), from_state = rows_of(c, 1, state_dim);
    mx::array state = mx::reshape(ReadStates(context, spec.slot, group),
                                  {n_sequences, n_heads, state_dim, head_dim});
    std::vector<mx::array> outputs;
    for (int t = 0; t < n; ++t) {
      state = state * At(factors, t) + At(to_state, t) * (At(sizes, t) * At(values, t));
      outputs.push_back(mx::matmul(At(from_state, t), state));
    }
    WriteStates(context, spec.slot, group, state);
    parts.push_back(mx::reshape(mx::stack(outputs, 1), {n_sequences * n, Size(inner)}));
  }
  const mx::array skipped = AsRows(AsHeads(inputs, spec.n_heads) * mx::expand_dims(*op.skip, -1));
  const mx::array y = (context->InStepOrder(parts) + skipped) * Silu(z);
  return context->Apply(op.out, ApplyNorm(op.norm, y));
}

}  // namespace weft::mlx
