// The feed-forward operations of a step, except mixtures of experts (experts.cc).
#include <algorithm>
#include <cmath>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// --- dense -----------------------------------------------------------------------------

namespace {

struct DenseScratch {
  const Bound<DenseFfn>& op;
  Arena* arena;
  RowsView up = arena->Rows(op.up.matrix.n_out);  // then the activated product
  RowsView gate = arena->Rows(op.gate.matrix.n_out);
  RowsView output_gate = arena->Rows(1);
  Int8View input = arena->Int8(op.up.matrix.n_in);
  Int8View inner = arena->Int8(op.down.matrix.n_in);
};

// Subtracts from a row's gates their mean plus a multiple of their deviation, and clamps at zero.
void KeepLargest(float sparsity, int64_t n, float* gates) {
  if (sparsity == 0) return;
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) mean += gates[i];
  mean /= static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) squares += (gates[i] - mean) * (gates[i] - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
  const auto least = static_cast<float>(mean + sparsity * deviation);
  for (int64_t i = 0; i < n; ++i) gates[i] = std::max(0.0f, gates[i] - least);
}

}  // namespace

void PlanOp(const Bound<DenseFfn>& op, Arena* arena) { static_cast<void>(DenseScratch{op, arena}); }

void RunOp(StepContext* context, const Bound<DenseFfn>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const DenseFfn& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const DenseScratch scratch{op, &arena};
  const RowsView &up = scratch.up, &gate = scratch.gate, &output_gate = scratch.output_gate;

  const ActivationRows input =
      compute.Input(x, n, {&op.gate, &op.up, &op.output_gate}, scratch.input);
  Product products[3] = {MakeProduct(op.up, input, n, up)};
  size_t n_products = 1;
  if (op.gate) products[n_products++] = MakeProduct(op.gate, input, n, gate);
  if (op.output_gate) products[n_products++] = MakeProduct(op.output_gate, input, n, output_gate);
  compute.Multiply(std::span<const Product>(products, n_products));

  const bool int8 = WantsInt8(op.down.matrix);
  const ActivationShape form = ShapeOf(spec.activation, spec.numbers);
  compute.ForEach(n, up.width * kExp, [&](int64_t row, int) {
    if (op.gate) KeepLargest(spec.sparsity, up.width, gate.row(row));
    compute.vec().activate(form, op.gate ? gate.row(row) : up.row(row),
                           op.gate ? up.row(row) : nullptr, up.width, up.row(row));
    if (int8) compute.QuantizeRow(up.row(row), scratch.inner, row);
  });
  const ActivationRows inner = Quantized(up, op.down.matrix, scratch.inner);
  compute.Multiply({MakeProduct(op.down, inner, n, out)});

  if (!op.output_gate) return;
  compute.ForEach(n, out.width * kStep, [&](int64_t row, int) {
    compute.vec().sigmoid(1, output_gate.row(row));
    compute.vec().scale(*output_gate.row(row), out.width, out.row(row));
  });
}

// --- per-layer gate ----------------------------------------------------------------------

namespace {

struct GateScratch {
  const Bound<PerLayerGate>& op;
  Arena* arena;
  RowsView gate = arena->Rows(op.gate.matrix.n_out);  // then the activated product
  Int8View input = arena->Int8(op.gate.matrix.n_in);
  Int8View inner = arena->Int8(op.proj.matrix.n_in);
};

}  // namespace

void PlanOp(const Bound<PerLayerGate>& op, Arena* arena) {
  static_cast<void>(GateScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<PerLayerGate>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const GateScratch scratch{op, &arena};
  const RowsView& gate = scratch.gate;
  const ActivationRows input = compute.Input(x, n, {&op.gate}, scratch.input);
  compute.Multiply({MakeProduct(op.gate, input, n, gate)});
  compute.ForEach(n, gate.width * kExp, [&](int64_t row, int) {
    const float* const own = context->scratch.per_layer.row(row) + op.spec->layer * gate.width;
    compute.vec().activate(ShapeOf(op.spec->activation), gate.row(row), own, gate.width,
                           gate.row(row));
  });
  const ActivationRows inner = compute.Input(gate, n, {&op.proj}, scratch.inner);
  compute.Multiply({MakeProduct(op.proj, inner, n, out)});
}

}  // namespace weft::cpu
