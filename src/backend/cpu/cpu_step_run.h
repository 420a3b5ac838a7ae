// One step's way through the model on the CPU: its inputs, the blocks one after the other,
// the logits. Between two blocks it can rest while another run, with a context of its own,
// goes through. Owner thread only.
#ifndef WEFT_BACKEND_CPU_CPU_STEP_RUN_H_
#define WEFT_BACKEND_CPU_CPU_STEP_RUN_H_

#include <cstddef>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/compute.h"
#include "backend/cpu/cpu_weights.h"
#include "backend/cpu/step_context.h"

namespace weft::cpu {

class CpuStepRun : public StepRun {
 public:
  // REQUIRES: the step is valid; the context is not in use. It is until the run is gone.
  static StatusOr<std::unique_ptr<StepRun>> Begin(const CpuWeights& weights, StepContext* context,
                                                  const Step& step);
  ~CpuStepRun() override { context_->in_use = false; }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override;

 private:
  CpuStepRun(const CpuWeights& weights, StepContext* context, const Step& step);

  StatusOr<bool> ComputeUntil(FunctionRef<bool()> pause);
  Status ComputeInputs();
  // The table's row of each row of the step, index(row), as floats; none where that is negative.
  Status ReadTable(const BoundTable& table, FunctionRef<int64_t(const StepRow&)> index,
                   const RowsView& to);
  Status Embed();
  Status AddPositionsAndTypes();
  void JoinHidden();
  Status ComputePerLayerInputs();
  void RunBlock(const BoundBlock& block);
  void ComputeOutputs();
  void ComputeLogits(const RowsView& vectors, int64_t n_logits);
  // Of rows [first, first + n) of `vectors`.
  void ComputeLogitsOf(const RowsView& vectors, int64_t first, int64_t n, float* logits);
  void PutResults(const RowsView& rows);

  const CpuWeights& weights_;
  StepContext* const context_;
  Compute& compute_;
  const Step step_;
  size_t next_block_ = 0;
};

}  // namespace weft::cpu

#endif  // WEFT_BACKEND_CPU_CPU_STEP_RUN_H_
