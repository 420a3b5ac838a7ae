// Attention with few keys of many values: latent attention whose keys are unfolded, and attention
// to compressed entries; part of operations.h.
#ifndef WEFT_MODEL_LATENT_OPERATIONS_H_
#define WEFT_MODEL_LATENT_OPERATIONS_H_

#include <cmath>
#include <cstdint>

#include "model/operation_parts.h"

namespace weft {

// Multi-head latent attention that stores every head's keys and values.
//
//   q_h = [nope, rope] per head, from q_b(q_a_norm(q_a(x)))
//   [c, k_rope] = kv_a(x);  [k_nope, v] per head = kv_b(kv_norm(c));  rope on q's and k's rope part
//   stored: k_h = [k_nope, k_rope], v_h;  attention with as many key heads as query heads;  out
template <typename Form>
struct UnfoldedLatentAttentionTensors {
  typename Form::Linear q_a, q_b;
  typename Form::Norm q_a_norm;
  typename Form::Linear kv_a;  // n_out = latent_dim + rope_dim
  typename Form::Norm kv_norm;
  typename Form::Linear kv_b;  // n_out = n_heads * (nope_dim + v_dim)
  typename Form::Linear out;
};
struct UnfoldedLatentAttention : UnfoldedLatentAttentionTensors<InFile> {
  int kv_layer = -1;
  int n_heads = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t latent_dim = 0;
  int64_t v_dim = 0;
  int rope = -1;
  float scale = 1;

  template <typename Form>
  using Tensors = UnfoldedLatentAttentionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t k_dim = nope_dim + rope_dim;
    visitor.Kv({kv_layer, n_heads, n_heads, k_dim, v_dim, false, true});
    visitor.UsesRope(rope, rope_dim);
    visitor.Require(n_heads > 0 && nope_dim > 0 && rope_dim > 0 && latent_dim > 0 && v_dim > 0,
                    "heads hold values");
    visitor.Require(std::isfinite(scale), "scores are finite");
    visitor.Tensor(q_a, {.n_in = d_model, .n_out = q_b.n_in}, of.q_a...);
    visitor.Tensor(q_b, {.n_in = q_a.n_out, .n_out = n_heads * k_dim}, of.q_b...);
    visitor.Tensor(q_a_norm, {.n_in = q_a.n_out}, of.q_a_norm...);
    visitor.Tensor(kv_a, {.n_in = d_model, .n_out = latent_dim + rope_dim}, of.kv_a...);
    visitor.Tensor(kv_norm, {.n_in = latent_dim}, of.kv_norm...);
    visitor.Tensor(kv_b, {.n_in = latent_dim, .n_out = n_heads * (nope_dim + v_dim)}, of.kv_b...);
    visitor.Tensor(out, {.n_in = n_heads * v_dim, .n_out = d_model}, of.out...);
  }
};

// Entries: each condenses a run of `stride` positions into `dim` values.
//
// Of each position p, two rows are stored: c_p = content(x), g_p = gate(x) + offsets[p % stride].
// Entry w, made once the last position of run w is there, is, dimension by dimension,
//   e_w = norm(sum over its rows: softmax(g)_p c_p)
// over the positions of run w. With `overlaps`, rows have two halves: e_w is made of the first
// halves of run w - 1 (nothing before the first run) and the second halves of run w. Its last
// values are rotated as at position w * stride. It is stored at its run's last position.
template <typename Form>
struct EntryTensors {
  typename Form::Linear content, gate;
  typename Form::Vector offsets = {};  // (stride, width())
  typename Form::Norm norm;
  bool operator==(const EntryTensors&) const = default;
};
struct EntrySeries {
  int64_t stride = 0;  // 0: there are no entries
  int64_t dim = 0;
  bool overlaps = false;
  int recent_layer = -1;  // KvLayer of c and g, exact, whose window is reach()
  int entry_layer = -1;   // KvLayer of the entries, with this stride and no values
  explicit operator bool() const { return stride > 0; }
  bool operator==(const EntrySeries&) const = default;

  int64_t width() const { return overlaps ? 2 * dim : dim; }
  // Positions that an entry is made of.
  int64_t reach() const { return overlaps ? 2 * stride : stride; }
  // Entries that a query at `position` may see.
  int64_t SeenFrom(int64_t position) const { return (position + 1) / stride; }
  // Whether the entry SeenFrom(position) - 1 is made at this position.
  bool EndsAt(int64_t position) const { return stride > 0 && (position + 1) % stride == 0; }

  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, const EntryTensors<InFile>& in_file, Visitor&& visitor,
             Of&... of) const {
    const bool needed = stride > 0;
    if (needed) {
      visitor.Kv({recent_layer, 1, 1, width(), width(), false, true, 1, true});
      visitor.Kv({entry_layer, 1, 1, dim, 0, false, true, stride, false});
      visitor.Require(dim > 0, "entries hold values");
    }
    const Shape rows = {.n_in = d_model, .n_out = width(), .needed = needed};
    visitor.Tensor(in_file.content, rows, of.content...);
    visitor.Tensor(in_file.gate, rows, of.gate...);
    visitor.Table(in_file.offsets, width(), stride, of.offsets...);
    visitor.Tensor(in_file.norm, {.n_in = dim, .needed = needed}, of.norm...);
  }
};

