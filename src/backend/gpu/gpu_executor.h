// Runs steps on a device: see backend.h for the contract.
//
// A step's launches are captured once for steps of its size (rows, sequences, items of
// attention, each rounded up to a power of two) and replayed: those of few rows as one graph with
// their logits, others block by block. Where the host computes a mixture's experts a part ends, and
// Advance waits for it. A step in progress is a few blocks ahead of Advance. The
// step beside a paused one has a stream, a buffer and scratch memory of its own, so an error of one
// is never the other's.
#ifndef WEFT_BACKEND_GPU_GPU_EXECUTOR_H_
#define WEFT_BACKEND_GPU_GPU_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu/best_finder.h"
#include "backend/gpu/builder.h"
#include "backend/gpu/gpu_state.h"
#include "backend/gpu/gpu_weights.h"
#include "backend/gpu/mixture_exchange.h"
#include "backend/gpu/step_buffer.h"
#include "backend/host_experts.h"
#include "device/runtime.h"

namespace weft::gpu {

// The launches of steps of one size.
struct Program {
  std::vector<ProgramPart> parts;
  Rows stream;              // the residual stream after the last block
  bool has_logits = false;  // computed by the last part, and the best of them found
  int64_t last_used = 0;
};

// What one step at a time needs.
class StepContext {
 public:
  static StatusOr<std::unique_ptr<StepContext>> New(const GpuWeights& weights, GpuState* state,
                                                    HostExperts* experts, int64_t max_rows,
                                                    device::Priority priority);
  ~StepContext();

  // Takes over a step: its state has memory, its program is there, its inputs are on their way.
  // Nothing was touched when this fails.
  Status Begin(const Step& step);
  // Enqueues results of the step's rows; they are there once the stream has passed.
  void EnqueueVectors(int64_t piece);
  void EnqueueLogits(int64_t piece);
  // Row i of a piece, whole: of the one that was enqueued last, or all of it again.
  void EnqueueRow(int64_t piece, int64_t i);

  const GpuWeights& weights() const { return weights_; }
  device::Device& gpu() const { return *weights_.gpu(); }
  device::Stream& stream() { return *stream_; }
  device::Event& event(size_t i) { return *events_[i % events_.size()]; }
  size_t n_events() const { return events_.size(); }
  // Null where no program has a part that needs it.
  MixtureExchange* exchange() const { return exchange_.get(); }
  const Program& program() const { return *program_; }
  const StepBuffer& buffer() const { return *buffer_; }
  // Where results lie on the host: rows of vectors or logits at their place in the piece; and what
  // is found in them.
  const float* results() const { return results_->As<float>(); }
  const BestFinder& finder() const { return *finder_; }
  int64_t bytes() const;
  // What its programs take of the device, at most.
  int64_t program_bytes() const;

  // The step's work has passed without an error.
  void NoteEnd() { ended_early_ = false; }

  bool in_use = false;  // by a run

 private:
  StepContext(const GpuWeights& weights, GpuState* state, HostExperts* experts, int64_t max_rows)
      : weights_(weights), state_(*state), experts_(experts), max_rows_(max_rows) {}
  Status Start(device::Priority priority);
  // How much scratch memory the largest step takes. Counts launches.
  int64_t ScratchBytes();
  StatusOr<const Program*> ProgramFor(const ProgramSize& size);
  void DropOldest();
  ProgramSize SizeOf() const;
  Status EnqueueInputs(const Step& step);
  // Rows behind the output norm, as floats or as bytes.
  void EnqueueHidden(const Step& step);
  Rows hidden_rows() const;
  // Rows of the stream by their numbers, through the output norm or not, as floats or bytes.
  struct Piece {
    const int32_t* index;
    RowSet rows;
    bool norms, bytes;
  };
  Input LaunchPiece(const Piece& piece, const Rows& stream, const Launches& to);
  void EnqueueRows(const Rows& rows, int64_t begin, int64_t end);
  // The logits of n rows of a piece, and what is found in them.
  void LaunchLogits(int64_t piece, int64_t n, const Asked& asked, const Rows& stream,
                    const Launches& to);
  // Those rows of logits that are wanted whole.
  void EnqueueWhole(int64_t piece, int64_t n);

  const GpuWeights& weights_;
  GpuState& state_;
  HostExperts* const experts_;  // null: the host computes none
  const int64_t max_rows_;
  std::unique_ptr<device::Memory> text_kv_, scratch_, arrivals_, piece_, results_;
  std::unique_ptr<device::Memory> hidden_, hidden_staging_;  // of a prediction head
  std::unique_ptr<device::Memory> inputs_;  // vectors in place of tokens; as large as ever needed
  std::unique_ptr<MixtureExchange> exchange_;  // null: the host computes no mixtures
  std::unique_ptr<StepBuffer> buffer_;
  std::unique_ptr<BestFinder> finder_;
  std::array<std::unique_ptr<device::Event>, 3> events_;
  std::unique_ptr<device::Stream> stream_;
  // Of a piece of the results: rows as gathered and normed, as bytes; and their logits.
  Rows gathered_, logits_;
  device::Int8View int8_;
  int64_t piece_of_logits_ = -1;             // whose logits there are
  int64_t generation_ = 0;                   // of the buffer that the programs point into
  const void* base_ = nullptr;               // of the finder that they point into
  std::map<ProgramSize, Program> programs_;  // the latest used ones
  int64_t n_begun_ = 0;
  int64_t n_launches_ = 0;   // of the longest program
  int64_t n_arrivals_ = 0;   // of the largest
  bool ended_early_ = true;  // the last step, and left what it counted; or there was none
  const Program* program_ = nullptr;
};

class GpuExecutor : public Executor {
 public:
  // REQUIRES: the options are within the backend's capabilities.
  static StatusOr<std::unique_ptr<Executor>> New(std::shared_ptr<const GpuWeights> weights,
                                                 GpuState* state, const ExecutorOptions& options);

  StatusOr<std::unique_ptr<StepRun>> Begin(const Step& step) override;
  int64_t max_beside_tokens() const override { return max_beside_tokens_; }
  int pause_points() const override { return static_cast<int>(weights_->model().blocks.size()); }
  int64_t scratch_bytes() const override {
    return context_->bytes() + beside_->bytes() +
           (experts_ != nullptr ? experts_->scratch_bytes() : 0);
  }
  int64_t later_bytes() const override {
    return context_->program_bytes() + beside_->program_bytes();
  }

 private:
  GpuExecutor(std::shared_ptr<const GpuWeights> weights, GpuState* state,
              const ExecutorOptions& options);

  const std::shared_ptr<const GpuWeights> weights_;
  GpuState& state_;
  const std::shared_ptr<HostExperts> experts_;
  const int64_t max_step_tokens_, max_beside_tokens_;
  std::unique_ptr<StepContext> context_, beside_;
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_GPU_EXECUTOR_H_
