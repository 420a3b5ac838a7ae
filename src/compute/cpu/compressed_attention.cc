// Attention to the last positions and to compressed entries of the earlier ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "compute/cpu/attention_scan.h"
#include "compute/cpu/key_choice.h"
#include "compute/cpu/latent_attention.h"

namespace weft::cpu {

namespace {

struct SeriesScratch {
  const EntryTensors<Packed>& op;
  Arena* arena;
  RowsView content = arena->Rows(op.content.matrix.n_out);
  RowsView gate = arena->Rows(op.gate.matrix.n_out);
};

struct CompressedScratch {
  const Bound<CompressedAttention>& op;
  Arena* arena;
  const CompressedAttention& spec = *op.spec;
  Int8View input = arena->Int8(op.kv.matrix.n_in);
  RowsView low = arena->Rows(op.q_a.matrix.n_out);
  Int8View low_int8 = arena->Int8(op.q_b.matrix.n_in);
  RowsView q = arena->Rows(op.q_b.matrix.n_out);
  RowsView key = arena->Rows(op.kv.matrix.n_out);
  SeriesScratch series = {op.entries, arena};
  SeriesScratch index = {op.index_entries, arena};
  RowsView index_q = arena->Rows(op.index_q.matrix.n_out);
  RowsView index_weights = arena->Rows(op.index_weights.matrix.n_out);
  RowsView heads = arena->Rows(spec.n_heads * spec.dim);
  Int8View heads_int8 =
      arena->Int8(op.out_a.first.n_in, spec.out_a.count* WholePanels(arena->n_rows()));
  RowsView inner = arena->Rows(op.out_b.matrix.n_in);
  Int8View inner_int8 = arena->Int8(op.out_b.matrix.n_in);
};

// Cosines and sines of a rotation that is not a row's own.
class Rotation {
 public:
  static Rotation BackFrom(const StepContext& context, int rope, int64_t row) {
    Rotation back(context, rope);
    const size_t n = back.form_.frequencies.size();
    back.cosines_.assign(context.ropes.cosines(rope, row), context.ropes.cosines(rope, row) + n);
    back.sines_.assign(context.ropes.sines(rope, row), context.ropes.sines(rope, row) + n);
    for (float& sine : back.sines_) sine = -sine;
    return back;
  }
  static Rotation At(const StepContext& context, int rope, int64_t position) {
    Rotation at(context, rope);
    for (const double frequency : at.form_.frequencies) {
      const double angle = static_cast<double>(position + at.form_.ahead) * frequency;
      at.cosines_.push_back(static_cast<float>(std::cos(angle) * at.form_.magnitude));
      at.sines_.push_back(static_cast<float>(std::sin(angle) * at.form_.magnitude));
    }
    return at;
  }
  void Apply(float* values) const {
    const auto rotate =
        form_.pairs == RopePairs::kHalves ? vec_.rotate_halves : vec_.rotate_adjacent;
    rotate(cosines_.data(), sines_.data(), static_cast<int64_t>(cosines_.size()), values);
  }

