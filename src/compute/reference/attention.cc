// The attention blocks of blocks.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compute/reference/attention_parts.h"
#include "compute/reference/blocks.h"

namespace weft::reference {

std::span<const PageId> TableOf(const StepContext& context, int kv_layer, int sequence) {
  const int group = context.spec.kv_layers[kv_layer].group;
  return context.step.sequences[sequence].page_tables[group];
}

void StoreRows(const StepContext& context, int kv_layer, const Rows& keys, const Rows& values) {
  for (int64_t i = 0; i < keys.count(); ++i) {
    context.state->Store(kv_layer, TableOf(context, kv_layer, context.rows[i].sequence),
                         context.rows[i].position, keys.row(i), values.row(i));
  }
}

std::vector<int64_t> BestNumbers(std::vector<double> scores, int64_t count) {
  std::vector<int64_t> numbers(scores.size());
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  for (double& score : scores) {
    if (std::isnan(score)) score = -INFINITY;
  }
  std::ranges::stable_sort(numbers, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  numbers.resize(std::min<size_t>(numbers.size(), count));
  std::ranges::sort(numbers);
  return numbers;
}

namespace {

// The rest of an attention block, after queries, keys and values are computed.
struct Scan {
  int kv_layer;
  int n_heads;
  int64_t k_dim;  // of each key and query head
  int64_t v_dim;  // of each value head; with `v_in_k`, the values are the key's first v_dim
  bool v_in_k;
  float scale;
  float softcap;
  std::vector<float> sinks;  // one per query head, or none
  int64_t chunk = 0;         // see Attention
  const ChosenKeys* chosen = nullptr;
};

// Positions [first, first + keys.count()) of one sequence, as they were stored.
struct History {
  int64_t first;
  Rows keys, values;
};

int64_t FirstVisible(int64_t window, int64_t position) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

void Warm(const StepContext& context, const QueryTemperature& temperature, Rows* queries) {
  if (!temperature) return;
  for (int64_t i = 0; i < queries->count(); ++i) {
    const double factor = temperature.Of(context.rows[i].position);
    for (float& v : queries->row(i)) v = static_cast<float>(v * factor);
  }
}

// Everything that any row of the sequence sees.
History LoadHistory(const StepContext& context, int kv_layer, int sequence) {
  const KvLayer& layer = context.spec.kv_layers[kv_layer];
  const StepSequence& part = context.step.sequences[sequence];
  const int64_t first = FirstVisible(context.spec.kv_groups[layer.group].window, part.position);
  const int64_t count = part.position + static_cast<int64_t>(part.tokens.size()) - first;
  History history{first, Rows(count, layer.n_heads * layer.k_dim),
                  Rows(count, layer.n_heads * layer.v_dim)};
  for (int64_t i = 0; i < count; ++i) {
    context.state->Load(kv_layer, TableOf(context, kv_layer, sequence), first + i,
                        history.keys.row(i), history.values.row(i));
  }
  return history;
}

// One query head over the positions that it sees.
//   q: k_dim; out: v_dim; `kv_head` is the head of keys and values to read
void AttendHead(const Scan& scan, const History& history, std::span<const int64_t> seen,
                int kv_head, std::span<const float> q, const float* sink, std::span<float> out) {
  std::vector<double> scores;
  double largest = sink != nullptr ? *sink : -INFINITY;
  for (const int64_t j : seen) {
    const auto key = history.keys.row(j - history.first).subspan(kv_head * scan.k_dim, scan.k_dim);
    scores.push_back(Softcap(scan.softcap, scan.scale * Dot(key, q)));
    largest = std::max(largest, scores.back());
  }
  double denominator = sink != nullptr ? std::exp(*sink - largest) : 0;
  std::vector<double> sum(scan.v_dim);
  for (size_t i = 0; i < seen.size(); ++i) {
    const int64_t j = seen[i];
    const double weight = std::exp(scores[i] - largest);
    denominator += weight;
    const Rows& source = scan.v_in_k ? history.keys : history.values;
    const int64_t head_width = scan.v_in_k ? scan.k_dim : scan.v_dim;
    const auto value = source.row(j - history.first).subspan(kv_head * head_width, scan.v_dim);
    for (int64_t d = 0; d < scan.v_dim; ++d) sum[d] += weight * value[d];
  }
  for (int64_t d = 0; d < scan.v_dim; ++d) out[d] = static_cast<float>(sum[d] / denominator);
}

// queries: [rows][n_heads * k_dim]; returns [rows][n_heads * v_dim].
Rows Attend(const StepContext& context, const Scan& scan, const Rows& queries) {
  const KvLayer& layer = context.spec.kv_layers[scan.kv_layer];
  const int64_t window = context.spec.kv_groups[layer.group].window;
  const int heads_per_kv_head = scan.n_heads / layer.n_heads;
  Rows out(queries.count(), scan.n_heads * scan.v_dim);
  for (int64_t i = 0; i < queries.count();) {
    const int sequence = context.rows[i].sequence;
    const History history = LoadHistory(context, scan.kv_layer, sequence);
    for (; i < queries.count() && context.rows[i].sequence == sequence; ++i) {
      const int64_t position = context.rows[i].position;
      int64_t begin = FirstVisible(window, position);
      if (scan.chunk > 0) begin = std::max(begin, position - position % scan.chunk);
      const int64_t last = std::max(position, context.rows[i].last_seen);
      std::vector<int64_t> visible(last + 1 - begin);
      std::iota(visible.begin(), visible.end(), begin);
      for (int h = 0; h < scan.n_heads; ++h) {
        const int kv_head = h / heads_per_kv_head;
        const auto& seen =
            scan.chosen != nullptr ? (*scan.chosen)[i * layer.n_heads + kv_head] : visible;
        AttendHead(scan, history, seen, kv_head, queries.row(i).subspan(h * scan.k_dim, scan.k_dim),
                   scan.sinks.empty() ? nullptr : &scan.sinks[h],
                   out.row(i).subspan(h * scan.v_dim, scan.v_dim));
      }
    }
  }
  return out;
}

// Rotates every run of `head_width` values, from `offset` within it.
void RotateHeads(const StepContext& context, int rope, int64_t head_width, int64_t offset,
                 Rows* x) {
  if (rope < 0) return;
  for (int64_t i = 0; i < x->count(); ++i) {
    for (int64_t begin = 0; begin < x->width(); begin += head_width) {
      ApplyRope(context.spec.ropes[rope], context.rows[i],
                x->row(i).subspan(begin + offset, head_width - offset));
    }
  }
}

// Splits rows of alternating runs [first, second] into two batches.
void SplitRuns(const Rows& x, int64_t first_width, int64_t second_width, Rows* first,
               Rows* second) {
  const int64_t n_runs = x.width() / (first_width + second_width);
  *first = Rows(x.count(), n_runs * first_width);
  *second = Rows(x.count(), n_runs * second_width);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int64_t r = 0; r < n_runs; ++r) {
      const auto run = x.row(i).subspan(r * (first_width + second_width));
      std::ranges::copy(run.first(first_width), first->row(i).begin() + r * first_width);
      std::ranges::copy(run.subspan(first_width, second_width),
                        second->row(i).begin() + r * second_width);
    }
  }
}

// The chosen positions of a row's key head, from the index scores of all that it sees.
std::vector<int64_t> ChooseBlocks(const KeyChoice& choice, std::span<const double> scores) {
  const auto n = static_cast<int64_t>(scores.size());
  const int64_t n_blocks = (n - 1) / choice.block + 1;
  std::vector<double> of_blocks(n_blocks, -INFINITY);
  for (int64_t j = 0; j < n; ++j) {
    of_blocks[j / choice.block] = std::max(of_blocks[j / choice.block], scores[j]);
  }
  for (int64_t i = std::max<int64_t>(0, n_blocks - choice.n_local); i < n_blocks; ++i) {
    of_blocks[i] = INFINITY;
  }
  std::vector<int64_t> positions;
  for (const int64_t block : BestNumbers(of_blocks, choice.count)) {
    for (int64_t j = block * choice.block; j < std::min(n, (block + 1) * choice.block); ++j) {
      positions.push_back(j);
    }
  }
  return positions;
}

// Fills context.chosen. `queries`: [rows][n_heads * dim], rotated; `weights`: [rows][n_heads], of
// kKeys.
void ChooseKeys(const StepContext& context, const KeyChoice& choice, const Rows& queries,
                const Rows& weights) {
  context.chosen->clear();
  const bool by_key = choice.kind == KeyChoice::Kind::kKeys;
  for (int64_t i = 0; i < queries.count(); ++i) {
    const History history = LoadHistory(context, choice.kv_layer, context.rows[i].sequence);
    const auto score = [&](int head, int64_t j) {
      return Dot(queries.row(i).subspan(head * choice.dim, choice.dim), history.keys.row(j));
    };
    const int64_t n = context.rows[i].position + 1;
    std::vector<double> scores(n);
    for (int head = 0; head < choice.n_heads; ++head) {
      for (int64_t j = 0; j < n; ++j) {
        scores[j] = by_key ? scores[j] + std::max(score(head, j), 0.0) * weights.row(i)[head]
                           : score(head, j);
      }
      if (!by_key) context.chosen->push_back(ChooseBlocks(choice, scores));
    }
    if (by_key) context.chosen->push_back(BestNumbers(scores, choice.count));
  }
}

// Norms, rotates and stores index keys.
void StoreIndexKeys(const StepContext& context, const KeyChoice& choice, const Norm& norm,
                    Rows keys) {
  ApplyNorm(context.tensors, norm, &keys);
  RotateHeads(context, choice.rope, choice.dim, 0, &keys);
  StoreRows(context, choice.kv_layer, keys, Rows(keys.count(), 0));
}

}  // namespace

