// Shared by the operations with recurrent state: convolutions, and advancing the heads' states.
// Owner thread only, like the StepContext.
#ifndef WEFT_COMPUTE_CPU_RECURRENT_PARTS_H_
#define WEFT_COMPUTE_CPU_RECURRENT_PARTS_H_

#include <algorithm>
#include <array>
#include <cstring>

#include "compute/cpu/step_context.h"

namespace weft::cpu {

// Rows [begin, end) of a step, which belong to one sequence.
struct RowRange {
  int64_t begin, end;
};

inline RowRange RowsOf(const StepContext& context, int64_t sequence) {
  return {context.first_rows[sequence], context.first_rows[sequence + 1]};
}

inline float* StateOf(const StepContext& context, int64_t sequence, int slot_index) {
  return context.state.SlotValues(context.step->sequences[sequence].slot, slot_index);
}

// --- convolution -----------------------------------------------------------------------

// Convolves one row. Inputs from before the step come from the sequence's state, which holds the
// latest n_taps - 1 inputs, oldest first.
inline void ConvolveRow(const StepContext& context, const BoundConvolution& op,
                        const RowsView& inputs, int64_t row, float* out) {
  const Convolution& spec = *op.spec;
  const int64_t sequence = context.rows[row].sequence;
  const int64_t begin = RowsOf(context, sequence).begin;
  const float* const old = StateOf(context, sequence, spec.slot);
  std::array<const float*, kMaxConvolutionTaps> taps;
  for (int64_t j = 0; j < spec.n_taps; ++j) {
    const int64_t source = row - (spec.n_taps - 1) + j;
    taps[j] = source >= begin ? inputs.row(source)
                              : old + (source - begin + spec.n_taps - 1) * spec.n_channels;
  }
  context.compute.vec().convolve(taps.data(), spec.n_taps, op.kernel, op.bias, spec.n_channels,
                                 out);
}

// Saves each sequence's latest inputs to its state. Call it once all rows are convolved.
inline void KeepInputs(StepContext* context, const BoundConvolution& op, const RowsView& inputs) {
  const int64_t n_old = op.spec->n_taps - 1, width = op.spec->n_channels;
  context->compute.ForEach(
      context->n_sequences(), n_old * width * kStep, [&](int64_t sequence, int) {
        const RowRange rows = RowsOf(*context, sequence);
        float* const old = StateOf(*context, sequence, op.spec->slot);
        const int64_t n_kept = std::max<int64_t>(0, n_old - (rows.end - rows.begin));
        const size_t row_bytes = sizeof(float) * static_cast<size_t>(width);
        std::memmove(old, old + (n_old - n_kept) * width, static_cast<size_t>(n_kept) * row_bytes);
        for (int64_t j = n_kept; j < n_old; ++j) {
          std::memcpy(old + j * width, inputs.row(rows.end - n_old + j), row_bytes);
        }
      });
}

// --- heads -----------------------------------------------------------------------------

// The common parameters of a recurrent operation's heads. Row r's gates of head h are at r *
// gate_stride + h.
struct Heads {
  int slot = 0;
  int64_t n_heads = 0;
  int64_t n_rows = 0, n_columns = 0;  // of a head's state
  RowsView values;                    // head h at h * n_columns; results overwrite them
  const float *decays = nullptr, *gains = nullptr;  // decays: null if the operation applies its own
  int64_t gate_stride = 0;
};

// Min columns per task; with fewer, reading the keys would dominate.
inline constexpr int64_t kFewestColumns = 2 * kStateTileColumns;

// Runs advance(job, head) for every sequence and head; if these are few, in several ranges of
// columns. The job lacks keys and queries.
template <typename Fn>
void AdvanceHeads(StepContext* context, const Heads& heads, Fn advance) {
  const int64_t n_sequences = context->n_sequences();
  int64_t n_parts = 1;
  while (n_sequences * heads.n_heads * n_parts < 2 * context->compute.n_threads() &&
         heads.n_columns % (kFewestColumns * 2 * n_parts) == 0) {
    n_parts *= 2;
  }
  const int64_t n_columns = heads.n_columns / n_parts;
  const int64_t head_floats = StateFloats(heads.n_rows, heads.n_columns);
  const auto run = [&](int64_t task) {
    const int64_t sequence = task / (heads.n_heads * n_parts);
    const int64_t head = task / n_parts % heads.n_heads, part = task % n_parts;
    const RowRange rows = RowsOf(*context, sequence);
    RecurrentJob job;
    job.state = StateOf(*context, sequence, heads.slot) + head * head_floats +
                part * StateFloats(heads.n_rows, n_columns);
    job.n_rows = heads.n_rows;
    job.n_columns = n_columns;
    job.n_tokens = rows.end - rows.begin;
    job.outputs = heads.values.row(rows.begin) + head * heads.n_columns + part * n_columns;
    job.values = job.outputs;
    job.stride = job.output_stride = heads.values.stride;
    if (heads.decays != nullptr) job.decays = heads.decays + rows.begin * heads.gate_stride + head;
    job.gains = heads.gains + rows.begin * heads.gate_stride + head;
    job.gate_stride = heads.gate_stride;
    advance(&job, rows.begin, head);
  };
  // A head's state is read and written once per chunk of a sequence, if it stays in the cache.
  context->compute.stats().kv_bytes +=
      2 * n_sequences * heads.n_heads * head_floats * static_cast<int64_t>(sizeof(float));
  context->compute.TimeAttention([&] {
    context->compute.RunTasks(n_sequences * heads.n_heads * n_parts,
                              [&](int64_t begin, int64_t end, int) {
                                for (int64_t task = begin; task < end; ++task) run(task);
                              });
  });
}

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_RECURRENT_PARTS_H_
