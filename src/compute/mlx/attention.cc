// The attention operations of step_context.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compute/mlx/step_context.h"

namespace weft::mlx {

namespace {

// Memory for scores at a time, where MLX does not fuse them away.
constexpr int64_t kScoreBytes = 64 << 20;

// Which keys a query sees, counted from the first key in memory.
struct Sight {
  enum class Kind { kAll, kUpToOwn, kMask } kind = Kind::kAll;
  std::optional<mx::array> mask;  // [queries, keys] of bool; or [heads, queries, keys] to add
};

struct Scan {
  int64_t n_heads, n_kv_heads;
  float scale;
  float softcap = 0;
  const std::optional<mx::array>* sinks = nullptr;
};

// MLX's fused attention has no softcap: scores must be capped before they are masked.
mx::array AttendWithSoftcap(const Scan& scan, const mx::array& q, const mx::array& k,
                            const mx::array& v, const mx::array& mask) {
  const int n = q.shape(2), n_keys = k.shape(2);
  const int n_kv = Size(scan.n_kv_heads), per_kv = Size(scan.n_heads / scan.n_kv_heads);
  const mx::array grouped = mx::reshape(q, {1, n_kv, per_kv * n, q.shape(3)});
  mx::array scores = mx::matmul(grouped, mx::swapaxes(k, -1, -2)) * mx::array(scan.scale);
  scores = mx::reshape(Softcap(scan.softcap, scores), {1, n_kv, per_kv, n, n_keys});
  scores = mx::where(mask, scores, mx::array(-std::numeric_limits<float>::infinity()));
  if (scan.sinks != nullptr && *scan.sinks) {
    const mx::array sinks = mx::broadcast_to(mx::reshape(**scan.sinks, {1, n_kv, per_kv, 1, 1}),
                                             {1, n_kv, per_kv, n, 1});
    scores = mx::concatenate({scores, sinks}, -1);
  }
  const mx::array weights = Columns(mx::softmax(scores, -1, /*precise=*/true), 0, n_keys);
  const mx::array sums = mx::matmul(mx::reshape(weights, {1, n_kv, per_kv * n, n_keys}), v);
  return mx::reshape(sums, {1, Size(scan.n_heads), n, v.shape(3)});
}

// A mask for queries [first, first + n) of `n_queries`; the last query belongs to the last key.
// Query i sees key j iff j <= i and i - j < window (0: all).
mx::array CausalMask(int64_t first, int64_t n, int64_t n_queries, int64_t n_keys, int64_t window) {
  std::vector<uint8_t> seen(static_cast<size_t>(n * n_keys));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t own = n_keys - n_queries + first + i;
    const int64_t begin = window > 0 ? std::max<int64_t>(0, own - window + 1) : 0;
    std::fill_n(seen.begin() + i * n_keys + begin, own + 1 - begin, uint8_t{1});
  }
  return mx::astype(FromHost<uint8_t>(seen, {Size(n), Size(n_keys)}), mx::bool_);
}

// q: [1, heads, queries, dim]; k, v: [1, kv heads, keys, dim].
mx::array Attend(const Scan& scan, const Sight& sight, const mx::array& q, const mx::array& k,
                 const mx::array& v) {
  if (scan.softcap > 0) return AttendWithSoftcap(scan, q, k, v, *sight.mask);
  const std::optional<mx::array> sinks = scan.sinks != nullptr ? *scan.sinks : std::nullopt;
  switch (sight.kind) {
    case Sight::Kind::kAll:
      return mx::fast::scaled_dot_product_attention(q, k, v, scan.scale, "", {}, sinks);
    case Sight::Kind::kUpToOwn:
      return mx::fast::scaled_dot_product_attention(q, k, v, scan.scale, "causal", {}, sinks);
    case Sight::Kind::kMask:
      break;
  }
  return mx::fast::scaled_dot_product_attention(q, k, v, scan.scale, "array", sight.mask, sinks);
}

// [rows, heads * dim] -> [1, heads, rows, dim].
mx::array ByHead(const mx::array& rows, int64_t n_heads) {
  return mx::expand_dims(mx::swapaxes(AsHeads(rows, n_heads), 0, 1), 0);
}

// [1, heads, rows, dim] -> [rows, heads * dim].
mx::array ByRow(const mx::array& heads) {
  return AsRows(mx::swapaxes(mx::squeeze(heads, 0), 0, 1));
}

int64_t RowsAtOnce(const Scan& scan, int64_t n_keys) {
  const int64_t row_bytes = scan.n_heads * n_keys * static_cast<int64_t>(sizeof(float));
  return std::max<int64_t>(1, kScoreBytes / std::max<int64_t>(1, row_bytes));
}

mx::array RowsOf(const mx::array& x, int64_t first, int64_t count) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start[0] = Size(first);
  stop[0] = Size(first + count);
  return mx::slice(x, start, stop);
}