Rows RunOp(const StepContext& context, const Attention& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  Rows q = ApplyLinear(tensors, op.q, x);
  Rows gate = op.gate ? ApplyLinear(tensors, op.gate, x) : Rows(0, 0);
  if (op.gated_query) {
    const Rows both = std::move(q);
    SplitRuns(both, op.k_dim, op.k_dim, &q, &gate);
  }
  const auto norm_and_rotate = [&](const Norm& norm, Rows* rows) {
    if (!op.norms_after_rope) ApplyNorm(tensors, norm, rows);
    RotateHeads(context, op.rope, op.k_dim, 0, rows);
    if (op.norms_after_rope) ApplyNorm(tensors, norm, rows);
  };
  norm_and_rotate(op.q_norm, &q);
  Warm(context, op.temperature, &q);
  if (op.writes_kv) {
    Rows k = ApplyLinear(tensors, op.k, x);
    Rows v = op.v_from_k ? k : ApplyLinear(tensors, op.v, x);
    norm_and_rotate(op.k_norm, &k);
    ApplyNorm(tensors, op.v_norm, &v);
    StoreRows(context, op.kv_layer, k, v);
  }
  if (op.choice) {
    StoreIndexKeys(context, op.choice, op.index_k_norm, ApplyLinear(tensors, op.index_k, x));
    Rows index = ApplyLinear(tensors, op.index_q, x);
    ApplyNorm(tensors, op.index_q_norm, &index);
    RotateHeads(context, op.choice.rope, op.choice.dim, 0, &index);
    ChooseKeys(context, op.choice, index, Rows(0, 0));
  }
  Rows y = Attend(context,
                  Scan{.kv_layer = op.kv_layer,
                       .n_heads = op.n_heads,
                       .k_dim = op.k_dim,
                       .v_dim = op.v_dim,
                       .v_in_k = false,
                       .scale = op.scale,
                       .softcap = op.softcap,
                       .sinks = tensors.Vector(op.sinks),
                       .chunk = op.chunk,
                       .chosen = op.choice ? context.chosen.get() : nullptr},
                  q);
  if (gate.count() > 0) {
    const int64_t per_gate = y.width() / gate.width();
    const bool is_sigmoid = op.gate_activation == GateActivation::kSigmoid;
    for (size_t i = 0; i < y.values().size(); ++i) {
      const double x = gate.values()[i / per_gate];
      y.values()[i] = static_cast<float>(y.values()[i] * (is_sigmoid ? Sigmoid(x) : Softplus(x)));
    }
  }
  return ApplyLinear(tensors, op.out, y);
}

