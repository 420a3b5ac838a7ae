// Runs steps on a device: see backend.h for the contract.
//
// The launches of a step are captured once per size (rows, sequences and attention items, rounded
// up, mostly to powers of two) and then replayed: steps of few rows as one graph with their logits,
// others block by block. A part ends where the host computes a mixture's experts, and Advance waits
// for it. A step in progress is at most a few blocks ahead of Advance. A step that runs while
// another one is paused has its own stream, buffer and scratch memory, so an error of one never
// affects the other.
#ifndef WEFT_COMPUTE_GPU_GPU_EXECUTOR_H_
#define WEFT_COMPUTE_GPU_GPU_EXECUTOR_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "compute/backend.h"
#include "compute/device/runtime.h"
#include "compute/gpu/best_finder.h"
#include "compute/gpu/builder.h"
#include "compute/gpu/gpu_state.h"
#include "compute/gpu/gpu_weights.h"
#include "compute/gpu/mixture_exchange.h"
#include "compute/gpu/step_buffer.h"
#include "compute/host_experts.h"

namespace weft::gpu {

// The captured launches of steps of one size.
struct Program {
  std::vector<ProgramPart> parts;
  Rows stream;              // the residual stream after the last block
  bool has_logits = false;  // the last part computes logits and candidates
  int64_t last_used = 0;
};

// Stream, buffers and programs of one step at a time.
class StepContext {
 public:
  static StatusOr<std::unique_ptr<StepContext>> New(const GpuWeights& weights, GpuState* state,
                                                    HostExperts* experts, int64_t max_rows,
                                                    device::Priority priority);
  ~StepContext();

  // Takes over a step: gives its state memory, finds or builds its program and enqueues its inputs.
  // Changes nothing if it fails.
  Status Begin(const Step& step);
  // Enqueue the computation and download of results; they are valid once the stream has passed.
  void EnqueueVectors(int64_t piece);
  void EnqueueLogits(int64_t piece);
  // Row i of a piece as a whole. Recomputes the piece unless it was enqueued last.
  void EnqueueRow(int64_t piece, int64_t i);

  const GpuWeights& weights() const { return weights_; }
  device::Device& gpu() const { return *weights_.gpu(); }
  device::Stream& stream() { return *stream_; }
  device::Event& event(size_t i) { return *events_[i % events_.size()]; }
  size_t n_events() const { return events_.size(); }
  // Null if no program has a part that needs it.
  MixtureExchange* exchange() const { return exchange_.get(); }
  const Program& program() const { return *program_; }
  const StepBuffer& buffer() const { return *buffer_; }
  // Results on the host: vectors or whole rows of logits at their row's offset in the piece; the
  // finder has the candidates.
  const float* results() const { return results_->As<float>(); }
  const BestFinder& finder() const { return *finder_; }
  int64_t bytes() const;
  // Upper bound of the device memory that its programs take.
  int64_t program_bytes() const;

  // The step's work has completed without an error.
  void NoteEnd() { ended_early_ = false; }

  bool in_use = false;  // by a run

 private:
  StepContext(const GpuWeights& weights, GpuState* state, HostExperts* experts, int64_t max_rows)
      : weights_(weights), state_(*state), experts_(experts), max_rows_(max_rows) {}
  Status Start(device::Priority priority);
  // The scratch memory of the largest step. Counts launches, too.
  int64_t ScratchBytes();
  StatusOr<const Program*> ProgramFor(const ProgramSize& size);
  void DropOldest();
  ProgramSize SizeOf() const;
  Status EnqueueInputs(const Step& step);
  // Rows after the output norm, as floats or as bytes.
  void EnqueueHidden(const Step& step);
  Rows hidden_rows() const;
  // Rows of the stream by number, optionally normed, as floats or bytes.
  struct Piece {
    const int32_t* index;
    RowSet rows;
    bool norms, bytes;
  };
  Input LaunchPiece(const Piece& piece, const Rows& stream, const Launches& to);
  void EnqueueRows(const Rows& rows, int64_t begin, int64_t end);
  // The logits of n rows of a piece, and their candidates.
  void LaunchLogits(int64_t piece, int64_t n, const Asked& asked, const Rows& stream,
                    const Launches& to);
  // Rows of logits that are wanted as a whole.
  void EnqueueWhole(int64_t piece, int64_t n);

  const GpuWeights& weights_;
  GpuState& state_;
  HostExperts* const experts_;  // null if the host computes none
  const int64_t max_rows_;
  std::unique_ptr<device::Memory> text_kv_, scratch_, arrivals_, piece_, results_;
  std::unique_ptr<device::Memory> hidden_, hidden_staging_;  // a prediction head's inputs
  std::unique_ptr<device::Memory> inputs_;     // input embeddings; grows to the largest step
  std::unique_ptr<MixtureExchange> exchange_;  // null if the host computes no mixtures
  std::unique_ptr<StepBuffer> buffer_;
  std::unique_ptr<BestFinder> finder_;
  std::array<std::unique_ptr<device::Event>, 3> events_;
  std::unique_ptr<device::Stream> stream_;
  // For one piece of the results: gathered and normed rows, the same as bytes, and their logits.
  Rows gathered_, logits_;
  device::Int8View int8_;
  int64_t piece_of_logits_ = -1;             // the piece that logits_ holds
  int64_t generation_ = 0;                   // the buffer's, when the programs were built
  const void* base_ = nullptr;               // the finder's, when the programs were built
  std::map<ProgramSize, Program> programs_;  // the most recently used ones
  int64_t n_begun_ = 0;
  int64_t n_launches_ = 0;   // in the longest program
  int64_t n_arrivals_ = 0;   // in the largest program
  bool ended_early_ = true;  // the last step stopped early and may have left arrival counters set,
                             // or there was none
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

#endif  // WEFT_COMPUTE_GPU_GPU_EXECUTOR_H_
