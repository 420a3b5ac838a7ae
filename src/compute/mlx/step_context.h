// Shared by the operations of one step: its rows, the location of their state, and the operations'
// building blocks. Belongs to the thread that runs the step.
//
// A batch of rows is an F32 array [rows, width], in the order of sequences and tokens. Everything
// here only builds a graph; nothing is computed before StepRun asks for it.
#ifndef WEFT_COMPUTE_MLX_STEP_CONTEXT_H_
#define WEFT_COMPUTE_MLX_STEP_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "compute/backend.h"
#include "compute/mlx/lanes.h"
#include "compute/mlx/mlx_include.h"
#include "compute/mlx/mlx_state.h"
#include "compute/mlx/mlx_weights.h"

namespace weft::mlx {

// Rows of a group's pools, ordered by position.
struct PoolRows {
  mx::array rows;  // [n]
  // The first row if the rows are contiguous: then they are sliced instead of gathered.
  std::optional<int64_t> first;
  mx::array Of(const mx::array& pool) const;  // [heads, n, width]
};

// One sequence's rows in the step.
struct SequenceRows {
  int64_t first = 0;  // row in the step
  int64_t count = 0;
  int64_t position = 0;  // position of the first row
  // Per KvGroup: all positions that any of the rows sees, up to the last row's own.
  std::vector<PoolRows> seen;
};

// Sequences with the same number of rows, whose recurrent states advance together.
struct RowGroup {
  int64_t count = 0;  // rows of each sequence
  mx::array rows;     // [sequences * count], rows of the step
  mx::array slots;    // [sequences]
};

class StepContext {
 public:
  // REQUIRES: the step is valid. The data that `step` points to outlives the context.
  StepContext(const MlxWeights& weights, MlxState* state, const Lanes& lanes, const Step& step);

  const ModelSpec& spec() const { return spec_; }
  MlxState& state() { return state_; }
  const Lanes& lanes() const { return lanes_; }
  int64_t n_rows() const { return n_rows_; }
  const std::vector<SequenceRows>& sequences() const { return sequences_; }
  const std::vector<RowGroup>& row_groups() const { return row_groups_; }
  // Reorders rows from the order of the groups to that of the step.
  mx::array InStepOrder(const std::vector<mx::array>& groups) const;

  // Multiplies the rows by a matrix, using all lanes.
  mx::array Apply(const BoundLinear& linear, const mx::array& x) const;
  // Writes rows to a layer's pools. `values` is null if the layer stores none.
  void Store(int kv_layer, const mx::array& keys, const mx::array* values);
  // Rotates heads [rows, heads, dim] from value `offset` of each on; rope -1: no rotation.
  mx::array Rotate(const mx::array& heads, int rope, int64_t offset) const;

  // Keeps only the last rows of each sequence, whose results are wanted, and returns their part of
  // `stream`. Nothing that writes state may follow.
  mx::array KeepWanted(const mx::array& stream);

  // Queries [rows, n], each row scaled by the temperature at its position.
  mx::array Warm(const QueryTemperature& temperature, const mx::array& queries) const;

  std::optional<mx::array> kept;              // the stream before the block that keeps it
  std::optional<mx::array> per_layer_inputs;  // [rows, layers * width]

 private:
  // The row of a position in a group's pools.
  int32_t PoolRow(std::span<const PageId> table, int64_t position) const;
  void FindSeen(const Step& step, size_t s, SequenceRows* rows) const;
  void GroupRows(const Step& step);
  void MakeTurns();

  const ModelSpec& spec_;
  MlxState& state_;
  const Lanes& lanes_;
  const Step& step_;
  int64_t n_rows_ = 0;
  std::vector<SequenceRows> sequences_;
  std::vector<mx::array> stored_rows_;  // per KvGroup: pool rows of the step's rows
  std::vector<RowGroup> row_groups_;
  std::optional<mx::array> step_order_;  // order of the groups' rows; none: already in order
  struct Turns {
    mx::array cosine, sine;  // [rows, 1, pairs]
  };
  std::vector<Turns> turns_;  // per rope
};

// --- pieces ----------------------------------------------------------------------------

// Columns [first, first + count) of the last dimension.
mx::array Columns(const mx::array& x, int64_t first, int64_t count);
// [rows, width] as [rows, n, width / n].
mx::array AsHeads(const mx::array& x, int64_t n);
// All dimensions but the first as one.
mx::array AsRows(const mx::array& x);
mx::array Multiply(const mx::array& x, const Matrix& matrix);
// Each lane computes a range of the outputs. The result does not depend on the number of lanes.
mx::array MultiplyInLanes(const Lanes& lanes, const mx::array& x, const Matrix& matrix);
// x: [rows, 1 or n, n_in], members: [rows, n] -> [rows, n, n_out].
mx::array ApplyMembers(const BoundStack& stack, const mx::array& x, const mx::array& members);
// Each head through its own member: [rows, count, n_in] -> [rows, count, n_out].
mx::array ApplyToHeads(const BoundStack& stack, const mx::array& heads);
// An absent norm does nothing.
mx::array ApplyNorm(const BoundNorm& norm, const mx::array& x);
// act(gate) * up; without `up` act(gate).
mx::array Activate(Activation activation, const ActivationNumbers& numbers, const mx::array& gate,
                   const mx::array* up);
mx::array Silu(const mx::array& x);
mx::array Softcap(float cap, const mx::array& x);

// --- operations: rows to rows, all of width d_model -------------------------------------

// `raw` is the residual stream at the beginning of the block. Loading refuses a model with one of
// those that have a kRefusedName; they are not defined.
#define WEFT_DECLARE_(Operation)                                                        \
  mx::array RunOp(StepContext* context, const Bound<Operation>& op, const mx::array& x, \
                  const mx::array& raw);
WEFT_OPERATIONS(WEFT_DECLARE_)
#undef WEFT_DECLARE_

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_STEP_CONTEXT_H_