 private:
  Rotation(const StepContext& context, int rope)
      : form_(context.spec.ropes[static_cast<size_t>(rope)]), vec_(context.compute.vec()) {}
  const Rope& form_;
  const VectorKernels& vec_;
  std::vector<float> cosines_, sines_;
};

// --- entries ---------------------------------------------------------------------------

// Of a run over several pages, only the last one gets an entry. In the others its place is emptied,
// because a saved page must not show what it held before.
void ClearEntry(const StepContext& context, const EntrySeries& series, const StepRow& row) {
  const int64_t page_tokens = context.state.page_tokens();
  if (series.stride <= page_tokens || row.position % page_tokens != 0) return;
  const std::vector<float> none(static_cast<size_t>(series.dim));
  std::vector<float> padded(static_cast<size_t>(context.state.row_values(series.entry_layer)));
  context.state.StoreRow(series.entry_layer, context.TableOf(series.entry_layer, row.sequence),
                         row.position, none.data(), padded.data());
}

// Stores the contents and gates of all rows.
void StoreRecent(StepContext* context, const EntrySeries& series, const EntryTensors<Packed>& op,
                 const SeriesScratch& scratch) {
  TouchPages(context, series.recent_layer);
  TouchPages(context, series.entry_layer);
  const VectorKernels& vec = context->compute.vec();
  context->compute.ForEach(context->n_rows(), 4 * series.width() * kStep, [&](int64_t i, int) {
    const StepRow& row = context->rows[static_cast<size_t>(i)];
    const int64_t place = row.position % series.stride;
    vec.add(op.offsets + place * series.width(), series.width(), scratch.gate.row(i));
    const auto table = context->TableOf(series.recent_layer, row.sequence);
    vec.store_kv(context->state.shape(series.recent_layer), scratch.content.row(i),
                 scratch.gate.row(i), static_cast<int>(row.position % kKvTileTokens),
                 context->state.Tile(series.recent_layer, 0, table, row.position));
    ClearEntry(*context, series, row);
  });
}

// What an entry is made of, position by position.
struct EntryParts {
  std::vector<float> contents, gates;  // (count, dim)
  int64_t count = 0;
};

EntryParts LoadParts(const StepContext& context, const EntrySeries& series, int sequence,
                     int64_t entry) {
  const KvShape& shape = context.state.shape(series.recent_layer);
  const auto table = context.TableOf(series.recent_layer, sequence);
  EntryParts parts;
  std::vector<float> content(static_cast<size_t>(series.width())), gate(content.size());
  const auto add_run = [&](int64_t run, int64_t first) {
    for (int64_t i = 0; i < series.stride; ++i, ++parts.count) {
      const int64_t position = run * series.stride + i;
      ReadKv(shape, context.state.Tile(series.recent_layer, 0, table, position),
             static_cast<int>(position % kKvTileTokens), content.data(), gate.data());
      const auto half = [&](const std::vector<float>& row, std::vector<float>* to) {
        to->insert(to->end(), row.begin() + first, row.begin() + first + series.dim);
      };
      half(content, &parts.contents);
      half(gate, &parts.gates);
    }
  };
  if (series.overlaps && entry > 0) add_run(entry - 1, 0);
  add_run(entry, series.width() - series.dim);
  return parts;
}

// The mean of the parts' contents, by a softmax of their gates in each dimension.
std::vector<float> MeanOf(const VectorKernels& vec, int64_t dim, EntryParts parts) {
  const auto n = static_cast<size_t>(dim);
  std::vector<float> largest(parts.gates.begin(), parts.gates.begin() + dim);
  for (size_t i = n; i < parts.gates.size(); ++i) {
    largest[i % n] = std::max(largest[i % n], parts.gates[i]);
  }
  for (size_t i = 0; i < parts.gates.size(); ++i) parts.gates[i] -= largest[i % n];
  vec.exp(std::ssize(parts.gates), parts.gates.data());
  std::vector<float> mean(n), total(n);
  for (size_t i = 0; i < parts.gates.size(); ++i) {
    total[i % n] += parts.gates[i];
    mean[i % n] += parts.gates[i] * parts.contents[i];
  }
  for (size_t d = 0; d < n; ++d) mean[d] /= total[d];
  return mean;
}

// Computes the entries that end at one of the step's rows from the stored contents and gates.
void MakeEntries(StepContext* context, const CompressedAttention& spec, const EntrySeries& series,
                 const EntryTensors<Packed>& op) {
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < context->n_rows(); ++i) {
    if (series.EndsAt(context->rows[static_cast<size_t>(i)].position)) ends.push_back(i);
  }
  context->compute.RunTasks(std::ssize(ends), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const StepRow& row = context->rows[static_cast<size_t>(ends[static_cast<size_t>(i)])];
      const int64_t entry = series.SeenFrom(row.position) - 1;
      std::vector<float> values = MeanOf(context->compute.vec(), series.dim,
                                         LoadParts(*context, series, row.sequence, entry));
      context->compute.NormRow(op.norm, values.data(), series.dim, values.data());
      Rotation::At(*context, spec.rope, entry * series.stride)
          .Apply(values.data() + series.dim - spec.rope_dim);
      std::vector<float> padded(static_cast<size_t>(context->state.row_values(series.entry_layer)));
      context->state.StoreRow(series.entry_layer,
                              context->TableOf(series.entry_layer, row.sequence), row.position,
                              values.data(), padded.data());
    }
  });
}

