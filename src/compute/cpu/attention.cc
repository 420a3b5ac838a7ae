// Standard attention: projects queries, keys and values of all rows and stores the keys and values.
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>

#include "compute/cpu/attention_scan.h"
#include "compute/cpu/key_choice.h"

namespace weft::cpu {

namespace {

// Norms and rotates one row's keys, and writes keys and values into their tiles.
//   k: (n_kv_heads, k_dim), v: (n_kv_heads, v_dim); both are overwritten
void StoreRow(StepContext* context, const Bound<Attention>& op, int64_t row, float* k, float* v) {
  const Attention& spec = *op.spec;
  if (spec.v_from_k) std::memcpy(v, k, sizeof(float) * spec.n_kv_heads * spec.v_dim);
  const auto norm_keys = [&] {
    context->compute.NormRow(op.k_norm, k, spec.n_kv_heads * spec.k_dim, k);
  };
  if (!spec.norms_after_rope) norm_keys();
  for (int head = 0; head < spec.n_kv_heads; ++head) {
    context->Rotate(spec.rope, row, k + head * spec.k_dim);
  }
  if (spec.norms_after_rope) norm_keys();
  context->compute.NormRow(op.v_norm, v, spec.n_kv_heads * spec.v_dim, v);
  const int64_t position = context->rows[row].position;
  const auto table = context->TableOf(spec.kv_layer, context->rows[row].sequence);
  for (int head = 0; head < spec.n_kv_heads; ++head) {
    context->compute.vec().store_kv(context->state.shape(spec.kv_layer), k + head * spec.k_dim,
                                    v + head * spec.v_dim,
                                    static_cast<int>(position % kKvTileTokens),
                                    context->state.Tile(spec.kv_layer, head, table, position));
  }
}

struct AttentionScratch {
  const Bound<Attention>& op;
  Arena* arena;
  const Attention& spec = *op.spec;
  RowsView q = arena->Rows(spec.n_heads * spec.k_dim * (spec.gated_query ? 2 : 1));  // with gates
  RowsView k = arena->Rows(spec.n_kv_heads * spec.k_dim);
  RowsView v = arena->Rows(spec.n_kv_heads * spec.v_dim);
  RowsView gate = arena->Rows(op.gate.matrix.n_out);        // for the heads' outputs
  RowsView heads = arena->Rows(spec.n_heads * spec.v_dim);  // the heads' outputs
  RowsView index_q = arena->Rows(op.index_q.matrix.n_out);
  RowsView index_k = arena->Rows(op.index_k.matrix.n_out);
  Int8View input = arena->Int8(op.q.matrix.n_in);
  Int8View inner = arena->Int8(op.out.matrix.n_in);
};

// Distance between two heads' queries. With gated queries, each head's gate follows its query.
int64_t QueryStride(const Attention& spec) { return spec.k_dim * (spec.gated_query ? 2 : 1); }

// Applies the gates that follow the queries, or those of a separate matrix.
void GateHeads(StepContext* context, const Attention& spec, const RowsView& q, const RowsView& gate,
               const RowsView& heads) {
  Compute& compute = context->compute;
  if (!spec.gated_query) {
    compute.ForEach(context->n_rows(), heads.width * kExp, [&](int64_t row, int) {
      float* const y = heads.row(row);
      const bool is_sigmoid = spec.gate_activation == GateActivation::kSigmoid;
      if (gate.width == heads.width && is_sigmoid) {
        return compute.vec().multiply_sigmoid(gate.row(row), heads.width, y);
      }
      if (!is_sigmoid) compute.vec().softplus(gate.width, gate.row(row));
      if (gate.width == heads.width) {
        return compute.vec().multiply(gate.row(row), heads.width, y);
      }
      if (is_sigmoid) compute.vec().sigmoid(spec.n_heads, gate.row(row));
      for (int head = 0; head < spec.n_heads; ++head) {
        compute.vec().scale(gate.row(row)[head], spec.v_dim, y + head * spec.v_dim);
      }
    });
    return;
  }
  compute.ForEach(context->n_rows(), heads.width * kExp, [&](int64_t row, int) {
    for (int head = 0; head < spec.n_heads; ++head) {
      const float* const query = q.row(row) + head * QueryStride(spec);
      compute.vec().multiply_sigmoid(query + spec.k_dim, spec.v_dim,
                                     heads.row(row) + head * spec.v_dim);
    }
  });
}

}  // namespace

void PlanOp(const Bound<Attention>& op, Arena* arena) {
  static_cast<void>(AttentionScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<Attention>& op, const RowsView& x, const RowsView&,
           const RowsView& out) {
  const Attention& spec = *op.spec;
  Compute& compute = context->compute;
  Arena arena = context->scratch.ForRows(context->n_rows());
  const AttentionScratch scratch{op, &arena};
  const RowsView &q = scratch.q, &k = scratch.k, &v = scratch.v, &heads = scratch.heads;
  const int64_t head_stride = QueryStride(spec);

  // Computes the products whose matrix exists, in one batch.
  using Projection = std::pair<const BoundLinear*, RowsView>;
  const auto project = [&](std::initializer_list<Projection> projections) {
    const int64_t n = context->n_rows();
    const ActivationRows input = compute.Input(
        x, n, {&op.q, &op.k, &op.v, &op.gate, &op.index_q, &op.index_k}, scratch.input);
    Product products[5];
    size_t n_products = 0;
    for (const auto& [linear, to] : projections) {
      if (*linear) products[n_products++] = MakeProduct(*linear, input, n, to);
    }
    compute.Multiply(std::span<const Product>(products, n_products));
  };
  const auto prepare_query = [&](int64_t row) {
    const bool by_row = !spec.gated_query && !spec.norms_after_rope;
    if (by_row) compute.NormRow(op.q_norm, q.row(row), q.width, q.row(row));
    for (int head = 0; head < spec.n_heads; ++head) {
      float* const query = q.row(row) + head * head_stride;
      if (spec.gated_query) compute.NormRow(op.q_norm, query, spec.k_dim, query);
      context->Rotate(spec.rope, row, query);
    }
    if (spec.norms_after_rope) compute.NormRow(op.q_norm, q.row(row), q.width, q.row(row));
    context->Warm(spec.temperature, row, q.width, q.row(row));
  };
  const auto store = [&](int64_t row) { StoreRow(context, op, row, k.row(row), v.row(row)); };

  if (spec.writes_kv) TouchPages(context, spec.kv_layer);
  if (spec.choice) {  // the index keys' layer is in the same group
    project({{&op.index_k, scratch.index_k}});
    StoreIndexKeys(context, spec.choice, op.index_k_norm, scratch.index_k);
  }
  if (op.last_to_write && context->has_unwanted_rows()) {
    project({{&op.k, k}, {&op.v, v}});
    compute.ForEach(context->n_rows(), (k.width + v.width) * kNormRotate,
                    [&](int64_t row, int) { store(row); });
    context->KeepWantedRows();
    if (context->n_rows() == 0) return;
    project({{&op.q, q}, {&op.gate, scratch.gate}, {&op.index_q, scratch.index_q}});
    compute.ForEach(context->n_rows(), q.width * kNormRotate,
                    [&](int64_t row, int) { prepare_query(row); });
  } else {
    project({{&op.q, q},
             {&op.k, k},
             {&op.v, v},
             {&op.gate, scratch.gate},
             {&op.index_q, scratch.index_q}});
    const int64_t width = q.width + k.width + v.width;
    compute.ForEach(context->n_rows(), width * kNormRotate, [&](int64_t row, int) {
      prepare_query(row);
      if (spec.writes_kv) store(row);
    });
  }

  const int64_t n = context->n_rows();
  const Scan scan{spec.kv_layer, spec.n_heads, spec.scale,  spec.softcap, op.sinks,
                  q.values,      q.stride,     head_stride, heads.values, spec.chunk};
  if (spec.choice) {
    for (int64_t row = 0; row < n; ++row) {
      float* const query = scratch.index_q.row(row);
      compute.NormRow(op.index_q_norm, query, scratch.index_q.width, query);
    }
    ChooseKeys(context, spec.choice, scratch.index_q, {});
    AttendToChosen(context, {spec.kv_layer, spec.n_heads, spec.scale, spec.softcap, op.sinks,
                             q.values, q.stride, heads.values});
  } else {
    AttendRows(context, scan);
  }
  if (spec.gated_query || op.gate) GateHeads(context, spec, q, scratch.gate, heads);
  const ActivationRows inner = compute.Input(heads, n, {&op.out}, scratch.inner);
  compute.Multiply({MakeProduct(op.out, inner, n, out)});
}

}  // namespace weft::cpu
