// The blocks of a ModelSpec, one function each: what the words in
// model/model_spec.h mean. Values between blocks are float, sums inside are double.
//
// Every function works on the rows of one step at once (a row is one token of one
// sequence), and no row's result depends on another's, but through the stored keys
// and values of its own sequence.
#ifndef WEFT_COMPUTE_REFERENCE_BLOCKS_H_
#define WEFT_COMPUTE_REFERENCE_BLOCKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/backend.h"
#include "compute/reference/reference_state.h"
#include "compute/reference/tensors.h"
#include "model/model_spec.h"

namespace weft::reference {

// The sequence, position and token of a row.
struct RowOrigin {
  int sequence = 0;  // index into Step::sequences
  int64_t position = 0;
  TokenId token = 0;
  int64_t type = 0;                     // see TokenTypes
  std::span<const float> vector = {};   // an input embedding instead of the token
  std::span<const float> hidden = {};   // in addition to it: see HiddenInput
  int64_t last_seen = 0;                // by attention: the later one of `position` and this
  const AxisPositions* axes = nullptr;  // null: `position` on all axes
};

// Positions that a row's key head attends to, ascending; by row, then by key head.
using ChosenKeys = std::vector<std::vector<int64_t>>;

// Shared by the blocks of one step.
struct StepContext {
  const ModelSpec& spec;
  const Tensors& tensors;
  const Step& step;
  std::vector<RowOrigin> rows;  // in the order of sequences and tokens
  ReferenceState* state = nullptr;
  Rows kept{0, 0};  // the stream as the last block that keeps its input found it
  std::shared_ptr<ChosenKeys> chosen = std::make_shared<ChosenKeys>();  // see KeyChoice
  std::shared_ptr<Rows> first_values = std::make_shared<Rows>(0, 0);    // see TimeMix
  std::shared_ptr<Rows> sides;  // [rows][n_side_streams * d_model], where there are some
  Rows per_layer_inputs{0, 0};  // when the spec has them: [rows][n_layers * width]
};

// --- pieces ---------------------------------------------------------------------

// Over the first b.size() values.
double Dot(std::span<const float> a, std::span<const float> b);
double Sigmoid(double x);
double Softplus(double x);
Rows ApplyLinear(const Tensors& tensors, const Linear& linear, const Rows& x);
std::vector<float> ApplyMember(const Tensors& tensors, const StackedLinear& stack, int64_t member,
                               std::span<const float> x);
// In place; an absent norm does nothing.
void ApplyNorm(const Tensors& tensors, const Norm& norm, Rows* x);
// Turns one head's values for one position, in place. REQUIRES: `head` starts where
// the rotated part does.
void ApplyRope(const Rope& rope, int64_t position, std::span<float> head);
void ApplyRope(const Rope& rope, const RowOrigin& row, std::span<float> head);
// act(gate) * up; with `up` absent (null), act(gate).
float Activate(Activation activation, const ActivationNumbers& numbers, float gate,
               const float* up);
float Softcap(float cap, double value);

// --- operations: input rows to output rows, all of width d_model ----------------------

// `raw` is the residual stream as the block found it. Rows are taken in order where each
// changes the state that the next one finds.
#define WEFT_DECLARE_(Operation) \
  Rows RunOp(const StepContext& context, const Operation& op, const Rows& x, const Rows& raw);
WEFT_OPERATIONS(WEFT_DECLARE_)
#undef WEFT_DECLARE_

// --- the whole ------------------------------------------------------------------------

// Scaled embeddings of the step's rows, plus those of positions and types.
Rows Embed(const StepContext& context);
Rows ComputePerLayerInputs(const StepContext& context, const Rows& embedded);
// Sends the residual stream through one block, in place.
void RunBlock(StepContext* step, const Block& block, Rows* stream);
// From the residual stream to the vectors that the step wants, where it wants them; and to the
// logits of the rows that it wants any of.
Rows ComputeOutputs(const StepContext& context, const Rows& stream);

}  // namespace weft::reference

#endif  // WEFT_COMPUTE_REFERENCE_BLOCKS_H_
