// One step in progress: its rows, and the scratch memory that the operations share. Owner thread
// only.
#ifndef WEFT_COMPUTE_CPU_STEP_CONTEXT_H_
#define WEFT_COMPUTE_CPU_STEP_CONTEXT_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_state.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/scratch.h"

namespace weft::cpu {

// Rows of d_model values, one per token.
struct StreamRows {
  StreamRows(const ModelSpec& spec, Arena* arena);
  // The residual stream, the block's normalised input, a path's input, a path's output, and
  // the sum of paths.
  RowsView stream, block_input, path_input, path_output, path_sum;
  RowsView kept;          // the stream at a block that keeps its input; empty if no block does
  RowsView first_values;  // see TimeMix; empty if the model has none
  RowsView sides;         // all side streams; empty if the model has none
  RowsView per_layer;     // n_layers * width; empty if the model has none
};

// Memory for steps of up to `max_rows` rows: the rows themselves, and memory that operations use
// one after the other.
class Scratch : public StreamRows {
 public:
  // RESOURCE_EXHAUSTED if there is no memory.
  static StatusOr<Scratch> New(const ModelSpec& spec, const BoundModel& model, int64_t max_rows);

  // All memory after the rows, for steps of `n_rows` rows.
  Arena ForRows(int64_t n_rows) { return Arena(n_rows, memory_.As<std::byte>().subspan(used_)); }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  Scratch(const StreamRows& rows, AlignedBuffer memory, size_t used)
      : StreamRows(rows), memory_(std::move(memory)), used_(used) {}
  AlignedBuffer memory_;
  size_t used_;  // by the rows
};

// Scratch of per-layer inputs (rows of the table), of a prediction head's input, of rows that are
// no tokens, and of the logits.
struct PerLayerScratch {
  const ModelSpec& spec;
  Arena* arena;
  RowsView table_rows = arena->Rows(spec.per_layer_input->proj.n_out);
  Int8View input = arena->Int8(spec.d_model);
};
struct HiddenScratch {
  const ModelSpec& spec;
  Arena* arena;
  RowsView joined = arena->Rows(spec.hidden_input->proj.n_in);
  Int8View input = arena->Int8(spec.hidden_input->proj.n_in);
};
struct RowInputScratch {
  const ModelSpec& spec;
  Arena* arena;
  RowsView rows = arena->Rows(RowWidth(spec));
  Int8View input = arena->Int8(RowWidth(spec));
};
struct LogitsScratch {
  const ModelSpec& spec;
  Arena* arena;
  Int8View input = arena->Int8(spec.d_model);
};

struct StepRow {
  int sequence;
  int64_t position;
  TokenId token;
  int64_t type;                         // see TokenTypes
  const float* vector = nullptr;        // input embedding instead of the token
  const float* added = nullptr;         // its further parts: see Block::row_part
  const float* hidden = nullptr;        // in addition to the token: see HiddenInput
  int64_t last_seen = 0;                // the last position that it attends to
  const AxisPositions* axes = nullptr;  // null: `position` on all axes
};

// Cosines and sines of every row's position, for each rope of the spec.
class RopeTables {
 public:
  void Fill(const ModelSpec& spec, const std::vector<StepRow>& rows, Compute* compute);
  const float* cosines(int rope, int64_t row) const { return At(rope, row); }
  const float* sines(int rope, int64_t row) const { return At(rope, row) + pairs_[rope]; }

 private:
  const float* At(int rope, int64_t row) const {
    return values_[rope].data() + row * 2 * pairs_[rope];
  }
  std::vector<int64_t> pairs_;
  std::vector<std::vector<float>> values_;  // (row, cosines then sines)
};

// A worker's memory: scratch, and arrays that describe its attention job.
struct Workspace {
  AlignedBuffer scratch;
  std::vector<const std::byte*> tiles;
  std::vector<AttentionQuery> queries;
  AlignedBuffer gathered;                // tiles of chosen keys
  std::vector<float> gathered_position;  // one key and value
};

struct StepContext {
  const ModelSpec& spec;
  Compute& compute;
  Scratch& scratch;
  CpuState& state;
  std::vector<Workspace>& workspaces;  // one per thread
  std::vector<float>& logits;          // rows of logits whose best tokens are wanted
  const CpuAdapters& adapters;
  const Step* step = nullptr;
  std::vector<StepRow> rows;
  std::vector<int64_t> first_rows;  // per sequence, and the end
  int64_t n_wanted = 0;             // rows that have a result
  RopeTables ropes;
  std::vector<AdaptedRows> adapted;  // by adapter, those that have rows
  // Positions that each row attends to, ascending, by row and then by key head. See KeyChoice.
  std::vector<std::vector<int64_t>> chosen;
  AlignedBuffer text_tiles, attention_parts;  // used by one operation at a time; grow
  bool in_use = false;                        // by a run

  // Replaces the rows by those of `new_step`.
  void Begin(const Step& new_step);
  // Drops rows without a wanted result, here and in the scratch memory. Call it once no operation
  // is left that writes state.
  void KeepWantedRows();
  // Finds the rows of each adapter anew.
  void SortByAdapter();
  bool has_unwanted_rows() const { return n_rows() > n_wanted; }

  int64_t n_rows() const { return static_cast<int64_t>(rows.size()); }
  int64_t n_sequences() const { return static_cast<int64_t>(step->sequences.size()); }
  void Rotate(int rope, int64_t row, float* head) const;
  // Scales a row's queries by their temperature.
  void Warm(const QueryTemperature& temperature, int64_t row, int64_t n, float* queries) const;
  // The sequence's page table of a KvLayer's group.
  std::span<const PageId> TableOf(int kv_layer, int sequence) const {
    return step->sequences[sequence].page_tables[state.group(kv_layer)];
  }
};

// The operations: out = op(x), rows of d_model. `raw` is the block's input before any norm. PlanOp
// reserves the scratch memory that RunOp needs.
#define WEFT_DECLARE_(Operation)                                                  \
  void RunOp(StepContext* context, const Bound<Operation>& op, const RowsView& x, \
             const RowsView& raw, const RowsView& out);                           \
  void PlanOp(const Bound<Operation>& op, Arena* arena);
WEFT_OPERATIONS(WEFT_DECLARE_)
#undef WEFT_DECLARE_

// Max queries that a worker computes together for one kv head.
inline constexpr int64_t kQueriesPerTask = 128;
// Makes room for attention jobs of `n_tiles` tiles, so that no worker has to allocate.
void SizeWorkspaces(StepContext* context, int64_t n_tiles, int64_t heads_per_kv_head);
// Max scratch floats of any attention job of the spec.
int64_t MaxAttentionScratch(const ModelSpec& spec, const CpuState& state);

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_STEP_CONTEXT_H_
