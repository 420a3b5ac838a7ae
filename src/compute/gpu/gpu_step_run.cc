#include "compute/gpu/gpu_step_run.h"

#include <algorithm>
#include <utility>

namespace weft::gpu {

namespace {

class GpuRun : public StepRun {
 public:
  GpuRun(StepContext* context, const Step& step) : context_(*context), step_(step) {
    context_.in_use = true;
  }
  // No enqueued work is running when this returns.
  ~GpuRun() override {
    static_cast<void>(context_.stream().Synchronize());
    context_.in_use = false;
  }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    const auto& parts = context_.program().parts;
    while (n_enqueued_ < parts.size()) {
      WEFT_ASSIGN_OR_RETURN(const bool may_go_on, WaitForNext(pause));
      if (!may_go_on) return false;
      const ProgramPart& part = parts[n_enqueued_];
      context_.stream().Replay(*part.graph);
      if (part.then) context_.exchange()->EnqueueRoutes(*part.then, n_rows(), &context_.stream());
      open_ = part.then ? &*part.then : nullptr;
      context_.stream().Record(&context_.event(n_enqueued_));
      ++n_enqueued_;
      if (n_enqueued_ < parts.size() && pause()) return false;
    }
    WEFT_RETURN_IF_ERROR(FetchVectors());
    WEFT_RETURN_IF_ERROR(FetchLogits());
    // Fetching logits has already waited for everything before it.
    if (context_.buffer().n_logits() == 0) WEFT_RETURN_IF_ERROR(Wait());
    context_.NoteEnd();
    return true;
  }

  Status ReadRow(int64_t row, std::span<float> logits) override {
    context_.EnqueueRow(row / StepBuffer::kPieceRows, row % StepBuffer::kPieceRows);
    WEFT_RETURN_IF_ERROR(Wait());
    std::copy_n(context_.results(), logits.size(), logits.data());
    return OkStatus();
  }

 private:
  int64_t n_rows() const { return context_.buffer().n_rows(); }

  // Waits until the next part may be enqueued: only a few parts run ahead, and the host must have
  // computed the part's inputs.
  StatusOr<bool> WaitForNext(FunctionRef<bool()> pause) {
    if (open_ != nullptr) {
      WEFT_ASSIGN_OR_RETURN(
          const bool passed,
          device::WaitFor(context_.gpu(), &context_.event(n_enqueued_ - 1), pause));
      if (!passed) return false;
      WEFT_RETURN_IF_ERROR(context_.exchange()->Compute(*std::exchange(open_, nullptr), n_rows(),
                                                        &context_.stream()));
      return true;
    }
    if (n_enqueued_ < context_.n_events()) return true;
    return device::WaitFor(context_.gpu(), &context_.event(n_enqueued_), pause);
  }

  // Waits for the whole step. An error of any part fails the step.
  Status Wait() {
    device::Event& event = context_.event(0);
    context_.stream().Record(&event);
    WEFT_RETURN_IF_ERROR(device::WaitFor(context_.gpu(), &event));
    return context_.stream().TakeError();
  }

  Status FetchVectors() {
    const int64_t n = context_.buffer().n_vectors(), width = context_.weights().spec().d_model;
    for (int64_t at = 0; at < n; at += StepBuffer::kPieceRows) {
      context_.EnqueueVectors(at / StepBuffer::kPieceRows);
      WEFT_RETURN_IF_ERROR(Wait());
      std::copy_n(context_.results(), std::min(StepBuffer::kPieceRows, n - at) * width,
                  step_.vectors.data() + at * width);
    }
    return OkStatus();
  }

  // Writes whole rows and best tokens to the step's outputs, in the order of its rows.
  Status FetchLogits() {
    const StepBuffer& buffer = context_.buffer();
    const int64_t n_vocab = context_.weights().spec().n_vocab;
    float* logits = step_.logits.data();
    TokenLogit* best = step_.best.data();
    double* weights = step_.weights.data();
    for (int64_t at = 0; at < buffer.n_logits(); at += StepBuffer::kPieceRows) {
      const int64_t piece = at / StepBuffer::kPieceRows;
      context_.EnqueueLogits(piece);
      WEFT_RETURN_IF_ERROR(Wait());
      const BestFinder& finder = context_.finder();
      const int64_t n = std::min(StepBuffer::kPieceRows, buffer.n_logits() - at);
      for (int64_t row = 0; row < n; ++row) {
        const int64_t n_best = finder.n_best(piece, row);
        if (n_best == 0) {
          logits = std::copy_n(context_.results() + row * n_vocab, n_vocab, logits);
          continue;
        }
        const device::BestToken* const found = finder.best(row);
        best = std::transform(found, found + n_best, best, [](const device::BestToken& token) {
          return TokenLogit{token.token, token.logit};
        });
        if (finder.weighs(piece, row)) *weights++ = finder.weight(row);
      }
    }
    return OkStatus();
  }

  StepContext& context_;
  const Step step_;
  size_t n_enqueued_ = 0;
  const HostMixture* open_ = nullptr;  // the last enqueued part's
};

}  // namespace

std::unique_ptr<StepRun> NewGpuRun(StepContext* context, const Step& step) {
  return std::make_unique<GpuRun>(context, step);
}

}  // namespace weft::gpu