// Reads entries of one sequence.
class EntryReader {
 public:
  EntryReader(const StepContext& context, const EntrySeries& series, int sequence)
      : state_(context.state),
        series_(series),
        table_(context.TableOf(series.entry_layer, sequence)),
        values_(static_cast<size_t>(context.state.row_values(series.entry_layer))) {}
  // Valid until the next call.
  const float* Read(int64_t entry) {
    state_.LoadRow(series_.entry_layer, table_, (entry + 1) * series_.stride - 1, values_.data());
    return values_.data();
  }

 private:
  const CpuState& state_;
  const EntrySeries& series_;
  const std::span<const PageId> table_;
  std::vector<float> values_;
};

// --- the index -------------------------------------------------------------------------

// Index scores of the first `n_seen` entries for one row. Sums are taken in the order of dimensions
// and heads.
std::vector<float> ScoreEntries(const StepContext& context, const CompressedAttention& spec,
                                int64_t row, const float* queries, const float* weights,
                                int64_t n_seen) {
  constexpr int64_t kTile = kKvTileTokens;
  EntryReader reader(context, spec.index, context.rows[static_cast<size_t>(row)].sequence);
  std::vector<float> scores(static_cast<size_t>(n_seen)),
      tile(static_cast<size_t>(spec.index.dim * kTile));  // dimension by dimension
  for (int64_t first = 0; first < n_seen; first += kTile) {
    const int64_t n = std::min(kTile, n_seen - first);
    for (int64_t i = 0; i < n; ++i) {
      const float* const key = reader.Read(first + i);
      for (int64_t dim = 0; dim < spec.index.dim; ++dim) {
        tile[static_cast<size_t>(dim * kTile + i)] = key[dim];
      }
    }
    for (int head = 0; head < spec.n_index_heads; ++head) {
      std::array<float, kTile> sums = {};
      for (int64_t dim = 0; dim < spec.index.dim; ++dim) {
        const float query = queries[head * spec.index.dim + dim];
        const float* const keys = tile.data() + dim * kTile;
        for (int64_t i = 0; i < kTile; ++i) sums[static_cast<size_t>(i)] += query * keys[i];
      }
      for (int64_t i = 0; i < n; ++i) {
        scores[static_cast<size_t>(first + i)] +=
            std::max(sums[static_cast<size_t>(i)], 0.0f) * weights[head];
      }
    }
  }
  return scores;
}

