#include "compute/split/split_executor.h"

#include <algorithm>
#include <new>
#include <vector>

namespace weft::split {

// One step in progress through both parts.
class SplitExecutor::Run : public StepRun {
 public:
  Run(SplitExecutor* executor, const Step& step) : executor_(*executor) {
    LayOut(step);
    ++executor_.n_open_;
  }
  ~Run() override { --executor_.n_open_; }

  // The front returns every row's vector, which is the residual stream, because its spec has no
  // output norm.
  Status BeginFront() {
    WEFT_ASSIGN_OR_RETURN(front_run_, executor_.front_->Begin(front_step_));
    return OkStatus();
  }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    if (front_run_ != nullptr) {
      WEFT_ASSIGN_OR_RETURN(const bool done, front_run_->Advance(pause));
      if (!done) return false;
      front_run_.reset();
      WEFT_ASSIGN_OR_RETURN(back_run_, executor_.back_->Begin(back_step_));
      if (pause()) return false;
    }
    return back_run_->Advance(pause);
  }

  Status ReadRow(int64_t row, std::span<float> logits) override {
    return back_run_->ReadRow(row, logits);
  }

 private:
  void LayOut(const Step& step) {
    const auto width = static_cast<size_t>(executor_.weights_->spec().d_model);
    size_t n_rows = 0, longest = 0;
    for (const StepSequence& sequence : step.sequences) {
      n_rows += sequence.tokens.size();
      longest = std::max(longest, sequence.tokens.size());
    }
    stream_ = std::make_unique_for_overwrite<float[]>(n_rows * width);
    places_.assign(longest, kAnyRow);
    const float* row = stream_.get();
    for (const StepSequence& sequence : step.sequences) {
      const size_t n = sequence.tokens.size();
      StepSequence front = {.tokens = sequence.tokens,
                            .rows = sequence.rows,
                            .position = sequence.position,
                            .page_tables = TablesOf(executor_.split_.front, sequence),
                            .slot = sequence.slot,
                            .n_vectors = static_cast<int64_t>(n)};
      front_.push_back(std::move(front));
      StepSequence back = sequence;  // with its wanted results
      back.tokens = std::span(places_).first(n);
      back.rows.clear();
      for (size_t i = 0; i < n; ++i, row += width) back.rows.emplace_back(row, width);
      back.page_tables = TablesOf(executor_.split_.back, sequence);
      back_.push_back(std::move(back));
    }
    front_step_ = {.sequences = front_, .vectors = {stream_.get(), n_rows * width}};
    back_step_ = step;
    back_step_.sequences = back_;
  }

  static std::vector<std::span<const PageId>> TablesOf(const SpecPart& part,
                                                       const StepSequence& sequence) {
    std::vector<std::span<const PageId>> tables;
    for (size_t g = 0; g < part.groups.size(); ++g) {
      if (part.groups[g] >= 0) tables.push_back(sequence.page_tables[g]);
    }
    return tables;
  }

  SplitExecutor& executor_;
  std::unique_ptr<float[]> stream_;  // the front's vectors, in the order of the step's rows
  std::vector<TokenId> places_;      // the back's tokens: placeholders for input embeddings
  std::vector<StepSequence> front_, back_;
  Step front_step_, back_step_;
  // Null before they begin and once they are done. They read the members above.
  std::unique_ptr<StepRun> front_run_, back_run_;
};

StatusOr<std::unique_ptr<StepRun>> SplitExecutor::Begin(const Step& step) {
  if (n_open_ == 2) return FailedPrecondition("a step next to the paused one has not ended");
  StepLimits limits = limits_;
  if (n_open_ == 1) limits.tokens = max_beside_tokens();
  WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), state_, limits, step));
  try {
    auto run = std::make_unique<Run>(this, step);
    WEFT_RETURN_IF_ERROR(run->BeginFront());
    return std::unique_ptr<StepRun>(std::move(run));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory before a step; use smaller steps");
  }
}

int64_t SplitExecutor::max_beside_tokens() const {
  return std::min(front_->max_beside_tokens(), back_->max_beside_tokens());
}

// Steps and rows are counted once, in the front.
StageStats SplitExecutor::stage_stats() const {
  StageStats stats = front_->stage_stats();
  const StageStats back = back_->stage_stats();
  stats.total_ns += back.total_ns;
  stats.matmul_ns += back.matmul_ns;
  stats.attention_ns += back.attention_ns;
  stats.weight_bytes += back.weight_bytes;
  stats.kv_bytes += back.kv_bytes;
  stats.int8_macs += back.int8_macs;
  stats.float_macs += back.float_macs;
  stats.attention_macs += back.attention_macs;
  stats.attention_int8_macs += back.attention_int8_macs;
  return stats;
}

}  // namespace weft::split
