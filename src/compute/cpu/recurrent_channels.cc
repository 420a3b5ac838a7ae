// The operations whose state decays per channel: Kimi's delta net, Mamba 1.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/cpu/recurrent_parts.h"

namespace weft::cpu {

// --- delta net -----------------------------------------------------------------------------

namespace {

struct ChannelDeltaScratch {
  const Bound<ChannelDeltaNet>& op;
  Arena* arena;
  int64_t n = op.q.matrix.n_out;
  RowsView projected = arena->Rows(3 * n);  // q, k, v
  RowsView qkv = arena->Rows(3 * n);        // convolved; v is replaced by the heads' outputs
  RowsView decays = arena->Rows(n);
  RowsView gate = arena->Rows(n);
  RowsView betas = arena->Rows(op.spec->n_heads);
  RowsView low = arena->Rows(op.decay_a.matrix.n_out + op.gate_a.matrix.n_out);
  Int8View input = arena->Int8(op.q.matrix.n_in);
  Int8View low_int8 = arena->Int8(std::max(op.decay_b.matrix.n_in, op.gate_b.matrix.n_in));
  Int8View inner = arena->Int8(op.out.matrix.n_in);
  RowsView Projected(int64_t part) const { return projected.Columns(part * n, n); }
  RowsView Convolved(int64_t part) const { return qkv.Columns(part * n, n); }
};

void ProjectChannels(Compute* compute, const Bound<ChannelDeltaNet>& op, const RowsView& x,
                     int64_t n, const ChannelDeltaScratch& scratch) {
  const int64_t rank = op.decay_a.matrix.n_out;
  const RowsView low_decays = scratch.low.Columns(0, rank);
  const RowsView low_gate = scratch.low.Columns(rank, op.gate_a.matrix.n_out);
  const ActivationRows input =
      compute->Input(x, n, {&op.q, &op.k, &op.v, &op.beta, &op.decay_a, &op.gate_a}, scratch.input);
  compute->Multiply({MakeProduct(op.q, input, n, scratch.Projected(0)),
                     MakeProduct(op.k, input, n, scratch.Projected(1)),
                     MakeProduct(op.v, input, n, scratch.Projected(2)),
                     MakeProduct(op.beta, input, n, scratch.betas),
                     MakeProduct(op.decay_a, input, n, low_decays),
                     MakeProduct(op.gate_a, input, n, low_gate)});
  const ActivationRows decays = compute->Input(low_decays, n, {&op.decay_b}, scratch.low_int8);
  compute->Multiply({MakeProduct(op.decay_b, decays, n, scratch.decays)});
  const ActivationRows gate = compute->Input(low_gate, n, {&op.gate_b}, scratch.low_int8);
  compute->Multiply({MakeProduct(op.gate_b, gate, n, scratch.gate)});
}

}  // namespace

void PlanOp(const Bound<ChannelDeltaNet>& op, Arena* arena) {
  static_cast<void>(ChannelDeltaScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<ChannelDeltaNet>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const ChannelDeltaNet& spec = *op.spec;
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n_rows = context->n_rows(), dim = spec.head_dim, n = spec.n_heads * dim;
  Arena arena = context->scratch.ForRows(n_rows);
  const ChannelDeltaScratch scratch{op, &arena};
  ProjectChannels(&compute, op, x, n_rows, scratch);
  const BoundConvolution* const convolutions[] = {&op.q_convolution, &op.k_convolution,
                                                  &op.v_convolution};
  const float query_length = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  compute.ForEach(n_rows, 4 * n * (kConvolve + kExp), [&](int64_t row, int) {
    for (int64_t part = 0; part < 3; ++part) {
      float* const to = scratch.Convolved(part).row(row);
      ConvolveRow(*context, *convolutions[part], scratch.Projected(part), row, to);
      vec.activate({ActivationKind::kSilu}, to, nullptr, n, to);
      for (int head = 0; part < 2 && head < spec.n_heads; ++head) {
        vec.set_length(dim, spec.epsilon, part == 0 ? query_length : 1, to + head * dim);
      }
    }
    vec.sigmoid(spec.n_heads, scratch.betas.row(row));
    float* const decays = scratch.decays.row(row);
    vec.add(op.decay_bias, n, decays);
    vec.softplus(n, decays);
    for (int head = 0; head < spec.n_heads; ++head) {
      vec.scale(op.decay_rate[head], dim, decays + head * dim);
    }
    vec.exp(n, decays);
  });
  for (int64_t part = 0; part < 3; ++part) {
    KeepInputs(context, *convolutions[part], scratch.Projected(part));
  }

  const RowsView values = scratch.Convolved(2);
  AdvanceHeads(context,
               {spec.slot, spec.n_heads, dim, dim, values, nullptr, scratch.betas.values,
                scratch.betas.stride},
               [&](RecurrentJob* job, int64_t row, int64_t head) {
                 job->queries = scratch.Convolved(0).row(row) + head * dim;
                 job->keys = scratch.Convolved(1).row(row) + head * dim;
                 job->row_decays = scratch.decays.row(row) + head * dim;
                 job->row_decay_stride = scratch.decays.stride;
                 vec.advance_channel_delta_net(*job);
               });
  compute.ForEach(n_rows, n * 2 * kExp, [&](int64_t row, int) {
    compute.NormRow(op.norm, values.row(row), n, values.row(row));
    vec.multiply_sigmoid(scratch.gate.row(row), n, values.row(row));
  });
  const ActivationRows inner = compute.Input(values, n_rows, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n_rows, out)});
}

