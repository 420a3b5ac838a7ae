#include "compute/cpu/cpu_executor.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "compute/checks.h"
#include "compute/cpu/cpu_step_run.h"
#include "compute/cpu/input_sums.h"

namespace weft::cpu {

StatusOr<std::unique_ptr<Executor>> CpuExecutor::New(std::shared_ptr<const CpuWeights> weights,
                                                     CpuState* state,
                                                     const ExecutorOptions& options,
                                                     InputSums* sums) {
  try {
    WEFT_ASSIGN_OR_RETURN(Scratch scratch,
                          Scratch::New(weights->spec(), weights->model(), options.max_step_tokens));
    const int64_t beside_rows = std::min(options.max_beside_tokens, options.max_step_tokens);
    WEFT_ASSIGN_OR_RETURN(Scratch beside,
                          Scratch::New(weights->spec(), weights->model(), beside_rows));
    std::unique_ptr<CpuExecutor> executor(
        new CpuExecutor(std::move(weights), state, options, std::move(scratch), std::move(beside)));
    for (const Workspace& workspace : executor->workspaces_) {
      if (workspace.scratch.data() == nullptr) {
        return ResourceExhausted("no memory for the threads' scratch; use fewer threads");
      }
    }
    if (sums != nullptr) {
      sums->Watch(*executor->weights_);
      executor->compute_.Observe(
          [sums](std::span<const Product> products) { sums->Add(products); });
    }
    return std::unique_ptr<Executor>(std::move(executor));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for an executor");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start ", options.n_threads, " threads: ", error.what());
  }
}

std::shared_ptr<ThreadPool> CpuExecutor::PoolOf(const ExecutorOptions& options) {
  const auto* other = dynamic_cast<const CpuExecutor*>(options.shares_threads_with);
  return other != nullptr ? other->compute_.pool()
                          : std::make_shared<ThreadPool>(options.n_threads);
}

CpuExecutor::CpuExecutor(std::shared_ptr<const CpuWeights> weights, CpuState* state,
                         const ExecutorOptions& options, Scratch scratch, Scratch beside)
    : weights_(std::move(weights)),
      state_(*state),
      max_step_tokens_(options.max_step_tokens),
      max_beside_tokens_(std::min(options.max_beside_tokens, options.max_step_tokens)),
      scratch_(std::move(scratch)),
      beside_scratch_(std::move(beside)),
      compute_(PoolOf(options), weights_->isa()),
      workspaces_(static_cast<size_t>(compute_.n_threads())),
      context_{weights_->spec(),    compute_, scratch_, state_, workspaces_, logits_,
               weights_->adapters()},
      beside_{weights_->spec(), compute_, beside_scratch_,     state_,
              workspaces_,      logits_,  weights_->adapters()} {
  scratch_bytes_ = scratch_.bytes() + beside_scratch_.bytes();
  const BoundModel& model = weights_->model();
  // A model without a table or attention has no use for it, and gets a byte.
  int64_t bytes = std::max<int64_t>(
      1, MaxAttentionScratch(weights_->spec(), state_) * static_cast<int64_t>(sizeof(float)));
  if (model.embedding) bytes = std::max(bytes, model.embedding.row_bytes());
  if (model.positions) bytes = std::max(bytes, model.positions.row_bytes());
  if (model.per_layer_input) bytes = std::max(bytes, model.per_layer_input->table.row_bytes());
  for (Workspace& workspace : workspaces_) {
    workspace.scratch = AlignedBuffer(static_cast<size_t>(bytes));
    scratch_bytes_ += static_cast<int64_t>(workspace.scratch.size());
  }
}

StatusOr<std::unique_ptr<StepRun>> CpuExecutor::Begin(const Step& step) {
  const bool is_beside = context_.in_use;
  if (is_beside && beside_.in_use) {
    return FailedPrecondition("a step next to the paused one has not ended");
  }
  const StepLimits limits{is_beside ? max_beside_tokens_ : max_step_tokens_,
                          kMaxBest,
                          /*rows=*/true,
                          /*prediction_heads=*/true,
                          /*changes=*/false,
                          /*row_input=*/true,
                          /*mutual=*/true,
                          /*adapters=*/weights_->adapters().count()};
  WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), state_, limits, step));
  return CpuStepRun::Begin(*weights_, is_beside ? &beside_ : &context_, step);
}

}  // namespace weft::cpu