// Attention to the last positions and to entries of all earlier ones. The one key head's keys are
// also its values.
//
//   r = q_a_norm(q_a(x));  q_h = q_norm(q_b(r)) per head;  key = kv_norm(kv(x));  stored
//   score = scale * q . key, for the keys of the window and for the entries; one softmax over both,
//   with exp(sink[h]) in its denominator
//   o_h = sum of the keys by it;  out_b(concat over groups of heads: out_a[g](o of the group))
// The last rope_dim values of q_h and key are rotated by their positions, and those of o_h back by
// the query's.
//
// With an `index`, whose entries are of their own, a query sees only the `count` entries with the
// largest sum over index heads of relu(index_q(r)_h . e') index_weights(x)_h. Ties go to the
// earlier entry. Queries of the index are rotated like the others.
template <typename Form>
struct CompressedAttentionTensors {
  typename Form::Linear q_a, q_b;
  typename Form::Norm q_a_norm, q_norm;
  typename Form::Linear kv;
  typename Form::Norm kv_norm;
  typename Form::Vector sinks = {};  // F32, one per query head
  typename Form::Stack out_a;        // a member for each group of heads
  typename Form::Linear out_b;
  EntryTensors<Form> entries, index_entries;
  typename Form::Linear index_q, index_weights;
};
struct CompressedAttention : CompressedAttentionTensors<InFile> {
  int kv_layer = -1;
  int n_heads = 0;
  int64_t dim = 0;  // per head
  int64_t rope_dim = 0;
  int rope = -1;
  float scale = 1;
  EntrySeries series, index;
  int n_index_heads = 0;
  int64_t count = 0;

  template <typename Form>
  using Tensors = CompressedAttentionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Kv({kv_layer, n_heads, 1, dim, dim, true, true});
    visitor.UsesRope(rope, rope_dim);
    visitor.Require(n_heads > 0 && rope_dim > 0 && rope_dim <= dim && std::isfinite(scale),
                    "heads hold values, of which some rotate");
    visitor.Require(!series || series.dim == dim, "entries are as wide as keys");
    visitor.Require(!index || (series && index.stride == series.stride && n_index_heads > 0 &&
                               index.dim >= rope_dim && count > 0),
                    "an index chooses among entries");
    const int64_t n_groups = out_a.count;
    visitor.Require(n_groups > 0 && n_heads % n_groups == 0, "as many heads in each group");
    visitor.Tensor(q_a, {.n_in = d_model, .n_out = q_b.n_in}, of.q_a...);
    visitor.Tensor(q_a_norm, {.n_in = q_a.n_out}, of.q_a_norm...);
    visitor.Tensor(q_b, {.n_in = q_a.n_out, .n_out = n_heads * dim}, of.q_b...);
    visitor.Tensor(q_norm, {.n_in = dim, .n_out = n_heads}, of.q_norm...);
    visitor.Tensor(kv, {.n_in = d_model, .n_out = dim}, of.kv...);
    visitor.Tensor(kv_norm, {.n_in = dim}, of.kv_norm...);
    visitor.Tensor(sinks, {.n_in = n_heads, .needed = false}, of.sinks...);
    visitor.Tensor(out_a,
                   {n_heads * dim / (n_groups > 0 ? n_groups : 1), out_a.n_out, n_groups, n_groups},
                   of.out_a...);
    visitor.Tensor(out_b, {.n_in = n_groups * out_a.n_out, .n_out = d_model}, of.out_b...);
    series.Visit(d_model, entries, visitor, of.entries...);
    index.Visit(d_model, index_entries, visitor, of.index_entries...);
    const bool chooses = static_cast<bool>(index);
    visitor.Tensor(index_q,
                   {.n_in = q_a.n_out, .n_out = n_index_heads * index.dim, .needed = chooses},
                   of.index_q...);
    visitor.Tensor(index_weights, {.n_in = d_model, .n_out = n_index_heads, .needed = chooses},
                   of.index_weights...);
  }
};

}  // namespace weft

#endif  // WEFT_MODEL_LATENT_OPERATIONS_H_
