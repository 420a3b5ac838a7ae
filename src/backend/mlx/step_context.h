// What the operations of one step share: which rows there are, where their state lies, and the
// pieces that they are made of. Belongs to the thread that runs the step.
//
// A batch of rows is an array [rows, width] of F32, in the order of sequences and tokens.
// Everything here builds a graph; nothing is computed before StepRun asks for it.
#ifndef WEFT_BACKEND_MLX_STEP_CONTEXT_H_
#define WEFT_BACKEND_MLX_STEP_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/mlx/lanes.h"
#include "backend/mlx/mlx_include.h"
#include "backend/mlx/mlx_state.h"
#include "backend/mlx/mlx_weights.h"
#include "base/check.h"

namespace weft::mlx {

// Rows of a group's pools, in the order of positions.
struct PoolRows {
  mx::array rows;  // [n]
  // Where they begin, if they lie one after the other: then they are read where they lie.
  std::optional<int64_t> first;
  mx::array Of(const mx::array& pool) const;  // [heads, n, width]
};

// One sequence's rows in the step.
struct SequenceRows {
  int64_t first = 0;  // row of the step
  int64_t count = 0;
  int64_t position = 0;  // of the first row
  // Per KvGroup: what any of the rows sees, up to the last row's own position.
  std::vector<PoolRows> seen;
};

// Sequences with equally many rows, whose recurrent states advance together.
struct RowGroup {
  int64_t count = 0;  // rows of each sequence
  mx::array rows;     // [sequences * count], rows of the step
  mx::array slots;    // [sequences]
};

class StepContext {
 public:
  // REQUIRES: the step is valid. What `step` points to stays.
  StepContext(const MlxWeights& weights, MlxState* state, const Lanes& lanes, const Step& step);

  const ModelSpec& spec() const { return spec_; }
  MlxState& state() { return state_; }
  const Lanes& lanes() const { return lanes_; }
  int64_t n_rows() const { return n_rows_; }
  const std::vector<SequenceRows>& sequences() const { return sequences_; }
  const std::vector<RowGroup>& row_groups() const { return row_groups_; }
  // Brings rows from the order of the groups, one after the other, into that of the step.
  mx::array InStepOrder(const std::vector<mx::array>& groups) const;

  // The rows through a matrix, over all lanes.
  mx::array Apply(const BoundLinear& linear, const mx::array& x) const;
  // Puts rows into the pools of a layer. `values` is null where it has none.
  void Store(int kv_layer, const mx::array& keys, const mx::array* values);
  // Turns the heads [rows, heads, dim] from value `offset` of each on; rope -1: not at all.
  mx::array Rotate(const mx::array& heads, int rope, int64_t offset) const;

  // Leaves only the last rows of each sequence, those that results are wanted of. Nothing that
  // writes state may follow. Returns `stream` without the others.
  mx::array KeepWanted(const mx::array& stream);

  // Queries [rows, n], each row times what the temperature says of its position.
  mx::array Warm(const QueryTemperature& temperature, const mx::array& queries) const;

  std::optional<mx::array> kept;              // the stream as a block that keeps it found it
  std::optional<mx::array> per_layer_inputs;  // [rows, layers * width]

 private:
  // Where in a group's pools a position lies.
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
  std::vector<mx::array> stored_rows_;  // per KvGroup: where in the pools the step's rows lie
  std::vector<RowGroup> row_groups_;
  std::optional<mx::array> step_order_;  // of the groups' rows; none: they are in order
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
// Each lane has a part of the outputs, which are the same however many there are.
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

// `raw` is the residual stream as the block found it.
mx::array RunOp(StepContext* context, const Bound<Attention>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<LatentAttention>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<BidirectionalAttention>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<ShortConvolution>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<GatedDeltaNet>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<StateSpace>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<DenseFfn>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<MixtureOfExperts>& op, const mx::array& x,
                const mx::array& raw);
mx::array RunOp(StepContext* context, const Bound<PerLayerGate>& op, const mx::array& x,
                const mx::array& raw);
// Those that no model has which this backend loads.
template <typename Operation>
requires(!kRefusedName<Operation>.empty()) mx::array
    RunOp(StepContext* /*context*/, const Bound<Operation>& /*op*/, const mx::array& x,
          const mx::array& /*raw*/) {
  WEFT_CHECK(false, "an operation that loading refuses");
  return x;
}

}  // namespace weft::mlx

#endif  // WEFT_BACKEND_MLX_STEP_CONTEXT_H_