// The entries that a row attends to, ascending.
std::vector<int64_t> ChooseEntries(const StepContext& context, const CompressedAttention& spec,
                                   const CompressedScratch& scratch, int64_t row) {
  if (!spec.series) return {};
  const int64_t n_seen = spec.series.SeenFrom(context.rows[static_cast<size_t>(row)].position);
  if (spec.index && n_seen > spec.count) {
    float* const queries = scratch.index_q.row(row);
    for (int head = 0; head < spec.n_index_heads; ++head) {
      context.Rotate(spec.rope, row, queries + (head + 1) * spec.index.dim - spec.rope_dim);
    }
    std::vector<float> scores =
        ScoreEntries(context, spec, row, queries, scratch.index_weights.row(row), n_seen);
    return BestNumbers(&scores, spec.count);
  }
  std::vector<int64_t> all(static_cast<size_t>(n_seen));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

// --- attention -------------------------------------------------------------------------

// Attention of all rows, each to the entries that it chose and to its window.
class CompressedScan {
 public:
  CompressedScan(StepContext* context, const Bound<CompressedAttention>& op,
                 const CompressedScratch& scratch)
      : context_(*context),
        spec_(*op.spec),
        scan_{spec_.kv_layer, spec_.n_heads,    spec_.scale,      0,
              op.sinks,       scratch.q.values, scratch.q.stride, scratch.heads.values},
        window_(WindowOf(*context, spec_)),
        chosen_(static_cast<size_t>(context->n_rows())) {
    context->compute.RunTasks(context->n_rows(), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        chosen_[static_cast<size_t>(row)] = ChooseEntries(*context, spec_, scratch, row);
      }
    });
  }

  void Run() {
    int64_t most = 1;
    for (int64_t row = 0; row < context_.n_rows(); ++row) most = std::max(most, KeysOf(row));
    SizeGathered(&context_, spec_.dim, spec_.dim, most, spec_.n_heads);
    // Few rows are divided by heads, so that every thread has some.
    const int64_t n_threads = context_.compute.n_threads(), n_rows = context_.n_rows();
    const int64_t n_parts = n_rows >= n_threads ? 1 : std::min<int64_t>(n_threads, spec_.n_heads);
    context_.compute.TimeAttention([&] {
      context_.compute.RunTasks(n_rows * n_parts, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t part = task % n_parts, first = part * spec_.n_heads / n_parts;
          Attend(task / n_parts, {first, (part + 1) * spec_.n_heads / n_parts - first},
                 &context_.workspaces[static_cast<size_t>(worker)]);
        }
      });
    });
  }

 private:
  static int64_t WindowOf(const StepContext& context, const CompressedAttention& spec) {
    const int group = context.state.group(spec.kv_layer);
    return context.spec.kv_groups[static_cast<size_t>(group)].window;
  }
  int64_t FirstOf(int64_t row) const {
    const int64_t position = context_.rows[static_cast<size_t>(row)].position;
    return std::max<int64_t>(0, position - window_ + 1);
  }
  int64_t KeysOf(int64_t row) const {
    return std::ssize(chosen_[static_cast<size_t>(row)]) +
           context_.rows[static_cast<size_t>(row)].position - FirstOf(row) + 1;
  }

  // Gathers the row's keys, entries first.
  void Gather(int64_t row, const KvShape& shape, Workspace* work) {
    const StepRow& of_step = context_.rows[static_cast<size_t>(row)];
    int64_t i = 0;
    if (spec_.series) {
      EntryReader reader(context_, spec_.series, of_step.sequence);
      for (const int64_t entry : chosen_[static_cast<size_t>(row)]) {
        const float* const key = reader.Read(entry);
        PutGathered(&context_, shape, i++, key, key, work);
      }
    }
    const auto table = context_.TableOf(spec_.kv_layer, of_step.sequence);
    float* const key = work->gathered_position.data();
    for (int64_t position = FirstOf(row); position <= of_step.position; ++position) {
      ReadKv(context_.state.shape(spec_.kv_layer),
             context_.state.Tile(spec_.kv_layer, 0, table, position),
             static_cast<int>(position % kKvTileTokens), key, nullptr);
      PutGathered(&context_, shape, i++, key, key, work);
    }
  }
  void Attend(int64_t row, HeadRange heads, Workspace* work) {
    const KvShape shape = {DType::kF32, spec_.dim, spec_.dim};
    Gather(row, shape, work);
    AttendToGathered(&context_, scan_, shape, row, heads, KeysOf(row), work);
  }

  StepContext& context_;
  const CompressedAttention& spec_;
  const ChosenScan scan_;
  const int64_t window_;
  std::vector<std::vector<int64_t>> chosen_;  // by row
};

