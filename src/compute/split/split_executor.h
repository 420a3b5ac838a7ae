// Runs steps of a model that two backends compute: the front's layers, then the back's layers with
// the front's output of every row.
//
// The back's run begins when the front's is done. So a second step, begun while the first is
// paused, finds each part either free or with only the paused run open. Owner thread only.
#ifndef WEFT_COMPUTE_SPLIT_SPLIT_EXECUTOR_H_
#define WEFT_COMPUTE_SPLIT_SPLIT_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "compute/backend.h"
#include "compute/checks.h"
#include "compute/split/split_spec.h"
#include "compute/split/split_state.h"

namespace weft::split {

class SplitExecutor final : public Executor {
 public:
  // The executors use the state's parts; `weights` are the whole model's and hold `split`. The
  // state outlives the object.
  SplitExecutor(std::shared_ptr<const Weights> weights, const SplitSpec& split, SplitState* state,
                std::unique_ptr<Executor> front, std::unique_ptr<Executor> back,
                const StepLimits& limits)
      : weights_(std::move(weights)),
        split_(split),
        state_(*state),
        front_(std::move(front)),
        back_(std::move(back)),
        limits_(limits) {}

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override;
  int64_t max_beside_tokens() const override;
  int pause_points() const override { return front_->pause_points() + back_->pause_points() + 1; }
  int64_t scratch_bytes() const override {
    return front_->scratch_bytes() + back_->scratch_bytes();
  }
  int64_t later_bytes() const override { return front_->later_bytes() + back_->later_bytes(); }
  StageStats stage_stats() const override;

  const Executor* front() const { return front_.get(); }

 private:
  class Run;

  const std::shared_ptr<const Weights> weights_;
  const SplitSpec& split_;
  SplitState& state_;
  // The back may share the front's threads.
  const std::unique_ptr<Executor> front_, back_;
  const StepLimits limits_;
  int n_open_ = 0;  // open runs
};

}  // namespace weft::split

#endif  // WEFT_COMPUTE_SPLIT_SPLIT_EXECUTOR_H_
