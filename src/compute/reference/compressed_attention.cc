// Attention to compressed entries, of blocks.h.
#include <algorithm>
#include <cmath>

#include "compute/reference/attention_parts.h"
#include "compute/reference/blocks.h"

namespace weft::reference {

namespace {

void RotateTails(const StepContext& context, const CompressedAttention& op, bool back,
                 int64_t head_width, Rows* x) {
  Rope rope = context.spec.ropes[op.rope];
  for (double& frequency : rope.frequencies) frequency = back ? -frequency : frequency;
  for (int64_t i = 0; i < x->count(); ++i) {
    for (int64_t end = head_width; end <= x->width(); end += head_width) {
      ApplyRope(rope, context.rows[i], x->row(i).subspan(end - op.rope_dim, op.rope_dim));
    }
  }
}

// A dimension's softmax over gates, and the mean of contents by it.
class GatedMean {
 public:
  void Add(double content, double gate) {
    contents_.push_back(content);
    gates_.push_back(gate);
  }
  double Value() const {
    const double largest = *std::ranges::max_element(gates_);
    double sum = 0, total = 0;
    for (size_t i = 0; i < gates_.size(); ++i) {
      const double weight = std::exp(gates_[i] - largest);
      total += weight;
      sum += weight * contents_[i];
    }
    return sum / total;
  }

 private:
  std::vector<double> contents_, gates_;
};

// Computes the sequence's `entry`, before its norm, from the stored contents and gates.
std::vector<float> Condense(const StepContext& context, const EntrySeries& series, int sequence,
                            int64_t entry) {
  const auto table = TableOf(context, series.recent_layer, sequence);
  std::vector<float> content(series.width()), gate(series.width());
  std::vector<GatedMean> means(series.dim);
  const auto add_run = [&](int64_t run, int64_t first_value) {
    for (int64_t j = 0; run >= 0 && j < series.stride; ++j) {
      context.state->Load(series.recent_layer, table, run * series.stride + j, content, gate);
      for (int64_t d = 0; d < series.dim; ++d) {
        means[d].Add(content[first_value + d], gate[first_value + d]);
      }
    }
  };
  if (series.overlaps) add_run(entry - 1, 0);
  add_run(entry, series.width() - series.dim);
  std::vector<float> values;
  for (const GatedMean& mean : means) values.push_back(static_cast<float>(mean.Value()));
  return values;
}

// Stores what entries are made of, and the entries that end at one of the rows.
void StoreEntries(const StepContext& context, const CompressedAttention& op,
                  const EntrySeries& series, const EntryTensors<InFile>& in_file, const Rows& x) {
  const Rows contents = ApplyLinear(context.tensors, in_file.content, x);
  Rows gates = ApplyLinear(context.tensors, in_file.gate, x);
  const std::vector<float> offsets = context.tensors.Values(in_file.offsets);
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t at = context.rows[i].position % series.stride * series.width();
    for (int64_t j = 0; j < series.width(); ++j) gates.row(i)[j] += offsets[at + j];
  }
  StoreRows(context, series.recent_layer, contents, gates);
  for (int64_t i = 0; i < x.count(); ++i) {
    const RowOrigin& row = context.rows[i];
    const int64_t page_tokens = context.state->page_tokens();
    if (series.stride > page_tokens && row.position % page_tokens == 0) {
      // Unless the run ends in this page, its place for an entry stays empty.
      context.state->Store(series.entry_layer, TableOf(context, series.entry_layer, row.sequence),
                           row.position, std::vector<float>(series.dim), {});
    }
    if (!series.EndsAt(row.position)) continue;
    const int64_t entry = series.SeenFrom(row.position) - 1;
    Rows made(1, series.dim);
    std::ranges::copy(Condense(context, series, row.sequence, entry), made.row(0).begin());
    ApplyNorm(context.tensors, in_file.norm, &made);
    ApplyRope(context.spec.ropes[op.rope], entry * series.stride,
              made.row(0).last(static_cast<size_t>(op.rope_dim)));
    context.state->Store(series.entry_layer, TableOf(context, series.entry_layer, row.sequence),
                         row.position, made.row(0), {});
  }
}

std::vector<float> LoadEntry(const StepContext& context, const EntrySeries& series, int sequence,
                             int64_t entry) {
  std::vector<float> values(series.dim);
  context.state->Load(series.entry_layer, TableOf(context, series.entry_layer, sequence),
                      (entry + 1) * series.stride - 1, values, {});
  return values;
}

// The entries that a row attends to, ascending.
std::vector<int64_t> ChooseEntries(const StepContext& context, const CompressedAttention& op,
                                   int64_t i, std::span<const float> queries,
                                   std::span<const float> weights) {
  const int64_t n_seen = op.series ? op.series.SeenFrom(context.rows[i].position) : 0;
  std::vector<double> scores(n_seen);
  if (!op.index) return BestNumbers(scores, n_seen);
  for (int64_t entry = 0; entry < n_seen; ++entry) {
    const std::vector<float> key = LoadEntry(context, op.index, context.rows[i].sequence, entry);
    for (int head = 0; head < op.n_index_heads; ++head) {
      const double product = Dot(key, queries.subspan(head * op.index.dim, op.index.dim));
      scores[entry] += std::max(product, 0.0) * weights[head];
    }
  }
  return BestNumbers(scores, op.count);
}

// The keys that a row attends to: entries, then positions of the window.
Rows KeysOf(const StepContext& context, const CompressedAttention& op, int64_t i,
            std::span<const int64_t> entries) {
  const RowOrigin& row = context.rows[i];
  const int group = context.spec.kv_layers[op.kv_layer].group;
  const int64_t window = context.spec.kv_groups[group].window;
  const int64_t first = std::max<int64_t>(0, row.position - window + 1);
  const auto n_entries = static_cast<int64_t>(entries.size());
  Rows keys(n_entries + row.position - first + 1, op.dim);
  for (int64_t j = 0; j < n_entries; ++j) {
    std::ranges::copy(LoadEntry(context, op.series, row.sequence, entries[j]), keys.row(j).begin());
  }
  for (int64_t j = n_entries; j < keys.count(); ++j) {
    context.state->Load(op.kv_layer, TableOf(context, op.kv_layer, row.sequence),
                        first + j - n_entries, keys.row(j), {});
  }
  return keys;
}

void AttendHead(const Rows& keys, float scale, const float* sink, std::span<const float> query,
                std::span<float> out) {
  std::vector<double> scores;
  double largest = sink != nullptr ? *sink : -INFINITY;
  for (int64_t j = 0; j < keys.count(); ++j) {
    scores.push_back(scale * Dot(keys.row(j), query));
    largest = std::max(largest, scores.back());
  }
  double total = sink != nullptr ? std::exp(*sink - largest) : 0;
  std::vector<double> sum(out.size());
  for (int64_t j = 0; j < keys.count(); ++j) {
    const double weight = std::exp(scores[j] - largest);
    total += weight;
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += weight * keys.row(j)[d];
  }
  for (size_t d = 0; d < sum.size(); ++d) out[d] = static_cast<float>(sum[d] / total);
}

// The heads' outputs through the members of their groups, and the last matrix.
Rows ProjectHeads(const StepContext& context, const CompressedAttention& op, const Rows& heads) {
  const int64_t n_groups = op.out_a.count, width = op.out_a.n_in, low = op.out_a.n_out;
  Rows inner(heads.count(), n_groups * low);
  for (int64_t i = 0; i < heads.count(); ++i) {
    for (int64_t g = 0; g < n_groups; ++g) {
      std::ranges::copy(
          ApplyMember(context.tensors, op.out_a, g, heads.row(i).subspan(g * width, width)),
          inner.row(i).begin() + g * low);
    }
  }
  return ApplyLinear(context.tensors, op.out_b, inner);
}

}  // namespace

