// The operations of a step that keep recurrent state: convolutions, delta nets, state spaces. Their
// linears are products of all rows at once. Between these, each sequence's rows are computed in
// order, with many heads and columns in parallel.
#include <cmath>

#include "compute/cpu/recurrent_parts.h"

namespace weft::cpu {

std::vector<int64_t> SlotFloats(const ModelSpec& spec) {
  struct Sizes : OperationVisitor {
    void Slot(const SlotUse& use) {
      if (use.kind == SlotKind::kConvolution) return;
      n_floats[use.slot] = use.n_heads * StateFloats(use.n_rows, use.n_columns);
    }
    std::vector<int64_t> n_floats;
  };
  Sizes sizes;
  for (const SlotState& slot : spec.slots) sizes.n_floats.push_back(slot.n_floats);
  VisitOperations(spec, sizes);
  return sizes.n_floats;
}

// --- short convolution -------------------------------------------------------------------

namespace {

struct ConvolutionScratch {
  const Bound<ShortConvolution>& op;
  Arena* arena;
  RowsView in = arena->Rows(op.in.matrix.n_out);      // b, c, x, then b, c, b x
  RowsView result = arena->Rows(op.out.matrix.n_in);  // the convolution's output
  Int8View input = arena->Int8(op.in.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<ShortConvolution>& op, Arena* arena) {
  static_cast<void>(ConvolutionScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<ShortConvolution>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows(), width = op.convolution.spec->n_channels;
  Arena arena = context->scratch.ForRows(n);
  const ConvolutionScratch scratch{op, &arena};
  const RowsView &in = scratch.in, &result = scratch.result;
  const RowsView gated = in.Columns(2 * width, width);
  const ActivationRows input = compute.Input(x, n, {&op.in}, scratch.input);
  compute.Multiply({MakeProduct(op.in, input, n, in)});
  compute.ForEach(n, width * kStep, [&](int64_t row, int) {
    compute.vec().multiply(in.row(row), width, gated.row(row));
  });
  const bool int8 = WantsInt8(op.out.matrix);
  compute.ForEach(n, width * kConvolve, [&](int64_t row, int) {
    ConvolveRow(*context, op.convolution, gated, row, result.row(row));
    compute.vec().multiply(in.row(row) + width, width, result.row(row));
    if (int8) compute.QuantizeRow(result.row(row), scratch.inner, row);
  });
  KeepInputs(context, op.convolution, gated);
  const ActivationRows inner = Quantized(result, op.out.matrix, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

// --- gated delta net ---------------------------------------------------------------------

namespace {

struct DeltaNetScratch {
  const Bound<GatedDeltaNet>& op;
  Arena* arena;
  RowsView projected = arena->Rows(op.qkv.matrix.n_out);  // q, k, v
  RowsView qkv = arena->Rows(op.qkv.matrix.n_out);        // convolved; v becomes the outputs
  RowsView gate = arena->Rows(op.gate.matrix.n_out);
  RowsView gates = arena->Rows(int64_t{4} * op.spec->n_v_heads);  // see ComputeGates
  Int8View input = arena->Int8(op.qkv.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);

  RowsView GatesFrom(int64_t part) const {
    return gates.Columns(part * op.spec->n_v_heads, op.spec->n_v_heads);
  }
};

void ProjectDeltaNet(Compute* compute, const Bound<GatedDeltaNet>& op, const RowsView& x, int64_t n,
                     const DeltaNetScratch& scratch) {
  const ActivationRows input =
      compute->Input(x, n, {&op.qkv, &op.gate, &op.beta, &op.decay, &op.beta_decay}, scratch.input);
  Product products[4] = {MakeProduct(op.qkv, input, n, scratch.projected),
                         MakeProduct(op.gate, input, n, scratch.gate)};
  size_t n_products = 2;
  if (op.beta_decay) {
    products[n_products++] = MakeProduct(op.beta_decay, input, n, scratch.GatesFrom(2));
  } else {
    products[n_products++] = MakeProduct(op.beta, input, n, scratch.GatesFrom(0));
    products[n_products++] = MakeProduct(op.decay, input, n, scratch.GatesFrom(1));
  }
  compute->Multiply(std::span<const Product>(products, n_products));
}

// The gates of one row: [betas, steps, decays] from the projected [betas, decays], or from both
// interleaved by key head, in the last two parts.
void ComputeGates(const Compute& compute, const Bound<GatedDeltaNet>& op, float* gates) {
  const GatedDeltaNet& spec = *op.spec;
  const int64_t n = spec.n_v_heads;
  if (op.beta_decay) {
    const float* const both = gates + 2 * n;
    const int64_t group = n / spec.n_k_heads;
    for (int64_t head = 0; head < n; ++head) {
      const int64_t at = head / group * 2 * group + head % group;
      gates[head] = both[at];
      gates[n + head] = both[at + group];
    }
  }
  compute.vec().sigmoid(n, gates);
  compute.vec().steps_and_decays(gates + n, op.decay_bias, op.decay_rate, n, gates + n,
                                 gates + 2 * n);
}

}  // namespace

void PlanOp(const Bound<GatedDeltaNet>& op, Arena* arena) {
  static_cast<void>(DeltaNetScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<GatedDeltaNet>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const GatedDeltaNet& spec = *op.spec;
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n = context->n_rows();
  const int64_t n_keys = spec.n_k_heads * spec.k_dim, n_values = spec.n_v_heads * spec.v_dim;
  Arena arena = context->scratch.ForRows(n);
  const DeltaNetScratch scratch{op, &arena};
  const RowsView &projected = scratch.projected, &qkv = scratch.qkv;
  const RowsView &gate = scratch.gate, &gates = scratch.gates;
  ProjectDeltaNet(&compute, op, x, n, scratch);
  const float query_length = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.k_dim)));
  compute.ForEach(n, qkv.width * (kConvolve + kExp), [&](int64_t row, int) {
    float* const to = qkv.row(row);
    ConvolveRow(*context, op.convolution, projected, row, to);
    vec.activate({ActivationKind::kSilu}, to, nullptr, qkv.width, to);
    for (int64_t head = 0; head < int64_t{2} * spec.n_k_heads; ++head) {
      vec.set_length(spec.k_dim, spec.epsilon, head < spec.n_k_heads ? query_length : 1,
                     to + head * spec.k_dim);
    }
    ComputeGates(compute, op, gates.row(row));
  });
  KeepInputs(context, op.convolution, projected);

  const RowsView values = qkv.Columns(2 * n_keys, n_values);
  const int64_t group = spec.n_v_heads / spec.n_k_heads;
  AdvanceHeads(context,
               {spec.slot, spec.n_v_heads, spec.k_dim, spec.v_dim, values,
                scratch.GatesFrom(2).values, scratch.GatesFrom(0).values, gates.stride},
               [&](RecurrentJob* job, int64_t row, int64_t head) {
                 const bool tiled = spec.key_heads == KeyHeads::kTiled;
                 const int64_t key_head = tiled ? head % spec.n_k_heads : head / group;
                 job->queries = qkv.row(row) + key_head * spec.k_dim;
                 job->keys = job->queries + n_keys;
                 vec.advance_delta_net(*job);
               });

  compute.ForEach(n, n_values * 2 * kExp, [&](int64_t row, int) {
    float* const heads = values.row(row);
    compute.NormRow(op.norm, heads, n_values, heads);
    vec.activate({ActivationKind::kSilu}, gate.row(row), heads, n_values, heads);
  });
  const ActivationRows inner = compute.Input(values, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

// --- state space -------------------------------------------------------------------------

namespace {

struct StateSpaceScratch {
  const Bound<StateSpace>& op;
  Arena* arena;
  RowsView in = arena->Rows(op.in.matrix.n_out);  // z, then x, B and C, then the steps
  RowsView xbc = arena->Rows(op.convolution.spec->n_channels);  // convolved; x becomes outputs
  RowsView gates = arena->Rows(int64_t{2} * op.spec->n_heads);  // steps and decays
  Int8View input = arena->Int8(op.in.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<StateSpace>& op, Arena* arena) {
  static_cast<void>(StateSpaceScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<StateSpace>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const StateSpace& spec = *op.spec;
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n = context->n_rows();
  const int64_t inner_width = spec.n_heads * spec.head_dim;
  const int64_t n_channels = op.convolution.spec->n_channels;
  Arena arena = context->scratch.ForRows(n);
  const StateSpaceScratch scratch{op, &arena};
  const RowsView &in = scratch.in, &xbc = scratch.xbc, &gates = scratch.gates;
  const RowsView projected = in.Columns(inner_width, n_channels);

  const ActivationRows input = compute.Input(x, n, {&op.in}, scratch.input);
  compute.Multiply({MakeProduct(op.in, input, n, in)});
  compute.ForEach(n, n_channels * (kConvolve + kExp), [&](int64_t row, int) {
    float* const to = xbc.row(row);
    ConvolveRow(*context, op.convolution, projected, row, to);
    vec.activate({ActivationKind::kSilu}, to, nullptr, n_channels, to);
    vec.steps_and_decays(projected.row(row) + n_channels, op.step_bias, op.rate, spec.n_heads,
                         gates.row(row), gates.row(row) + spec.n_heads);
  });
  KeepInputs(context, op.convolution, projected);

  const RowsView values = xbc.Columns(0, inner_width);
  const int64_t heads_per_group = spec.n_heads / spec.n_groups;
  AdvanceHeads(context,
               {spec.slot, spec.n_heads, spec.state_dim, spec.head_dim, values,
                gates.values + spec.n_heads, gates.values, gates.stride},
               [&](RecurrentJob* job, int64_t row, int64_t head) {
                 const int64_t group = head / heads_per_group;
                 job->keys = xbc.row(row) + inner_width + group * spec.state_dim;
                 job->queries = job->keys + spec.n_groups * spec.state_dim;
                 job->skip = op.skip[head];
                 vec.advance_state_space(*job);
               });

  compute.ForEach(n, inner_width * 2 * kExp, [&](int64_t row, int) {
    float* const heads = values.row(row);
    vec.activate({ActivationKind::kSilu}, in.row(row), heads, inner_width, heads);
    compute.NormRow(op.norm, heads, inner_width, heads);
  });
  const ActivationRows inner = compute.Input(values, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

}  // namespace weft::cpu