Rows RunOp(const StepContext& context, const LatentAttention& op, const Rows& x, const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t n_rows = x.count();

  // Queries, with their nope part taken into the latent space.
  Rows q(0, 0), index(0, 0);
  if (op.q) {
    q = ApplyLinear(tensors, op.q, x);
  } else {
    Rows low = ApplyLinear(tensors, op.q_a, x);
    ApplyNorm(tensors, op.q_a_norm, &low);
    q = ApplyLinear(tensors, op.q_b, low);
    if (op.choice.Chooses()) index = ApplyLinear(tensors, op.index_q, low);
  }
  const int64_t q_dim = op.nope_dim + op.rope_dim;
  RotateHeads(context, op.rope, q_dim, op.nope_dim, &q);
  Warm(context, op.temperature, &q);
  const int64_t k_dim = op.latent_dim + op.rope_dim;
  Rows queries(n_rows, op.n_heads * k_dim);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int h = 0; h < op.n_heads; ++h) {
      const auto head = q.row(i).subspan(h * q_dim, q_dim);
      const auto absorbed = ApplyMember(tensors, op.k_b, h, head.first(op.nope_dim));
      const auto to = queries.row(i).subspan(h * k_dim, k_dim);
      std::ranges::copy(absorbed, to.begin());
      std::ranges::copy(head.subspan(op.nope_dim), to.begin() + op.latent_dim);
    }
  }

  // The one key that all heads share.
  Rows latent(0, 0);
  Rows k_rope(0, 0);
  SplitRuns(ApplyLinear(tensors, op.kv_a, x), op.latent_dim, op.rope_dim, &latent, &k_rope);
  ApplyNorm(tensors, op.kv_norm, &latent);
  RotateHeads(context, op.rope, op.rope_dim, 0, &k_rope);
  Rows keys(n_rows, k_dim);
  for (int64_t i = 0; i < n_rows; ++i) {
    std::ranges::copy(latent.row(i), keys.row(i).begin());
    std::ranges::copy(k_rope.row(i), keys.row(i).begin() + op.latent_dim);
  }
  StoreRows(context, op.kv_layer, keys, Rows(n_rows, 0));
  if (op.choice.Chooses()) {
    StoreIndexKeys(context, op.choice, op.index_k_norm, ApplyLinear(tensors, op.index_k, x));
    RotateHeads(context, op.choice.rope, op.choice.dim, 0, &index);
    Rows weights = ApplyLinear(tensors, op.index_weights, x);
    for (float& weight : weights.values()) weight *= op.index_scale;
    ChooseKeys(context, op.choice, index, weights);
  }

  const Rows sums = Attend(context,
                           Scan{.kv_layer = op.kv_layer,
                                .n_heads = op.n_heads,
                                .k_dim = k_dim,
                                .v_dim = op.latent_dim,
                                .v_in_k = true,
                                .scale = op.scale,
                                .softcap = 0,
                                .sinks = {},
                                .chunk = 0,
                                .chosen = op.choice ? context.chosen.get() : nullptr},
                           queries);
  Rows heads(n_rows, op.n_heads * op.v_dim);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int h = 0; h < op.n_heads; ++h) {
      const auto y =
          ApplyMember(tensors, op.v_b, h, sums.row(i).subspan(h * op.latent_dim, op.latent_dim));
      std::ranges::copy(y, heads.row(i).begin() + h * op.v_dim);
    }
  }
  return ApplyLinear(tensors, op.out, heads);
}

