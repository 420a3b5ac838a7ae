// Runs steps with MLX: see backend.h for the contract.
//
// A run builds the graph of a few blocks, has MLX compute it together with the pools it writes, and
// may pause before the next few blocks. MLX streams belong to threads: a step uses the streams of
// the thread that advances it.
#ifndef WEFT_COMPUTE_MLX_MLX_EXECUTOR_H_
#define WEFT_COMPUTE_MLX_MLX_EXECUTOR_H_

#include <cstdint>
#include <memory>

#include "compute/backend.h"
#include "compute/mlx/lanes.h"
#include "compute/mlx/mlx_state.h"
#include "compute/mlx/mlx_weights.h"

namespace weft::mlx {

// BackendCapabilities::max_best.
inline constexpr int64_t kMaxBest = 512;

class MlxExecutor : public Executor {
 public:
  // `row_by_row`: computes each row by itself, so that its bits do not depend on the other rows.
  // REQUIRES: the options are within the backend's capabilities.
  MlxExecutor(std::shared_ptr<const MlxWeights> weights, MlxState* state,
              const ExecutorOptions& options, bool row_by_row);

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override;
  int64_t max_beside_tokens() const override { return max_beside_tokens_; }
  int pause_points() const override;
  // Memory that MLX keeps for reuse; shared by the whole process.
  int64_t scratch_bytes() const override { return static_cast<int64_t>(mx::get_cache_memory()); }
  StageStats stage_stats() const override { return stats_; }

 private:
  const std::shared_ptr<const MlxWeights> weights_;
  MlxState& state_;
  const Lanes lanes_;
  const int64_t max_step_tokens_;
  const int64_t max_beside_tokens_;
  const bool row_by_row_;
  int n_open_ = 0;   // open runs
  int n_parts_ = 0;  // open parts of row-by-row runs
  StageStats stats_;
};

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_MLX_EXECUTOR_H_
