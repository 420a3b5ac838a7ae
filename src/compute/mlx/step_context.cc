#include "compute/mlx/step_context.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace weft::mlx {

namespace {

mx::array Indices(const std::vector<int32_t>& values) {
  return FromHost<int32_t>(values, {Size(std::ssize(values))});
}

}  // namespace

mx::array PoolRows::Of(const mx::array& pool) const {
  if (!first) return mx::take(pool, rows, 1);
  const int begin = Size(*first);
  return mx::slice(pool, {0, begin, 0}, {pool.shape(0), begin + rows.shape(0), pool.shape(2)});
}

StepContext::StepContext(const MlxWeights& weights, MlxState* state, const Lanes& lanes,
                         const Step& step)
    : spec_(weights.spec()), state_(*state), lanes_(lanes), step_(step) {
  std::vector<std::vector<int32_t>> stored(spec_.kv_groups.size());
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const StepSequence& sequence = step.sequences[s];
    SequenceRows rows;
    rows.first = n_rows_;
    rows.count = std::ssize(sequence.tokens);
    rows.position = sequence.position;
    FindSeen(step, s, &rows);
    for (size_t group = 0; group < stored.size(); ++group) {
      for (int64_t i = 0; i < rows.count; ++i) {
        stored[group].push_back(PoolRow(sequence.page_tables[group], sequence.position + i));
      }
    }
    n_rows_ += rows.count;
    sequences_.push_back(std::move(rows));
  }
  for (const std::vector<int32_t>& rows : stored) stored_rows_.push_back(Indices(rows));
  if (!spec_.slots.empty()) GroupRows(step);
  MakeTurns();
}

int32_t StepContext::PoolRow(std::span<const PageId> table, int64_t position) const {
  const int64_t page_tokens = state_.page_tokens();
  return static_cast<int32_t>(table[static_cast<size_t>(position / page_tokens)] * page_tokens +
                              position % page_tokens);
}

void StepContext::FindSeen(const Step& step, size_t s, SequenceRows* rows) const {
  const int64_t end = rows->position + rows->count;
  for (size_t group = 0; group < spec_.kv_groups.size(); ++group) {
    const int64_t window = spec_.kv_groups[group].window;
    const int64_t first = window > 0 ? std::max<int64_t>(0, rows->position - window + 1) : 0;
    const auto& table = step.sequences[s].page_tables[group];
    std::vector<int32_t> seen;
    seen.reserve(static_cast<size_t>(end - first));
    for (int64_t position = first; position < end; ++position) {
      seen.push_back(PoolRow(table, position));
    }
    const bool in_order = std::ranges::adjacent_find(
                              seen, [](int32_t a, int32_t b) { return b != a + 1; }) == seen.end();
    rows->seen.push_back({.rows = Indices(seen), .first = {}});
    if (in_order && !seen.empty()) rows->seen.back().first = seen.front();
  }
}

void StepContext::GroupRows(const Step& step) {
  struct Members {
    std::vector<int32_t> rows, slots;
  };
  std::map<int64_t, Members> by_count;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    Members& members = by_count[sequences_[s].count];
    members.slots.push_back(step.sequences[s].slot);
    for (int64_t i = 0; i < sequences_[s].count; ++i) {
      members.rows.push_back(static_cast<int32_t>(sequences_[s].first + i));
    }
  }
  std::vector<int32_t> place(static_cast<size_t>(n_rows_));
  int32_t next = 0;
  for (const auto& [count, members] : by_count) {
    for (const int32_t row : members.rows) place[static_cast<size_t>(row)] = next++;
    row_groups_.push_back({count, Indices(members.rows), Indices(members.slots)});
  }
  if (!std::ranges::is_sorted(place)) step_order_ = Indices(place);
}

mx::array StepContext::InStepOrder(const std::vector<mx::array>& groups) const {
  const mx::array all = groups.size() == 1 ? groups[0] : mx::concatenate(groups, 0);
  return step_order_ ? mx::take(all, *step_order_, 0) : all;
}

