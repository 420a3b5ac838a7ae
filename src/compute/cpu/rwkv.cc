// The operations of RWKV 7.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "compute/cpu/recurrent_parts.h"

namespace weft::cpu {

namespace {

// The input of the token before a row's: the row before it, or the slot's copy.
const float* InputBefore(const StepContext& context, int shift_slot, const RowsView& x,
                         int64_t row) {
  const int64_t sequence = context.rows[static_cast<size_t>(row)].sequence;
  return row > RowsOf(context, sequence).begin ? x.row(row - 1)
                                               : StateOf(context, sequence, shift_slot);
}

// Saves each sequence's last input. Call it once all rows are mixed.
void KeepLastInputs(StepContext* context, int shift_slot, const RowsView& x) {
  for (int64_t sequence = 0; sequence < context->n_sequences(); ++sequence) {
    const RowRange rows = RowsOf(*context, sequence);
    if (rows.begin == rows.end) continue;
    std::copy_n(x.row(rows.end - 1), x.width, StateOf(*context, sequence, shift_slot));
  }
}

// to = x + (before - x) lerp
void Mix(const VectorKernels& vec, const float* x, const float* before, const float* lerp,
         int64_t n, float* to) {
  std::copy_n(before, n, to);
  vec.add_scaled(x, n, -1, to);
  vec.multiply(lerp, n, to);
  vec.add(x, n, to);
}

enum MixPart : int64_t { kReceptance, kDecay, kKey, kValue, kRate, kGate, kMixParts };

struct TimeMixScratch {
  const Bound<TimeMix>& op;
  Arena* arena;
  int64_t n = op.receptance.matrix.n_in;
  int64_t rank = std::max({op.decay_a.matrix.n_out, op.rate_a.matrix.n_out, op.mix_a.matrix.n_out,
                           op.gate_a.matrix.n_out});
  RowsView mixed = arena->Rows(kMixParts * n);
  RowsView r = arena->Rows(n), w = arena->Rows(n), k = arena->Rows(n), v = arena->Rows(n);
  RowsView a = arena->Rows(n), g = arena->Rows(n), d = arena->Rows(n), y = arena->Rows(n);
  RowsView mix = arena->Rows(n), low = arena->Rows(rank);
  Int8View input = arena->Int8(n), low_int8 = arena->Int8(rank);