Rows RunOp(const StepContext& context, const CompressedAttention& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  Rows low = ApplyLinear(tensors, op.q_a, x);
  ApplyNorm(tensors, op.q_a_norm, &low);
  Rows queries = ApplyLinear(tensors, op.q_b, low);
  ApplyNorm(tensors, op.q_norm, &queries);
  RotateTails(context, op, false, op.dim, &queries);
  Rows keys = ApplyLinear(tensors, op.kv, x);
  ApplyNorm(tensors, op.kv_norm, &keys);
  RotateTails(context, op, false, op.dim, &keys);
  StoreRows(context, op.kv_layer, keys, Rows(keys.count(), 0));
  if (op.series) StoreEntries(context, op, op.series, op.entries, x);
  Rows index(x.count(), 0), weights(x.count(), 0);
  if (op.index) {
    StoreEntries(context, op, op.index, op.index_entries, x);
    index = ApplyLinear(tensors, op.index_q, low);
    RotateTails(context, op, false, op.index.dim, &index);
    weights = ApplyLinear(tensors, op.index_weights, x);
  }
  const std::vector<float> sinks = tensors.Vector(op.sinks);
  Rows heads(x.count(), op.n_heads * op.dim);
  for (int64_t i = 0; i < x.count(); ++i) {
    const auto chosen = ChooseEntries(context, op, i, index.row(i), weights.row(i));
    const Rows seen = KeysOf(context, op, i, chosen);
    for (int head = 0; head < op.n_heads; ++head) {
      AttendHead(seen, op.scale, sinks.empty() ? nullptr : &sinks[head],
                 queries.row(i).subspan(head * op.dim, op.dim),
                 heads.row(i).subspan(head * op.dim, op.dim));
    }
  }
  RotateTails(context, op, true, op.dim, &heads);
  return ProjectHeads(context, op, heads);
}

}  // namespace weft::reference
