// Latent attention, absorbed and unfolded.
#include "compute/cpu/latent_attention.h"

#include <cstring>
#include <vector>

#include "compute/cpu/attention_scan.h"
#include "compute/cpu/key_choice.h"

namespace weft::cpu {

// --- latent attention ------------------------------------------------------------------

void MultiplyHeads(StepContext* context, const BoundStack& stack, int n_heads, const RowsView& x,
                   int64_t x_head_stride, const Int8View& int8, const RowsView& out,
                   int64_t out_head_stride) {
  const int64_t n = context->n_rows();
  std::vector<Product> products;
  if (WantsInt8(stack.first)) {
    context->compute.ForEach(n_heads * n, int8.width * kStep, [&](int64_t i, int) {
      context->compute.QuantizeRow(x.row(i % n) + i / n * x_head_stride, int8,
                                   i / n * WholePanels(n) + i % n);
    });
  }
  for (int head = 0; head < n_heads; ++head) {
    Product product;
    product.matrix = stack.Member(head);
    if (stack.bias != nullptr) product.bias = stack.bias + head * stack.first.n_out;
    if (stack.scale != nullptr) product.scale = stack.scale[head];
    product.x.values = x.values + head * x_head_stride;
    product.x.values_stride = x.stride;
    if (WantsInt8(stack.first)) product.x.int8 = int8.Rows(head * WholePanels(n));
    product.n_rows = n;
    product.out = out.values + head * out_head_stride;
    product.out_stride = out.stride;
    products.push_back(product);
  }
  context->compute.Multiply(products);
}

namespace {

struct LatentScratch {
  const Bound<LatentAttention>& op;
  Arena* arena;
  const LatentAttention& spec = *op.spec;
  int64_t int8_heads = spec.n_heads * WholePanels(arena->n_rows());
  Int8View input = arena->Int8(op.kv_a.matrix.n_in);
  RowsView low = arena->Rows(op.q_a.matrix.n_out);  // low-rank queries
  Int8View low_int8 = arena->Int8(op.q_b.matrix.n_in);
  RowsView q = arena->Rows(spec.n_heads * (spec.nope_dim + spec.rope_dim));  // as projected
  Int8View q_int8 = arena->Int8(spec.nope_dim, int8_heads);
  // Queries, keys and sums in the latent space.
  RowsView queries = arena->Rows(spec.n_heads * (spec.latent_dim + spec.rope_dim));
  RowsView keys = arena->Rows(spec.latent_dim + spec.rope_dim);
  RowsView sums = arena->Rows(spec.n_heads * spec.latent_dim);
  Int8View sums_int8 = arena->Int8(spec.latent_dim, int8_heads);
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);  // the heads' outputs
  Int8View inner = arena->Int8(op.out.matrix.n_in);
  RowsView index_q = arena->Rows(op.index_q.matrix.n_out);
  RowsView index_k = arena->Rows(op.index_k.matrix.n_out);
  RowsView index_weights = arena->Rows(op.index_weights.matrix.n_out);
};

void ChooseLatentKeys(StepContext* context, const Bound<LatentAttention>& op, const RowsView& x,
                      const LatentScratch& scratch) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const ActivationRows input = compute.Input(x, n, {&op.index_k, &op.index_weights}, scratch.input);
  compute.Multiply({MakeProduct(op.index_k, input, n, scratch.index_k),
                    MakeProduct(op.index_weights, input, n, scratch.index_weights)});
  for (int64_t row = 0; row < n; ++row) {
    compute.vec().scale(op.spec->index_scale, scratch.index_weights.width,
                        scratch.index_weights.row(row));
  }
  // Index keys are in the same group, whose pages are already touched.
  StoreIndexKeys(context, op.spec->choice, op.index_k_norm, scratch.index_k);
  ChooseKeys(context, op.spec->choice, scratch.index_q, scratch.index_weights);
}

}  // namespace

