#include "engine/turns/step_sequence.h"

#include <algorithm>
#include <span>

namespace weft {
namespace {

// What layers add to the row is left out if that is nothing: then it stands for a token on every
// backend.
std::span<const float> ValuesFor(const ModelSpec& spec, const Row& row) {
  const std::span<const float> embedding =
      row.values.first(std::min(row.values.size(), static_cast<size_t>(spec.d_model)));
  const std::span<const float> added = row.values.subspan(embedding.size());
  const bool adds = std::ranges::any_of(added, [](float value) { return value != 0; });
  return adds ? row.values : embedding;
}

std::vector<AxisPositions> AxesOf(const History& tokens, int64_t first, int64_t n) {
  std::vector<AxisPositions> axes(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) axes[i].fill(static_cast<int32_t>(tokens.AxisOf(first + i)));
  for (const History::Place& place : tokens.RowsIn(first, n)) {
    const RowForm& form = place.row->span->form;
    if (form.grid_rows == 0) continue;
    AxisPositions& at = axes[place.position - first];
    at.fill(static_cast<int32_t>(place.axis_begin));
    at[kRowAxis] += static_cast<int32_t>(place.row->index / form.grid_columns);
    at[kColumnAxis] += static_cast<int32_t>(place.row->index % form.grid_columns);
  }
  return axes;
}

}  // namespace

StepSequence SequenceOf(const ModelSpec& spec, const Session& session, int64_t first, int64_t n,
                        SequencePlaces* places) {
  const History& tokens = session.tokens;
  StepSequence sequence;
  const int64_t n_known = std::min(n, std::ssize(tokens) - first);
  sequence.tokens =
      std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n_known));
  for (const History::Place& place : tokens.RowsIn(first, n)) {
    sequence.rows.push_back(ValuesFor(spec, *place.row));
  }
  if (tokens.has_grids() && HasAxes(spec)) places->axes = AxesOf(tokens, first, n);
  places->mutual = tokens.MutualIn(first, n);
  sequence.axes = places->axes;
  sequence.mutual = places->mutual;
  sequence.adapters = session.AdaptersAt(first);
  sequence.position = first;
  for (const PageTable& table : session.state.tables())
    sequence.page_tables.push_back(table.pages());
  sequence.slot = session.state.slot().id();
  return sequence;
}

}  // namespace weft