// One sequence's queries [queries, heads * dim] over its stored keys and values, [kv heads, keys,
// dim] each.
mx::array AttendSequence(const Scan& scan, int64_t window, const mx::array& q, const mx::array& k,
                         const mx::array& v) {
  const int64_t n = q.shape(0), n_keys = k.shape(1);
  const int64_t piece = std::min(n, RowsAtOnce(scan, n_keys));
  const mx::array keys = mx::expand_dims(k, 0), values = mx::expand_dims(v, 0);
  // Whether every query sees all keys before it, down to the first.
  const bool sees_back = window == 0 || n_keys <= window;
  std::vector<mx::array> parts;
  for (int64_t first = 0; first < n; first += piece) {
    const int64_t count = std::min(piece, n - first);
    Sight sight;
    if (sees_back && n == 1 && scan.softcap == 0) {
      sight.kind = Sight::Kind::kAll;
    } else if (sees_back && count == n && scan.softcap == 0) {
      sight.kind = Sight::Kind::kUpToOwn;
    } else {
      sight = {Sight::Kind::kMask, CausalMask(first, count, n, n_keys, window)};
    }
    const mx::array queries = ByHead(RowsOf(q, first, count), scan.n_heads);
    parts.push_back(ByRow(Attend(scan, sight, queries, keys, values)));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

// Attention for all sequences. If a layer stores no values, the first `v_in_k` values of a key are
// the value.
mx::array AttendAll(StepContext* context, const Scan& scan, int kv_layer, int64_t v_in_k,
                    const mx::array& queries) {
  const KvLayer& layer = context->spec().kv_layers[static_cast<size_t>(kv_layer)];
  const int64_t window = context->spec().kv_groups[static_cast<size_t>(layer.group)].window;
  std::vector<mx::array> parts;
  for (const SequenceRows& rows : context->sequences()) {
    if (rows.count == 0) continue;
    const PoolRows& seen = rows.seen[static_cast<size_t>(layer.group)];
    const auto read = [&](const mx::array& pool) { return mx::astype(seen.Of(pool), mx::float32); };
    const Lanes::Use use(context->lanes(), std::ssize(parts));
    const mx::array k = read(context->state().keys(kv_layer));
    const mx::array v =
        v_in_k > 0 ? Columns(k, 0, v_in_k) : read(context->state().values(kv_layer));
    parts.push_back(AttendSequence(scan, window, RowsOf(queries, rows.first, rows.count), k, v));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

mx::array RotateRows(StepContext* context, const mx::array& x, int64_t n_heads, int rope) {
  return AsRows(context->Rotate(AsHeads(x, n_heads), rope, 0));
}

}  // namespace

mx::array RunOp(StepContext* context, const Bound<Attention>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const Attention& spec = *op.spec;
  mx::array q = context->Apply(op.q, x);
  std::optional<mx::array> gate;
  if (spec.gated_query) {
    const mx::array both = AsHeads(q, spec.n_heads);
    gate = AsRows(Columns(both, spec.k_dim, spec.k_dim));
    q = AsRows(Columns(both, 0, spec.k_dim));
  }
  if (op.gate) gate = context->Apply(op.gate, x);
  const auto turned = [&](const BoundNorm& norm, const mx::array& rows, int64_t n_heads) {
    return spec.norms_after_rope ? ApplyNorm(norm, RotateRows(context, rows, n_heads, spec.rope))
                                 : RotateRows(context, ApplyNorm(norm, rows), n_heads, spec.rope);
  };
  q = context->Warm(spec.temperature, turned(op.q_norm, q, spec.n_heads));
  if (spec.writes_kv) {
    const mx::array raw_k = context->Apply(op.k, x);
    const mx::array v = ApplyNorm(op.v_norm, spec.v_from_k ? raw_k : context->Apply(op.v, x));
    const mx::array k = turned(op.k_norm, raw_k, spec.n_kv_heads);
    context->Store(spec.kv_layer, k, &v);
  }
  const Scan scan{.n_heads = spec.n_heads,
                  .n_kv_heads = spec.n_kv_heads,
                  .scale = spec.scale,
                  .softcap = spec.softcap,
                  .sinks = &op.sinks};
  mx::array y = AttendAll(context, scan, spec.kv_layer, 0, q);
  if (gate) {
    const mx::array heads = AsHeads(y, spec.n_heads);
    const mx::array gates = AsHeads(*gate, spec.n_heads);
    const bool is_sigmoid = spec.gate_activation == GateActivation::kSigmoid;
    y = AsRows(heads * (is_sigmoid ? mx::sigmoid(gates) : mx::logaddexp(gates, mx::array(0.0f))));
  }
  return context->Apply(op.out, y);
}

mx::array RunOp(StepContext* context, const Bound<LatentAttention>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const LatentAttention& spec = *op.spec;
  // Queries; their nope part is projected into the latent space.
  const mx::array flat =
      op.q ? context->Apply(op.q, x)
           : context->Apply(op.q_b, ApplyNorm(op.q_a_norm, context->Apply(op.q_a, x)));
  const mx::array q = context->Rotate(AsHeads(flat, spec.n_heads), spec.rope, spec.nope_dim);
  const mx::array absorbed = ApplyToHeads(op.k_b, Columns(q, 0, spec.nope_dim));
  const mx::array queries = context->Warm(
      spec.temperature,
      AsRows(mx::concatenate({absorbed, Columns(q, spec.nope_dim, spec.rope_dim)}, -1)));
  // One key, shared by all heads.
  const mx::array kv = context->Apply(op.kv_a, x);
  const mx::array latent = ApplyNorm(op.kv_norm, Columns(kv, 0, spec.latent_dim));
  const mx::array k_rope =
      RotateRows(context, Columns(kv, spec.latent_dim, spec.rope_dim), 1, spec.rope);
  context->Store(spec.kv_layer, mx::concatenate({latent, k_rope}, -1), nullptr);

  const Scan scan{.n_heads = spec.n_heads, .n_kv_heads = 1, .scale = spec.scale};
  const mx::array sums = AttendAll(context, scan, spec.kv_layer, spec.latent_dim, queries);
  return context->Apply(op.out, AsRows(ApplyToHeads(op.v_b, AsHeads(sums, spec.n_heads))));
}

namespace {

// The bias added to the scores of queries [first, first + n) in a text of `n_keys` tokens.
mx::array DistanceMask(const BidirectionalAttention& op, int64_t first, int64_t n, int64_t n_keys) {
  const int64_t n_heads = op.slopes.empty() ? 1 : op.n_heads;
  std::vector<float> added(static_cast<size_t>(n_heads * n * n_keys));
  size_t at = 0;
  for (int64_t h = 0; h < n_heads; ++h) {
    for (int64_t i = first; i < first + n; ++i) {
      for (int64_t j = 0; j < n_keys; ++j, ++at) {
        const int64_t distance = std::abs(i - j);
        const bool seen = op.reach < 0 || distance <= op.reach;
        const float slope = op.slopes.empty() ? 0 : op.slopes[static_cast<size_t>(h)];
        added[at] =
            seen ? -slope * static_cast<float>(distance) : -std::numeric_limits<float>::infinity();
      }
    }
  }
  return FromHost<float>(added, {1, Size(n_heads), Size(n), Size(n_keys)});
}

}  // namespace

mx::array RunOp(StepContext* context, const Bound<BidirectionalAttention>& op, const mx::array& x,
                const mx::array& /*raw*/) {
  const BidirectionalAttention& spec = *op.spec;
  const mx::array q =
      RotateRows(context, ApplyNorm(op.q_norm, context->Apply(op.q, x)), spec.n_heads, spec.rope);
  const mx::array k = RotateRows(context, ApplyNorm(op.k_norm, context->Apply(op.k, x)),
                                 spec.n_kv_heads, spec.rope);
  const mx::array v = context->Apply(op.v, x);
  const Scan scan{.n_heads = spec.n_heads, .n_kv_heads = spec.n_kv_heads, .scale = spec.scale};
  std::vector<mx::array> parts;
  for (const SequenceRows& text : context->sequences()) {
    const mx::array keys = ByHead(RowsOf(k, text.first, text.count), spec.n_kv_heads);
    const mx::array values = ByHead(RowsOf(v, text.first, text.count), spec.n_kv_heads);
    const int64_t piece = std::min(text.count, RowsAtOnce(scan, text.count));
    for (int64_t first = 0; first < text.count; first += piece) {
      const int64_t count = std::min(piece, text.count - first);
      Sight sight;
      if (!spec.slopes.empty() || spec.reach >= 0) {
        sight = {Sight::Kind::kMask, DistanceMask(spec, first, count, text.count)};
      }
      const mx::array queries = ByHead(RowsOf(q, text.first + first, count), spec.n_heads);
      parts.push_back(ByRow(Attend(scan, sight, queries, keys, values)));
    }
  }
  return context->Apply(op.out, parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0));
}

}  // namespace weft::mlx
