// Runs steps on the CPU: see backend.h for the contract.
#ifndef WEFT_COMPUTE_CPU_CPU_EXECUTOR_H_
#define WEFT_COMPUTE_CPU_CPU_EXECUTOR_H_

#include <memory>
#include <vector>

#include "compute/backend.h"
#include "compute/cpu/compute.h"
#include "compute/cpu/cpu_state.h"
#include "compute/cpu/cpu_weights.h"
#include "compute/cpu/step_context.h"

namespace weft::cpu {

// BackendCapabilities::max_best. With more, whole rows cost no more.
inline constexpr int64_t kMaxBest = 512;

class InputSums;

class CpuExecutor : public Executor {
 public:
  // REQUIRES: the options are within the backend's capabilities; `sums`, if there are any, outlive
  // the executor, which measures for them.
  static StatusOr<std::unique_ptr<Executor>> New(std::shared_ptr<const CpuWeights> weights,
                                                 CpuState* state, const ExecutorOptions& options,
                                                 InputSums* sums = nullptr);

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override;
  int64_t max_beside_tokens() const override { return max_beside_tokens_; }
  int pause_points() const override {
    return static_cast<int>(weights_->model().blocks.size()) - 1;
  }
  int64_t scratch_bytes() const override {
    return scratch_bytes_ + compute_.adapters().scratch_bytes() +
           static_cast<int64_t>(logits_.capacity() * sizeof(float));
  }
  StageStats stage_stats() const override { return compute_.stats(); }

  // The thread pool of the executor that the options name, or a new one of the size they give.
  static std::shared_ptr<ThreadPool> PoolOf(const ExecutorOptions& options);

 private:
  CpuExecutor(std::shared_ptr<const CpuWeights> weights, CpuState* state,
              const ExecutorOptions& options, Scratch scratch, Scratch beside);

  const std::shared_ptr<const CpuWeights> weights_;
  CpuState& state_;
  const int64_t max_step_tokens_;
  const int64_t max_beside_tokens_;
  int64_t scratch_bytes_ = 0;
  Scratch scratch_, beside_scratch_;
  Compute compute_;
  std::vector<Workspace> workspaces_;
  std::vector<float> logits_;  // shared by both contexts: no step pauses while it needs them
  StepContext context_;
  StepContext beside_;  // for a step that runs while another is paused
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_CPU_EXECUTOR_H_