// Computed in double on the host: an F32 angle of a late position has few accurate bits left.
void StepContext::MakeTurns() {
  for (const Rope& rope : spec_.ropes) {
    std::vector<float> cosines, sines;
    for (const SequenceRows& rows : sequences_) {
      for (int64_t i = 0; i < rows.count; ++i) {
        for (const double frequency : rope.frequencies) {
          const double angle = static_cast<double>(rows.position + i) * frequency;
          cosines.push_back(static_cast<float>(std::cos(angle) * rope.magnitude));
          sines.push_back(static_cast<float>(std::sin(angle) * rope.magnitude));
        }
      }
    }
    const mx::Shape shape = {Size(n_rows_), 1, Size(std::ssize(rope.frequencies))};
    turns_.push_back({FromHost<float>(cosines, shape), FromHost<float>(sines, shape)});
  }
}

mx::array StepContext::Apply(const BoundLinear& linear, const mx::array& x) const {
  const mx::array out = MultiplyInLanes(lanes_, x, linear.matrix);
  if (linear.scale) return out * *linear.scale;
  return linear.bias ? out + *linear.bias : out;
}

void StepContext::Store(int kv_layer, const mx::array& keys, const mx::array* values) {
  const mx::array& rows = stored_rows_[static_cast<size_t>(spec_.kv_layers[kv_layer].group)];
  const auto store = [&](mx::array* pool, const mx::array& x) {
    const mx::array heads = AsHeads(mx::astype(x, pool->dtype()), pool->shape(0));
    *pool = mx::scatter(*pool, rows, mx::expand_dims(heads, 2), 1);
  };
  store(&state_.keys(kv_layer), keys);
  if (values != nullptr) store(&state_.values(kv_layer), *values);
}

mx::array StepContext::Rotate(const mx::array& heads, int rope, int64_t offset) const {
  if (rope < 0) return heads;
  const Rope& spec = spec_.ropes[static_cast<size_t>(rope)];
  const auto& [cosine, sine] = turns_[static_cast<size_t>(rope)];
  const int64_t n = std::ssize(spec.frequencies), width = heads.shape(-1);
  const mx::array turned = Columns(heads, offset, 2 * n);
  std::vector<mx::array> parts;
  if (offset > 0) parts.push_back(Columns(heads, 0, offset));
  if (spec.pairs == RopePairs::kHalves) {
    const mx::array a = Columns(turned, 0, n), b = Columns(turned, n, n);
    parts.push_back(a * cosine - b * sine);
    parts.push_back(a * sine + b * cosine);
  } else {
    const mx::array pairs = mx::reshape(turned, {turned.shape(0), turned.shape(1), Size(n), 2});
    const mx::array a = mx::squeeze(Columns(pairs, 0, 1), -1);
    const mx::array b = mx::squeeze(Columns(pairs, 1, 1), -1);
    const mx::array both = mx::stack({a * cosine - b * sine, a * sine + b * cosine}, -1);
    parts.push_back(mx::reshape(both, turned.shape()));
  }
  if (offset + 2 * n < width)
    parts.push_back(Columns(heads, offset + 2 * n, width - offset - 2 * n));
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, -1);
}

mx::array StepContext::Warm(const QueryTemperature& temperature, const mx::array& queries) const {
  if (!temperature) return queries;
  std::vector<float> factors;
  for (const SequenceRows& rows : sequences_) {
    for (int64_t i = 0; i < rows.count; ++i) {
      factors.push_back(static_cast<float>(temperature.Of(rows.position + i)));
    }
  }
  return queries * FromHost<float>(factors, {Size(n_rows_), 1});
}

mx::array StepContext::KeepWanted(const mx::array& stream) {
  std::vector<int32_t> wanted;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    SequenceRows& rows = sequences_[s];
    const int64_t n_wanted = step_.sequences[s].n_wanted();
    const int64_t first = rows.first + rows.count - n_wanted;
    for (int64_t i = 0; i < n_wanted; ++i) wanted.push_back(static_cast<int32_t>(first + i));
    rows.position += rows.count - n_wanted;
    rows.first = std::ssize(wanted) - n_wanted;
    rows.count = n_wanted;
  }
  if (std::ssize(wanted) == n_rows_) return stream;
  n_rows_ = std::ssize(wanted);
  if (n_rows_ == 0) return stream;
  const mx::array rows = Indices(wanted);
  if (kept) kept = mx::take(*kept, rows, 0);
  if (per_layer_inputs) per_layer_inputs = mx::take(*per_layer_inputs, rows, 0);
  for (Turns& turns : turns_) {
    turns = {mx::take(turns.cosine, rows, 0), mx::take(turns.sine, rows, 0)};
  }
  return mx::take(stream, rows, 0);
}

}  // namespace weft::mlx