  RowsView Mixed(MixPart part) const { return mixed.Columns(part * n, n); }
};

// out = b(act(a(x))); with `bias`, the sigmoid of that plus the bias.
void FindGate(StepContext* context, const BoundLinear& a, const BoundLinear& b, const float* bias,
              const RowsView& x, void (*act)(int64_t, float*), const TimeMixScratch& scratch,
              const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n_rows = context->n_rows();
  const RowsView low = scratch.low.Columns(0, a.matrix.n_out);
  const ActivationRows input = compute.Input(x, n_rows, {&a}, scratch.input);
  compute.Multiply({MakeProduct(a, input, n_rows, low)});
  for (int64_t row = 0; act != nullptr && row < n_rows; ++row) act(low.width, low.row(row));
  const Int8View low_int8 = {scratch.low_int8.blocks, low.width};
  const ActivationRows inner = compute.Input(low, n_rows, {&b}, low_int8);
  compute.Multiply({MakeProduct(b, inner, n_rows, out)});
  if (bias == nullptr) return;
  compute.ForEach(n_rows, out.width * kExp, [&](int64_t row, int) {
    compute.vec().add(bias, out.width, out.row(row));
    compute.vec().sigmoid(out.width, out.row(row));
  });
}

void ProjectTimeMix(StepContext* context, const Bound<TimeMix>& op, const TimeMixScratch& scratch) {
  const VectorKernels& vec = context->compute.vec();
  const int64_t n = context->n_rows();
  const auto project = [&](const BoundLinear& linear, MixPart part, const RowsView& to) {
    const ActivationRows input =
        context->compute.Input(scratch.Mixed(part), n, {&linear}, scratch.input);
    context->compute.Multiply({MakeProduct(linear, input, n, to)});
  };
  project(op.receptance, kReceptance, scratch.r);
  project(op.key, kKey, scratch.k);
  project(op.value, kValue, scratch.v);
  FindGate(context, op.decay_a, op.decay_b, op.decay_bias, scratch.Mixed(kDecay), vec.tanh, scratch,
           scratch.w);
  FindGate(context, op.rate_a, op.rate_b, op.rate_bias, scratch.Mixed(kRate), nullptr, scratch,
           scratch.a);
  FindGate(context, op.gate_a, op.gate_b, nullptr, scratch.Mixed(kGate), vec.sigmoid, scratch,
           scratch.g);
  if (!op.mix_a) return;
  FindGate(context, op.mix_a, op.mix_b, op.mix_bias, scratch.Mixed(kValue), nullptr, scratch,
           scratch.mix);
}

// Computes the decays, values and both keys of one row from its projections.
void FinishRow(StepContext* context, const Bound<TimeMix>& op, const TimeMixScratch& scratch,
               int64_t row) {
  const VectorKernels& vec = context->compute.vec();
  const TimeMix& spec = *op.spec;
  const int64_t n = scratch.n;
  float *const w = scratch.w.row(row), *const k = scratch.k.row(row), *const v = scratch.v.row(row);
  float *const d = scratch.d.row(row), *const first = context->scratch.first_values.row(row);
  vec.scale(static_cast<float>(-std::exp(-0.5)), n, w);
  vec.exp(n, w);
  if (spec.is_first) {
    std::copy_n(v, n, first);
  } else {
    float* const mixed = scratch.y.row(row);
    Mix(vec, v, first, scratch.mix.row(row), n, mixed);
    std::copy_n(mixed, n, v);
  }
  std::copy_n(k, n, d);
  vec.multiply(op.removal, n, d);
  for (int head = 0; head < spec.n_heads; ++head) {
    vec.set_length(spec.head_dim, 1e-12f, 1, d + head * spec.head_dim);
  }
  // k (1 + (a - 1) renewal) = k - k renewal + k renewal a
  float* const renewed = scratch.y.row(row);
  std::copy_n(k, n, renewed);
  vec.multiply(op.renewal, n, renewed);
  vec.add_scaled(renewed, n, -1, k);
  vec.multiply(scratch.a.row(row), n, renewed);
  vec.add(renewed, n, k);
}

// Advances a head's state, (key channel, value channel), by one token.
void AdvanceHead(const TimeMixScratch& scratch, int64_t row, int64_t at, int64_t dim,
                 std::span<float> removed, float* state) {
  const float *const r = scratch.r.row(row) + at, *const w = scratch.w.row(row) + at;
  const float *const k = scratch.k.row(row) + at, *const v = scratch.v.row(row) + at;
  const float *const a = scratch.a.row(row) + at, *const d = scratch.d.row(row) + at;
  float* const y = scratch.y.row(row) + at;
  std::ranges::fill(removed, 0.0f);
  std::fill_n(y, dim, 0.0f);
  for (int64_t j = 0; j < dim; ++j) {
    for (int64_t c = 0; c < dim; ++c) removed[static_cast<size_t>(c)] += state[j * dim + c] * d[j];
  }
  for (int64_t j = 0; j < dim; ++j) {
    const float taken = d[j] * a[j];
    for (int64_t c = 0; c < dim; ++c) {
      float& s = state[j * dim + c];
      s = w[j] * s - taken * removed[static_cast<size_t>(c)] + k[j] * v[c];
      y[c] += s * r[j];
    }
  }
}

void AdvanceTimeMix(StepContext* context, const TimeMix& spec, const TimeMixScratch& scratch) {
  const int64_t dim = spec.head_dim, n_tasks = context->n_sequences() * spec.n_heads;
  const auto run = [&](int64_t begin, int64_t end, int) {
    std::vector<float> removed(static_cast<size_t>(dim));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sequence = task / spec.n_heads, head = task % spec.n_heads;
      const RowRange rows = RowsOf(*context, sequence);
      float* const state = StateOf(*context, sequence, spec.slot) + head * dim * dim;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        AdvanceHead(scratch, row, head * dim, dim, removed, state);
      }
    }
  };
  context->compute.TimeAttention([&] { context->compute.RunTasks(n_tasks, run); });
}

}  // namespace