// All products of the rows' input and of the low-rank queries.
void Project(StepContext* context, const Bound<CompressedAttention>& op, const RowsView& x,
             const CompressedScratch& scratch) {
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  const ActivationRows input =
      compute.Input(x, n,
                    {&op.q_a, &op.kv, &op.entries.content, &op.entries.gate,
                     &op.index_entries.content, &op.index_entries.gate, &op.index_weights},
                    scratch.input);
  std::vector<Product> products;
  const auto add = [&](const BoundLinear& linear, const ActivationRows& rows, const RowsView& to) {
    if (linear) products.push_back(MakeProduct(linear, rows, n, to));
  };
  add(op.q_a, input, scratch.low);
  add(op.kv, input, scratch.key);
  add(op.entries.content, input, scratch.series.content);
  add(op.entries.gate, input, scratch.series.gate);
  add(op.index_entries.content, input, scratch.index.content);
  add(op.index_entries.gate, input, scratch.index.gate);
  add(op.index_weights, input, scratch.index_weights);
  compute.Multiply(products);
  compute.ForEach(n, scratch.low.width * kStep, [&](int64_t row, int) {
    compute.NormRow(op.q_a_norm, scratch.low.row(row), scratch.low.width, scratch.low.row(row));
  });
  const ActivationRows low =
      compute.Input(scratch.low, n, {&op.q_b, &op.index_q}, scratch.low_int8);
  products.clear();
  add(op.q_b, low, scratch.q);
  add(op.index_q, low, scratch.index_q);
  compute.Multiply(products);
}

// Norms and rotates queries and keys, and stores the keys.
void StoreKeys(StepContext* context, const Bound<CompressedAttention>& op,
               const CompressedScratch& scratch) {
  const CompressedAttention& spec = *op.spec;
  Compute& compute = context->compute;
  TouchPages(context, spec.kv_layer);
  const int64_t cost = (scratch.q.width + spec.dim) * kNormRotate;
  compute.ForEach(context->n_rows(), cost, [&](int64_t i, int) {
    float* const q = scratch.q.row(i);
    float* const key = scratch.key.row(i);
    compute.NormRow(op.q_norm, q, scratch.q.width, q);
    for (int head = 0; head < spec.n_heads; ++head) {
      context->Rotate(spec.rope, i, q + (head + 1) * spec.dim - spec.rope_dim);
    }
    compute.NormRow(op.kv_norm, key, spec.dim, key);
    context->Rotate(spec.rope, i, key + spec.dim - spec.rope_dim);
    const StepRow& row = context->rows[static_cast<size_t>(i)];
    const auto table = context->TableOf(spec.kv_layer, row.sequence);
    compute.vec().store_kv(context->state.shape(spec.kv_layer), key, key,
                           static_cast<int>(row.position % kKvTileTokens),
                           context->state.Tile(spec.kv_layer, 0, table, row.position));
  });
}

}  // namespace

void PlanOp(const Bound<CompressedAttention>& op, Arena* arena) {
  static_cast<void>(CompressedScratch{op, arena});
}

void RunOp(StepContext* context, const Bound<CompressedAttention>& op, const RowsView& x,
           const RowsView&, const RowsView& out) {
  const CompressedAttention& spec = *op.spec;
  Compute& compute = context->compute;
  const int64_t n = context->n_rows();
  Arena arena = context->scratch.ForRows(n);
  const CompressedScratch scratch{op, &arena};
  Project(context, op, x, scratch);
  StoreKeys(context, op, scratch);
  if (spec.series) {
    StoreRecent(context, spec.series, op.entries, scratch.series);
    MakeEntries(context, spec, spec.series, op.entries);
  }
  if (spec.index) {
    StoreRecent(context, spec.index, op.index_entries, scratch.index);
    MakeEntries(context, spec, spec.index, op.index_entries);
  }
  CompressedScan(context, op, scratch).Run();
  compute.ForEach(n, scratch.heads.width * kStep, [&](int64_t row, int) {
    const Rotation back = Rotation::BackFrom(*context, spec.rope, row);
    for (int head = 0; head < spec.n_heads; ++head) {
      back.Apply(scratch.heads.row(row) + (head + 1) * spec.dim - spec.rope_dim);
    }
  });
  MultiplyHeads(context, op.out_a, static_cast<int>(spec.out_a.count), scratch.heads,
                spec.out_a.n_in, scratch.heads_int8, scratch.inner, spec.out_a.n_out);
  const ActivationRows inner = compute.Input(scratch.inner, n, {&op.out_b}, scratch.inner_int8);
  compute.Multiply({MakeProduct(op.out_b, inner, n, out)});
}

}  // namespace weft::cpu
