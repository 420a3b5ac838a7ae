#include "backend/cpu/step_context.h"

#include <algorithm>
#include <cmath>

namespace weft::cpu {

void ScratchWidths::Cover(const ScratchWidths& other) {
  a = std::max(a, other.a);
  b = std::max(b, other.b);
  c = std::max(c, other.c);
  d = std::max(d, other.d);
  int8_input = std::max(int8_input, other.int8_input);
  int8_inner = std::max(int8_inner, other.int8_inner);
  int8_spare = std::max(int8_spare, other.int8_spare);
}

StatusOr<Scratch> Scratch::New(const ModelSpec& spec, const BoundModel& model, int64_t max_rows) {
  ScratchWidths widths;
  for (const BoundBlock& block : model.blocks) {
    for (const BoundPath& path : block.paths) {
      widths.Cover(std::visit([](const auto& op) { return WidthsOf(op); }, path.op));
    }
  }
  widths.int8_input = std::max(widths.int8_input, spec.d_model);
  int64_t per_layer_width = 0;
  if (spec.per_layer_input) {
    per_layer_width = model.per_layer_input->proj.matrix.n_out;
    // Decoded table rows.
    widths.a = std::max(widths.a, per_layer_width);
  }

  // Every region begins at a cache line.
  const auto round_up = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  int64_t total = 0;
  for (const int64_t width : {spec.d_model, spec.d_model, spec.d_model, spec.d_model, spec.d_model,
                              per_layer_width, widths.a, widths.b, widths.c, widths.d}) {
    total += round_up(width * max_rows);
  }
  Scratch scratch;
  scratch.floats_ = AlignedBuffer(static_cast<size_t>(total) * sizeof(float));
  const int64_t int8_rows = WholePanels(max_rows);
  scratch.int8_input = Int8Buffer(widths.int8_input * int8_rows + widths.int8_spare);
  scratch.int8_inner = Int8Buffer(widths.int8_inner * int8_rows + widths.int8_spare);
  if (scratch.floats_.data() == nullptr || !scratch.int8_input.ok() || !scratch.int8_inner.ok()) {
    return ResourceExhausted("no memory for steps of ", max_rows, " tokens; use smaller steps");
  }
  float* next = scratch.floats_.As<float>().data();
  const auto take = [&](int64_t width) {
    float* const begin = next;
    next += round_up(width * max_rows);
    return begin;
  };
  for (RowsView* rows : {&scratch.stream, &scratch.block_input, &scratch.path_input,
                         &scratch.path_output, &scratch.path_sum}) {
    *rows = {take(spec.d_model), spec.d_model, spec.d_model};
  }
  scratch.per_layer = {take(per_layer_width), per_layer_width, per_layer_width};
  scratch.a = take(widths.a);
  scratch.b = take(widths.b);
  scratch.c = take(widths.c);
  scratch.d = take(widths.d);
  scratch.bytes_ = static_cast<int64_t>(scratch.floats_.size()) + scratch.int8_input.bytes() +
                   scratch.int8_inner.bytes();
  return scratch;
}

void RopeTables::Fill(const ModelSpec& spec, const std::vector<StepRow>& rows, Compute* compute) {
  pairs_.resize(spec.ropes.size());
  values_.resize(spec.ropes.size());
  for (size_t r = 0; r < spec.ropes.size(); ++r) {
    const Rope& rope = spec.ropes[r];
    const int64_t n_pairs = static_cast<int64_t>(rope.frequencies.size());
    pairs_[r] = n_pairs;
    values_[r].resize(rows.size() * 2 * rope.frequencies.size());
    // A cosine and a sine cost about as much as 50 floats of vector work.
    compute->ForEach(static_cast<int64_t>(rows.size()), n_pairs * 50, [&](int64_t row, int) {
      float* const cosines = values_[r].data() + row * 2 * n_pairs;
      for (int64_t i = 0; i < n_pairs; ++i) {
        const double angle = static_cast<double>(rows[row].position) * rope.frequencies[i];
        cosines[i] = static_cast<float>(std::cos(angle) * rope.magnitude);
        cosines[n_pairs + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
      }
    });
  }
}

void StepContext::Begin(const Step& new_step) {
  step = &new_step;
  rows.clear();
  first_rows = {0};
  n_logits = 0;
  for (size_t s = 0; s < new_step.sequences.size(); ++s) {
    const StepSequence& sequence = new_step.sequences[s];
    int64_t position = sequence.position;
    for (const TokenId token : sequence.tokens) {
      rows.push_back({static_cast<int>(s), position++, token});
    }
    first_rows.push_back(n_rows());
    n_logits += sequence.n_logits;
  }
  ropes.Fill(spec, rows, &compute);
}

void StepContext::KeepRowsWithLogits() {
  if (!has_rows_without_logits()) return;
  int64_t n_kept = 0;
  for (int64_t s = 0; s < n_sequences(); ++s) {
    const int64_t end = first_rows[s + 1];
    first_rows[s] = n_kept;
    for (int64_t row = end - step->sequences[s].n_logits; row < end; ++row, ++n_kept) {
      if (row == n_kept) continue;
      rows[n_kept] = rows[row];
      for (const RowsView* view : {&scratch.stream, &scratch.block_input, &scratch.path_input,
                                   &scratch.path_output, &scratch.path_sum, &scratch.per_layer}) {
        std::copy_n(view->row(row), view->width, view->row(n_kept));
      }
    }
  }
  first_rows.back() = n_kept;
  rows.resize(static_cast<size_t>(n_kept));
  ropes.Fill(spec, rows, &compute);
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