Rows RunOp(const StepContext& context, const UnfoldedLatentAttention& op, const Rows& x,
           const Rows&) {
  const Tensors& tensors = context.tensors;
  const int64_t k_dim = op.nope_dim + op.rope_dim;
  Rows low = ApplyLinear(tensors, op.q_a, x);
  ApplyNorm(tensors, op.q_a_norm, &low);
  Rows q = ApplyLinear(tensors, op.q_b, low);
  RotateHeads(context, op.rope, k_dim, op.nope_dim, &q);

  Rows latent(0, 0), k_rope(0, 0), nope(0, 0), values(0, 0);
  SplitRuns(ApplyLinear(tensors, op.kv_a, x), op.latent_dim, op.rope_dim, &latent, &k_rope);
  ApplyNorm(tensors, op.kv_norm, &latent);
  RotateHeads(context, op.rope, op.rope_dim, 0, &k_rope);
  SplitRuns(ApplyLinear(tensors, op.kv_b, latent), op.nope_dim, op.v_dim, &nope, &values);
  Rows keys(x.count(), op.n_heads * k_dim);
  for (int64_t i = 0; i < x.count(); ++i) {
    for (int h = 0; h < op.n_heads; ++h) {
      const auto key = keys.row(i).subspan(h * k_dim, k_dim);
      std::ranges::copy(nope.row(i).subspan(h * op.nope_dim, op.nope_dim), key.begin());
      std::ranges::copy(k_rope.row(i), key.begin() + op.nope_dim);
    }
  }
  StoreRows(context, op.kv_layer, keys, values);
  const Rows y = Attend(context,
                        Scan{.kv_layer = op.kv_layer,
                             .n_heads = op.n_heads,
                             .k_dim = k_dim,
                             .v_dim = op.v_dim,
                             .v_in_k = false,
                             .scale = op.scale,
                             .softcap = 0,
                             .sinks = {}},
                        q);
  return ApplyLinear(tensors, op.out, y);
}

