// Runs steps with MLX: see backend.h for the contract.
//
// A run builds the graph of a few blocks, has it computed with the pools that it writes, and may
// pause before the next few. MLX's streams belong to threads: a step uses those of the thread
// that advances it.
#ifndef WEFT_BACKEND_MLX_MLX_EXECUTOR_H_
#define WEFT_BACKEND_MLX_MLX_EXECUTOR_H_

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/mlx/mlx_state.h"
#include "backend/mlx/mlx_weights.h"

namespace weft::mlx {

// BackendCapabilities::max_best.
inline constexpr int64_t kMaxBest = 512;

class MlxExecutor : public Executor {
 public:
  // `row_by_row`: no two rows are computed together, so that none depends on another's being
  // there. REQUIRES: the options are within the backend's capabilities.
  MlxExecutor(std::shared_ptr<const MlxWeights> weights, MlxState* state,
              const ExecutorOptions& options, bool row_by_row);

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override;
  int64_t max_beside_tokens() const override { return max_beside_tokens_; }
  int pause_points() const override;
  // What MLX keeps for what is computed next; it is the whole program's.
  int64_t scratch_bytes() const override { return static_cast<int64_t>(mx::get_cache_memory()); }
  StageStats stage_stats() const override { return stats_; }

 private:
  const std::shared_ptr<const MlxWeights> weights_;
  MlxState& state_;
  const Lanes lanes_;
  const int64_t max_step_tokens_;
  const int64_t max_beside_tokens_;
  const bool row_by_row_;
  int n_open_ = 0;   // runs
  int n_parts_ = 0;  // of runs that go row by row
  StageStats stats_;
};

}  // namespace weft::mlx

#endif  // WEFT_BACKEND_MLX_MLX_EXECUTOR_H_