// --- selective scan ------------------------------------------------------------------------

namespace {

// Channels per task.
constexpr int64_t kScanChannels = 64;

struct ScanScratch {
  const Bound<SelectiveScan>& op;
  Arena* arena;
  int64_t n = op.spec->n_channels;
  RowsView in = arena->Rows(2 * n);
  RowsView values = arena->Rows(n);  // convolved, then the channels' outputs
  RowsView selected = arena->Rows(op.select.matrix.n_out);
  RowsView steps = arena->Rows(n);
  Int8View input = arena->Int8(op.in.matrix.n_in);
  Int8View select_int8 = arena->Int8(n);
  Int8View step_int8 = arena->Int8(op.step.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

// Computes steps, B and C of all rows from the convolved values.
void SelectRows(Compute* compute, const Bound<SelectiveScan>& op, int64_t n_rows,
                const ScanScratch& scratch) {
  const int64_t rank = op.step.matrix.n_in, n_state = op.spec->state_dim;
  const RowsView& selected = scratch.selected;
  const ActivationRows x =
      compute->Input(scratch.values, n_rows, {&op.select}, scratch.select_int8);
  compute->Multiply({MakeProduct(op.select, x, n_rows, selected)});
  compute->ForEach(n_rows, selected.width * kStep, [&](int64_t row, int) {
    float* const part = selected.row(row);
    compute->NormRow(op.step_norm, part, rank, part);
    compute->NormRow(op.b_norm, part + rank, n_state, part + rank);
    compute->NormRow(op.c_norm, part + rank + n_state, n_state, part + rank + n_state);
  });
  const RowsView low = selected.Columns(0, rank);
  const ActivationRows step = compute->Input(low, n_rows, {&op.step}, scratch.step_int8);
  compute->Multiply({MakeProduct(op.step, step, n_rows, scratch.steps)});
  compute->ForEach(n_rows, scratch.n * kExp, [&](int64_t row, int) {
    compute->vec().softplus(scratch.n, scratch.steps.row(row));
  });
}

void ScanRows(StepContext* context, const Bound<SelectiveScan>& op, const ScanScratch& scratch) {
  const SelectiveScan& spec = *op.spec;
  const int64_t rank = op.step.matrix.n_in, n_parts = (scratch.n - 1) / kScanChannels + 1;
  const auto run = [&](int64_t task) {
    const int64_t sequence = task / n_parts, first = task % n_parts * kScanChannels;
    const RowRange rows = RowsOf(*context, sequence);
    if (rows.begin == rows.end) return;
    ScanJob job;
    job.state = StateOf(*context, sequence, spec.slot) + first * spec.state_dim;
    job.n_channels = std::min(kScanChannels, scratch.n - first);
    job.state_dim = spec.state_dim;
    job.n_tokens = rows.end - rows.begin;
    job.steps = scratch.steps.row(rows.begin) + first;
    job.step_stride = scratch.steps.stride;
    job.values = scratch.values.row(rows.begin) + first;
    job.value_stride = scratch.values.stride;
    job.b = scratch.selected.row(rows.begin) + rank;
    job.c = job.b + spec.state_dim;
    job.bc_stride = scratch.selected.stride;
    job.rate = op.rate + first * spec.state_dim;
    job.skip = op.skip + first;
    context->compute.vec().scan_channels(job);
  };
  context->compute.TimeAttention([&] {
    context->compute.RunTasks(context->n_sequences() * n_parts,
                              [&](int64_t begin, int64_t end, int) {
                                for (int64_t task = begin; task < end; ++task) run(task);
                              });
  });
}

}  // namespace

void PlanOp(const Bound<SelectiveScan>& op, Arena* arena) {
  static_cast<void>(ScanScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<SelectiveScan>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n_rows = context->n_rows(), n = op.spec->n_channels;
  Arena arena = context->scratch.ForRows(n_rows);
  const ScanScratch scratch{op, &arena};
  const RowsView &in = scratch.in, &values = scratch.values;
  const ActivationRows input = compute.Input(x, n_rows, {&op.in}, scratch.input);
  compute.Multiply({MakeProduct(op.in, input, n_rows, in)});
  const RowsView projected = in.Columns(0, n);
  compute.ForEach(n_rows, n * (kConvolve + kExp), [&](int64_t row, int) {
    ConvolveRow(*context, op.convolution, projected, row, values.row(row));
    vec.activate({ActivationKind::kSilu}, values.row(row), nullptr, n, values.row(row));
  });
  KeepInputs(context, op.convolution, projected);
  SelectRows(&compute, op, n_rows, scratch);
  ScanRows(context, op, scratch);
  compute.ForEach(n_rows, n * kExp, [&](int64_t row, int) {
    vec.activate({ActivationKind::kSilu}, in.row(row) + n, values.row(row), n, values.row(row));
  });
  const ActivationRows inner = compute.Input(values, n_rows, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n_rows, out)});
}

}  // namespace weft::cpu