namespace {

// One query head over the rows [begin, end) of its text.
void AttendBothWays(const BidirectionalAttention& op, const Rows& keys, const Rows& values,
                    int64_t begin, int64_t end, int64_t row, int head, std::span<const float> q,
                    std::span<float> out) {
  const int kv_head = head / (op.n_heads / op.n_kv_heads);
  std::vector<double> scores;
  for (int64_t j = begin; j < end; ++j) {
    double score = op.scale * Dot(keys.row(j).subspan(kv_head * op.k_dim, op.k_dim), q);
    if (!op.slopes.empty()) score -= op.slopes[head] * static_cast<double>(std::abs(j - row));
    scores.push_back(score);
  }
  const double largest = *std::ranges::max_element(scores);
  double denominator = 0;
  std::vector<double> sum(op.v_dim);
  for (int64_t j = begin; j < end; ++j) {
    const double weight = std::exp(scores[j - begin] - largest);
    denominator += weight;
    const auto value = values.row(j).subspan(kv_head * op.v_dim, op.v_dim);
    for (int64_t d = 0; d < op.v_dim; ++d) sum[d] += weight * value[d];
  }
  for (int64_t d = 0; d < op.v_dim; ++d) out[d] = static_cast<float>(sum[d] / denominator);
}

}  // namespace

Rows RunOp(const StepContext& context, const BidirectionalAttention& op, const Rows& x,
           const Rows&) {
  const Tensors& tensors = context.tensors;
  Rows q = ApplyLinear(tensors, op.q, x);
  Rows k = ApplyLinear(tensors, op.k, x);
  const Rows v = ApplyLinear(tensors, op.v, x);
  ApplyNorm(tensors, op.q_norm, &q);
  ApplyNorm(tensors, op.k_norm, &k);
  RotateHeads(context, op.rope, op.k_dim, 0, &q);
  RotateHeads(context, op.rope, op.k_dim, 0, &k);
  Rows heads(x.count(), op.n_heads * op.v_dim);
  int64_t first = 0;  // the text's first row
  for (const StepSequence& text : context.step.sequences) {
    const int64_t end = first + static_cast<int64_t>(text.tokens.size());
    for (int64_t i = first; i < end; ++i) {
      const int64_t begin_seen = op.reach < 0 ? first : std::max(first, i - op.reach);
      const int64_t end_seen = op.reach < 0 ? end : std::min(end, i + op.reach + 1);
      for (int h = 0; h < op.n_heads; ++h) {
        AttendBothWays(op, k, v, begin_seen, end_seen, i, h,
                       q.row(i).subspan(h * op.k_dim, op.k_dim),
                       heads.row(i).subspan(h * op.v_dim, op.v_dim));
      }
    }
    first = end;
  }
  return ApplyLinear(tensors, op.out, heads);
}

}  // namespace weft::reference
