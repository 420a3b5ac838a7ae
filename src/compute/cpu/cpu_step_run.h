// Runs one step on the CPU: its inputs, the blocks one after the other, the logits. It can pause
// between two blocks while another run, with its own context, computes. Owner thread only.
#ifndef WEFT_COMPUTE_CPU_CPU_STEP_RUN_H_
#define WEFT_COMPUTE_CPU_CPU_STEP_RUN_H_

#include <cstddef>
#include <memory>

#include "compute/backend.h"
#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/step_context.h"

namespace weft::cpu {

class CpuStepRun : public StepRun {
 public:
  // REQUIRES: the step is valid; the context is not in use. The run uses it for its lifetime.
  static StatusOr<std::unique_ptr<StepRun>> Begin(const CpuWeights& weights, StepContext* context,
                                                  const Step& step);
  ~CpuStepRun() override { context_->in_use = false; }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override;

 private:
  CpuStepRun(const CpuWeights& weights, StepContext* context, const Step& step);

  StatusOr<bool> ComputeUntil(FunctionRef<bool()> pause);
  Status ComputeInputs();
  // Reads the table's row index(row) for each row of the step, as floats; skips negative indices.
  Status ReadTable(const BoundTable& table, FunctionRef<int64_t(const StepRow&)> index,
                   const RowsView& to);
  Status Embed();
  Status AdaptEmbeddings();
  void ReadRowInput(const BoundRowInput& input);
  Status AddPositionsAndTypes();
  void JoinHidden();
  Status ComputePerLayerInputs();
  void RunBlock(const BoundBlock& block);
  void ComputeOutputs();
  void ComputeLogits(const RowsView& vectors, int64_t n_logits);
  // For rows [first, first + n) of `vectors`.
  void ComputeLogitsOf(const RowsView& vectors, int64_t first, int64_t n, float* logits);
  void PutResults(const RowsView& rows);

  const CpuWeights& weights_;
  StepContext* const context_;
  Compute& compute_;
  const Step step_;
  size_t next_block_ = 0;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_CPU_STEP_RUN_H_