void PlanOp(const Bound<LatentAttention>& op, Arena* arena) {
  static_cast<void>(LatentScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<LatentAttention>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const LatentAttention& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const int64_t q_dim = spec.nope_dim + spec.rope_dim;
  const int64_t k_dim = spec.latent_dim + spec.rope_dim;
  Arena arena = context->scratch.ForRows(n);
  const LatentScratch scratch{op, &arena};
  const RowsView &low = scratch.low, &q = scratch.q, &queries = scratch.queries;
  const RowsView &keys = scratch.keys, &sums = scratch.sums, &heads = scratch.heads;

  if (op.q) {
    const ActivationRows input = compute.Input(x, n, {&op.q, &op.kv_a}, scratch.input);
    compute.Multiply({MakeProduct(op.q, input, n, q), MakeProduct(op.kv_a, input, n, keys)});
  } else {
    const ActivationRows input = compute.Input(x, n, {&op.q_a, &op.kv_a}, scratch.input);
    compute.Multiply({MakeProduct(op.q_a, input, n, low), MakeProduct(op.kv_a, input, n, keys)});
    compute.ForEach(n, low.width * kStep, [&](int64_t row, int) {
      compute.NormRow(op.q_a_norm, low.row(row), low.width, low.row(row));
    });
    const ActivationRows inner = compute.Input(low, n, {&op.q_b, &op.index_q}, scratch.low_int8);
    compute.Multiply({MakeProduct(op.q_b, inner, n, q)});
    if (op.index_q) compute.Multiply({MakeProduct(op.index_q, inner, n, scratch.index_q)});
  }
  MultiplyHeads(context, op.k_b, spec.n_heads, q, q_dim, scratch.q_int8, queries, k_dim);

  TouchPages(context, spec.kv_layer);
  compute.ForEach(n, (queries.width + k_dim) * kStep, [&](int64_t row, int) {
    for (int head = 0; head < spec.n_heads; ++head) {
      float* const rotated = queries.row(row) + head * k_dim + spec.latent_dim;
      std::memcpy(rotated, q.row(row) + head * q_dim + spec.nope_dim,
                  sizeof(float) * spec.rope_dim);
      context->Rotate(spec.rope, row, rotated);
    }
    context->Warm(spec.temperature, row, queries.width, queries.row(row));
    float* const key = keys.row(row);
    compute.NormRow(op.kv_norm, key, spec.latent_dim, key);
    context->Rotate(spec.rope, row, key + spec.latent_dim);
    const int64_t position = context->rows[row].position;
    const auto table = context->TableOf(spec.kv_layer, context->rows[row].sequence);
    compute.vec().store_kv(context->state.shape(spec.kv_layer), key, key,
                           static_cast<int>(position % kKvTileTokens),
                           context->state.Tile(spec.kv_layer, 0, table, position));
  });

  if (spec.choice.Chooses()) ChooseLatentKeys(context, op, x, scratch);
  if (spec.choice) {
    AttendToChosen(context, {spec.kv_layer, spec.n_heads, spec.scale, 0, nullptr, queries.values,
                             queries.stride, sums.values});
  } else {
    const Scan scan{spec.kv_layer,  spec.n_heads,   spec.scale, 0,          nullptr,
                    queries.values, queries.stride, k_dim,      sums.values};
    AttendRows(context, scan);
  }
  MultiplyHeads(context, op.v_b, spec.n_heads, sums, spec.latent_dim, scratch.sums_int8, heads,
                spec.v_dim);
  const ActivationRows inner = compute.Input(heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

// --- latent attention, unfolded ------------------------------------------------------------

namespace {

struct UnfoldedScratch {
  const Bound<UnfoldedLatentAttention>& op;
  Arena* arena;
  const UnfoldedLatentAttention& spec = *op.spec;
  RowsView low = arena->Rows(op.q_a.matrix.n_out);
  RowsView latent = arena->Rows(spec.latent_dim + spec.rope_dim);
  RowsView q = arena->Rows(op.q_b.matrix.n_out);
  RowsView kv = arena->Rows(op.kv_b.matrix.n_out);
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);
  RowsView key = arena->Rows(spec.nope_dim + spec.rope_dim);
  Int8View input = arena->Int8(op.kv_a.matrix.n_in);
  Int8View low_int8 = arena->Int8(op.q_b.matrix.n_in);
  Int8View latent_int8 = arena->Int8(op.kv_b.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

// Writes a row's keys (nope part per head, one shared rope part) and values into their tiles.
void StoreUnfolded(StepContext* context, const UnfoldedLatentAttention& spec,
                   const UnfoldedScratch& scratch, int64_t row) {
  float* const key = scratch.key.row(row);
  std::memcpy(key + spec.nope_dim, scratch.latent.row(row) + spec.latent_dim,
              sizeof(float) * static_cast<size_t>(spec.rope_dim));
  context->Rotate(spec.rope, row, key + spec.nope_dim);
  const int64_t position = context->rows[row].position;
  const auto table = context->TableOf(spec.kv_layer, context->rows[row].sequence);
  for (int head = 0; head < spec.n_heads; ++head) {
    const float* const kv = scratch.kv.row(row) + head * (spec.nope_dim + spec.v_dim);
    std::memcpy(key, kv, sizeof(float) * static_cast<size_t>(spec.nope_dim));
    context->compute.vec().store_kv(context->state.shape(spec.kv_layer), key, kv + spec.nope_dim,
                                    static_cast<int>(position % kKvTileTokens),
                                    context->state.Tile(spec.kv_layer, head, table, position));
  }
}

}  // namespace

void PlanOp(const Bound<UnfoldedLatentAttention>& op, Arena* arena) {
  static_cast<void>(UnfoldedScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<UnfoldedLatentAttention>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const UnfoldedLatentAttention& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows(), k_dim = spec.nope_dim + spec.rope_dim;
  Arena arena = context->scratch.ForRows(n);
  const UnfoldedScratch scratch{op, &arena};
  const RowsView &low = scratch.low, &q = scratch.q, &latent = scratch.latent;
  const ActivationRows input = compute.Input(x, n, {&op.q_a, &op.kv_a}, scratch.input);
  compute.Multiply({MakeProduct(op.q_a, input, n, low), MakeProduct(op.kv_a, input, n, latent)});
  compute.ForEach(n, (low.width + latent.width) * kStep, [&](int64_t row, int) {
    compute.NormRow(op.q_a_norm, low.row(row), low.width, low.row(row));
    compute.NormRow(op.kv_norm, latent.row(row), spec.latent_dim, latent.row(row));
  });
  const ActivationRows lows = compute.Input(low, n, {&op.q_b}, scratch.low_int8);
  const ActivationRows latents =
      compute.Input(latent.Columns(0, spec.latent_dim), n, {&op.kv_b}, scratch.latent_int8);
  compute.Multiply({MakeProduct(op.q_b, lows, n, q), MakeProduct(op.kv_b, latents, n, scratch.kv)});

  TouchPages(context, spec.kv_layer);
  compute.ForEach(n, (q.width + scratch.kv.width) * kNormRotate, [&](int64_t row, int) {
    for (int head = 0; head < spec.n_heads; ++head) {
      context->Rotate(spec.rope, row, q.row(row) + head * k_dim + spec.nope_dim);
    }
    StoreUnfolded(context, spec, scratch, row);
  });
  const Scan scan{spec.kv_layer, spec.n_heads, spec.scale,          0, nullptr, q.values,
                  q.stride,      k_dim,        scratch.heads.values};
  AttendRows(context, scan);
  const ActivationRows inner = compute.Input(scratch.heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

}  // namespace weft::cpu
