#include "compute/cpu/step_context.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/checks.h"

namespace weft::cpu {

StreamRows::StreamRows(const ModelSpec& spec, Arena* arena) {
  for (RowsView* rows : {&stream, &block_input, &path_input, &path_output, &path_sum}) {
    *rows = arena->Rows(spec.d_model);
  }
  if (KeepsInputs(spec)) kept = arena->Rows(spec.d_model);
  if (SharesFirstValues(spec)) first_values = arena->Rows(spec.d_model);
  if (spec.n_side_streams > 0) sides = arena->Rows(spec.n_side_streams * spec.d_model);
  if (spec.per_layer_input) per_layer = arena->Rows(spec.per_layer_input->proj.n_out);
}

StatusOr<Scratch> Scratch::New(const ModelSpec& spec, const BoundModel& model, int64_t max_rows) {
  Arena rows(max_rows);
  StreamRows(spec, &rows);
  size_t most = 0;
  const auto plan = [&](auto take) {
    Arena arena(max_rows);
    take(&arena);
    most = std::max(most, arena.bytes());
  };
  for (const BoundBlock& block : model.blocks) {
    for (const BoundPath& path : block.paths) {
      std::visit([&](const auto& op) { plan([&](Arena* arena) { PlanOp(op, arena); }); }, path.op);
    }
  }
  plan([&](Arena* arena) { static_cast<void>(LogitsScratch{spec, arena}); });
  if (spec.hidden_input) plan([&](Arena* arena) { static_cast<void>(HiddenScratch{spec, arena}); });
  if (spec.row_input) {
    plan([&](Arena* arena) { static_cast<void>(RowInputScratch{spec, arena}); });
  }
  if (spec.per_layer_input)
    plan([&](Arena* arena) { static_cast<void>(PerLayerScratch{spec, arena}); });

  AlignedBuffer memory(rows.bytes() + most);
  if (memory.data() == nullptr) {
    return ResourceExhausted("no memory for steps of ", max_rows, " tokens; use smaller steps");
  }
  Arena arena(max_rows, memory.As<std::byte>());
  const StreamRows views(spec, &arena);
  return Scratch(views, std::move(memory), rows.bytes());
}

void RopeTables::Fill(const ModelSpec& spec, const std::vector<StepRow>& rows, Compute* compute) {
  pairs_.resize(spec.ropes.size());
  values_.resize(spec.ropes.size());
  for (size_t r = 0; r < spec.ropes.size(); ++r) {
    const Rope& rope = spec.ropes[r];
    const int64_t n_pairs = static_cast<int64_t>(rope.frequencies.size());
    pairs_[r] = n_pairs;
    values_[r].resize(rows.size() * 2 * rope.frequencies.size());
    compute->ForEach(static_cast<int64_t>(rows.size()), n_pairs * kAngle, [&](int64_t row, int) {
      float* const cosines = values_[r].data() + row * 2 * n_pairs;
      for (int64_t i = 0; i < n_pairs; ++i) {
        const AxisPositions* const axes = rope.axes.empty() ? nullptr : rows[row].axes;
        const int64_t position = axes == nullptr ? rows[row].position : (*axes)[rope.axes[i]];
        const double angle = static_cast<double>(position + rope.ahead) * rope.frequencies[i];
        cosines[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        cosines[n_pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    });
  }
}

void StepContext::Begin(const Step& new_step) {
  step = &new_step;
  rows.clear();
  chosen.clear();
  first_rows = {0};
  n_wanted = 0;
  for (size_t s = 0; s < new_step.sequences.size(); ++s) {
    const StepSequence& sequence = new_step.sequences[s];
    int64_t position = sequence.position;
    int64_t type = 0;
    auto vector = sequence.rows.begin();
    const float* hidden = sequence.hidden.data();
    const AxisPositions* axes = sequence.axes.data();
    for (const TokenId token : sequence.tokens) {
      rows.push_back({static_cast<int>(s), position, token, type});
      rows.back().last_seen = LastSeen(sequence, position++ - sequence.position);
      if (spec.hidden_input) rows.back().hidden = std::exchange(hidden, hidden + HiddenWidth(spec));
      if (IsRow(token)) {
        rows.back().vector = vector->data();
        if (std::ssize(*vector) > spec.d_model) rows.back().added = vector->data() + spec.d_model;
        ++vector;
      }
      if (axes != nullptr) rows.back().axes = axes++;
      type = spec.token_types.TypeAfter(token, type);
    }
    first_rows.push_back(n_rows());
    n_wanted += sequence.n_wanted();
  }
  ropes.Fill(spec, rows, &compute);
  SortByAdapter();
}

void StepContext::SortByAdapter() {
  adapted.clear();
  if (adapters.count() == 0) return;
  std::vector<AdaptedRows> all(static_cast<size_t>(adapters.count()));
  for (int64_t row = 0; row < n_rows(); ++row) {
    for (const AdapterUse& use : step->sequences[rows[row].sequence].adapters) {
      AdaptedRows& own = all[static_cast<size_t>(use.adapter)];
      own.adapter = use.adapter;
      own.rows.push_back(row);
      own.scales.push_back(use.scale);
    }
  }
  for (AdaptedRows& own : all) {
    if (!own.rows.empty()) adapted.push_back(std::move(own));
  }
}

void StepContext::KeepWantedRows() {
  if (!has_unwanted_rows()) return;
  int64_t n_kept = 0;
  const size_t n_chosen = chosen.size() / rows.size();  // per row
  for (int64_t s = 0; s < n_sequences(); ++s) {
    const int64_t end = first_rows[s + 1];
    first_rows[s] = n_kept;
    for (int64_t row = end - step->sequences[s].n_wanted(); row < end; ++row, ++n_kept) {
      if (row == n_kept) continue;
      rows[n_kept] = rows[row];
      for (size_t i = 0; i < n_chosen; ++i) {
        chosen[n_kept * n_chosen + i] = std::move(chosen[row * n_chosen + i]);
      }
      for (const RowsView* view : {&scratch.stream, &scratch.block_input, &scratch.path_input,
                                   &scratch.path_output, &scratch.path_sum, &scratch.kept,
                                   &scratch.sides, &scratch.first_values, &scratch.per_layer}) {
        std::copy_n(view->row(row), view->width, view->row(n_kept));
      }
    }
  }
  first_rows.back() = n_kept;
  rows.resize(static_cast<size_t>(n_kept));
  chosen.resize(static_cast<size_t>(n_kept) * n_chosen);
  ropes.Fill(spec, rows, &compute);
  SortByAdapter();
  compute.adapters().Use(&adapters, adapted);
}

void SizeWorkspaces(StepContext* context, int64_t n_tiles, int64_t heads_per_kv_head) {
  for (Workspace& work : context->workspaces) {
    work.tiles.resize(std::max(work.tiles.size(), static_cast<size_t>(n_tiles)));
    work.queries.resize(static_cast<size_t>(std::max(kQueriesPerTask, heads_per_kv_head)));
  }
}

void StepContext::Warm(const QueryTemperature& temperature, int64_t row, int64_t n,
                       float* queries) const {
  if (!temperature) return;
  compute.vec().scale(static_cast<float>(temperature.Of(rows[row].position)), n, queries);
}

void StepContext::Rotate(int rope, int64_t row, float* head) const {
  if (rope < 0) return;
  const Rope& form = spec.ropes[rope];
  const auto rotate = form.pairs == RopePairs::kHalves ? compute.vec().rotate_halves
                                                       : compute.vec().rotate_adjacent;
  rotate(ropes.cosines(rope, row), ropes.sines(rope, row),
         static_cast<int64_t>(form.frequencies.size()), head);
}

}  // namespace weft::cpu