void PlanOp(const Bound<TimeMix>& op, Arena* arena) {
  static_cast<void>(TimeMixScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<TimeMix>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const TimeMix& spec = *op.spec;
  Compute& compute = context->compute;
  const VectorKernels& vec = compute.vec();
  const int64_t n_rows = context->n_rows(), n = x.width, dim = spec.head_dim;
  Arena arena = context->scratch.ForRows(n_rows);
  const TimeMixScratch scratch{op, &arena};
  compute.ForEach(n_rows, kMixParts * n * kStep, [&](int64_t row, int) {
    const float* const before = InputBefore(*context, spec.shift_slot, x, row);
    for (int64_t part = 0; part < kMixParts; ++part) {
      Mix(vec, x.row(row), before, op.lerp + part * n, n, scratch.mixed.row(row) + part * n);
    }
  });
  KeepLastInputs(context, spec.shift_slot, x);
  ProjectTimeMix(context, op, scratch);
  compute.ForEach(n_rows, 8 * n * kExp,
                  [&](int64_t row, int) { FinishRow(context, op, scratch, row); });
  AdvanceTimeMix(context, spec, scratch);
  compute.ForEach(n_rows, 4 * n * kStep, [&](int64_t row, int) {
    float* const y = scratch.y.row(row);
    compute.NormRow(op.norm, y, n, y);
    for (int64_t at = 0; at < n; at += dim) {
      float sum = 0;
      for (int64_t j = at; j < at + dim; ++j) {
        sum += scratch.k.row(row)[j] * scratch.r.row(row)[j] * op.bonus[j];
      }
      vec.add_scaled(scratch.v.row(row) + at, dim, sum, y + at);
    }
    vec.multiply(scratch.g.row(row), n, y);
  });
  const ActivationRows inner = compute.Input(scratch.y, n_rows, {&op.out}, scratch.input);
  compute.Multiply({MakeProduct(op.out, inner, n_rows, out)});
}

namespace {

struct ChannelMixScratch {
  const Bound<ChannelMix>& op;
  Arena* arena;
  RowsView mixed = arena->Rows(op.key.matrix.n_in);
  RowsView inner = arena->Rows(op.key.matrix.n_out);
  Int8View input = arena->Int8(op.key.matrix.n_in);
  Int8View inner_int8 = arena->Int8(op.value.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<ChannelMix>& op, Arena* arena) {
  static_cast<void>(ChannelMixScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<ChannelMix>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const ChannelMixScratch scratch{op, &arena};
  compute.ForEach(n, x.width * kStep, [&](int64_t row, int) {
    Mix(compute.vec(), x.row(row), InputBefore(*context, op.spec->shift_slot, x, row), op.lerp,
        x.width, scratch.mixed.row(row));
  });
  KeepLastInputs(context, op.spec->shift_slot, x);
  const ActivationRows input = compute.Input(scratch.mixed, n, {&op.key}, scratch.input);
  compute.Multiply({MakeProduct(op.key, input, n, scratch.inner)});
  compute.ForEach(n, scratch.inner.width * kStep, [&](int64_t row, int) {
    compute.vec().activate(ShapeOf(Activation::kReluSquared), scratch.inner.row(row), nullptr,
                           scratch.inner.width, scratch.inner.row(row));
  });
  const ActivationRows inner = compute.Input(scratch.inner, n, {&op.value}, scratch.inner_int8);
  compute.Multiply({MakeProduct(op.value, inner, n, out)});
}

}  // namespace weft::cpu
