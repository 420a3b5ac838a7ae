#include "compute/mlx/mlx_executor.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "compute/checks.h"
#include "compute/mlx/step_context.h"

namespace weft::mlx {

namespace {

// Blocks per part of a step; an ordinary layer has two.
constexpr size_t kBlocksAtOnce = 4;

class MlxStepRun : public StepRun {
 public:
  // Counts itself in `n_open` for its lifetime.
  MlxStepRun(const MlxWeights& weights, MlxState* state, const Lanes& lanes, const Step& step,
             int* n_open, StageStats* stats)
      : weights_(weights),
        model_(weights.model()),
        state_(*state),
        step_(step),
        n_open_(*n_open),
        stats_(*stats),
        context_(weights, state, lanes, step_),
        stream_(0.0f) {
    ++n_open_;
  }
  ~MlxStepRun() override { --n_open_; }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    const auto start = std::chrono::steady_clock::now();
    StatusOr<bool> done = WithoutExceptions("a step", [&] { return ComputeUntil(pause); });
    if (!done.ok()) GiveUp();
    stats_.total_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::steady_clock::now() - start)
                           .count();
    return done;
  }

 private:
  StatusOr<bool> ComputeUntil(FunctionRef<bool()> pause) {
    const auto& blocks = model_.blocks;
    if (next_block_ == 0) WEFT_RETURN_IF_ERROR(ComputeInputs());
    while (next_block_ < blocks.size()) {
      const size_t end = std::min(blocks.size(), next_block_ + kBlocksAtOnce);
      for (; next_block_ < end; ++next_block_) {
        if (context_.n_rows() > 0) RunBlock(blocks[next_block_]);
      }
      HandOver();
      if (next_block_ < blocks.size() && pause()) {
        WaitForAll();
        return false;
      }
    }
    ComputeOutputs();
    WaitForAll();
    return true;
  }

  // Starts computing the graph built so far, and waits for the previous part: one part is built
  // while another is computed, and never more.
  void HandOver() {
    std::vector<mx::array> wanted = state_.Pools();
    wanted.push_back(stream_);
    mx::async_eval(std::move(wanted));
    if (handed_over_) handed_over_->wait();
    handed_over_ = stream_;
  }

  void WaitForAll() {
    if (handed_over_) handed_over_->wait();
    for (mx::array& pool : state_.Pools()) pool.wait();
  }

  // Waits for the parts under way, and restores pools that were not computed.
  void GiveUp() {
    context_.lanes().WaitForAll();
    state_.TakeBack();
  }

  Status ComputeInputs();
  Status ComputePerLayerInputs();
  void RunBlock(const BoundBlock& block);
  void ComputeOutputs();

  const MlxWeights& weights_;
  const BoundModel& model_;
  MlxState& state_;
  const Step step_;
  int& n_open_;
  StageStats& stats_;
  StepContext context_;
  mx::array stream_;  // [rows, d_model]
  size_t next_block_ = 0;
  std::optional<mx::array> handed_over_;  // the stream after the last part that was started
};

// Embeddings are read on the host, from the tables in the file.
Status MlxStepRun::ComputeInputs() {
  const ModelSpec& spec = weights_.spec();
  ++stats_.steps;
  stats_.rows += context_.n_rows();
  std::vector<float> rows(static_cast<size_t>(context_.n_rows() * spec.d_model));
  float* row = rows.data();
  for (const StepSequence& sequence : step_.sequences) {
    int64_t position = sequence.position, type = 0;
    auto vector = sequence.rows.begin();
    for (const TokenId token : sequence.tokens) {
      if (IsRow(token)) {
        std::ranges::transform(*vector++, row,
                               [&](float v) { return 0 + v * spec.embedding_scale; });
      } else {
        WEFT_RETURN_IF_ERROR(
            weights_.AddTableRow(spec.embedding, token, spec.embedding_scale, row));
      }
      if (spec.positions) {
        WEFT_RETURN_IF_ERROR(weights_.AddTableRow(spec.positions, position, 1, row));
      }
      if (spec.token_types) {
        WEFT_RETURN_IF_ERROR(weights_.AddTableRow(spec.token_types.table, type, 1, row));
      }
      type = spec.token_types.TypeAfter(token, type);
      ++position;
      row += spec.d_model;
    }
  }
  stream_ = ApplyNorm(model_.input_norm,
                      FromHost<float>(rows, {Size(context_.n_rows()), Size(spec.d_model)}));
  return model_.per_layer_input ? ComputePerLayerInputs() : OkStatus();
}

Status MlxStepRun::ComputePerLayerInputs() {
  const PerLayerInput& input = *weights_.spec().per_layer_input;
  const BoundPerLayerInput& bound = *model_.per_layer_input;
  const int64_t width = weights_.TableWidth(input.table);
  std::vector<float> own(static_cast<size_t>(context_.n_rows() * width));
  float* row = own.data();
  for (const StepSequence& sequence : step_.sequences) {
    for (const TokenId token : sequence.tokens) {
      WEFT_RETURN_IF_ERROR(weights_.AddTableRow(input.table, token, input.table_scale, row));
      row += width;
    }
  }
  const mx::array projected = context_.Apply(bound.proj, stream_) * mx::array(input.proj_scale);
  const mx::array sum = ApplyNorm(bound.norm, projected) +
                        FromHost<float>(own, {Size(context_.n_rows()), Size(width)});
  context_.per_layer_inputs = sum * mx::array(input.sum_scale);
  return OkStatus();
}

void MlxStepRun::RunBlock(const BoundBlock& block) {
  if (block.keeps_input) context_.kept = stream_;
  const mx::array input = ApplyNorm(block.pre, stream_);
  std::optional<mx::array> sum;
  bool last_to_write = false;
  for (const BoundPath& path : block.paths) {
    const mx::array x = ApplyNorm(path.pre, input);
    const auto run = [&]<typename Operation>(const Bound<Operation>& op) {
      last_to_write |= op.last_to_write;
      if constexpr (!kRefusedName<Operation>.empty()) {
        WEFT_CHECK(false, "an operation that loading refuses");
        return x;
      } else {
        return RunOp(&context_, op, x, stream_);
      }
    };
    mx::array out = ApplyNorm(path.post, std::visit(run, path.op));
    if (path.scale != 1) out = out * mx::array(path.scale);
    sum = sum ? *sum + out : out;
  }
  if (sum) {
    mx::array y = ApplyNorm(block.post, *sum);
    if (block.residual_scale != 1) y = y * mx::array(block.residual_scale);
    stream_ = stream_ + y;
  }
  if (block.stream_scale != 1) stream_ = stream_ * mx::array(block.stream_scale);
  stream_ = ApplyNorm(block.stream_norm, stream_);
  if (last_to_write) stream_ = context_.KeepWanted(stream_);
}

// The wanted rows after the output norm: vectors, and the input of logits.
void MlxStepRun::ComputeOutputs() {
  stream_ = context_.KeepWanted(stream_);
  if (context_.n_rows() == 0) return;
  const ModelSpec& spec = weights_.spec();
  const mx::array vectors = mx::contiguous(ApplyNorm(model_.output_norm, stream_));
  std::vector<int32_t> logit_rows;
  for (size_t s = 0; s < step_.sequences.size(); ++s) {
    const SequenceRows& rows = context_.sequences()[s];
    for (int64_t i = rows.count - step_.sequences[s].n_logits; i < rows.count; ++i) {
      logit_rows.push_back(static_cast<int32_t>(rows.first + i));
    }
  }
  std::vector<mx::array> wanted = {vectors};
  if (!logit_rows.empty()) {
    const mx::array rows = FromHost<int32_t>(logit_rows, {Size(std::ssize(logit_rows))});
    mx::array logits = context_.Apply(model_.output, mx::take(vectors, rows, 0));
    if (spec.logit_scale != 1) logits = logits * mx::array(spec.logit_scale);
    wanted.push_back(mx::contiguous(Softcap(spec.logit_softcap, logits)));
  }
  mx::eval(wanted);
  const float* const values = vectors.data<float>();
  float* out = step_.vectors.data();
  for (size_t s = 0; s < step_.sequences.size(); ++s) {
    const SequenceRows& rows = context_.sequences()[s];
    const int64_t n = step_.sequences[s].n_vectors;
    out = std::copy_n(values + (rows.first + rows.count - n) * spec.d_model, n * spec.d_model, out);
  }
  if (wanted.size() > 1) {
    PutLogits(step_, static_cast<size_t>(spec.n_vocab),
              {wanted[1].data<float>(), wanted[1].size()});
  }
}

// Runs a step as steps of one row each, or of one text each if the model needs whole texts. A row's
// arrays then have the same shapes, and so the same kernels and bits, in any step.
class RowByRow : public StepRun {
 public:
  // `begin` starts a part. The run counts itself in `n_open` for its lifetime.
  RowByRow(const Step& step, const ModelSpec& spec, int* n_open,
           std::function<std::unique_ptr<StepRun>(const Step&)> begin)
      : step_(step),
        spec_(spec),
        whole_texts_(NeedsWholeTexts(spec)),
        n_open_(*n_open),
        begin_(std::move(begin)),
        logits_(step.logits),
        best_(step.best),
        vectors_(step.vectors) {
    ++n_open_;
  }
  ~RowByRow() override { --n_open_; }

  StatusOr<bool> Advance(FunctionRef<bool()> pause) override {
    for (;;) {
      if (part_ == nullptr) {
        if (sequence_ == step_.sequences.size()) return true;
        WEFT_RETURN_IF_ERROR(BeginPart());
      }
      WEFT_ASSIGN_OR_RETURN(const bool done, part_->Advance(pause));
      if (!done) return false;
      part_.reset();
      NextPart();
      if (sequence_ < step_.sequences.size() && pause()) return false;
    }
  }

 private:
  // Removes the first `n` elements and returns them.
  template <typename T>
  static std::span<T> Take(std::span<T>* left, int64_t n) {
    const std::span<T> taken = left->first(static_cast<size_t>(n));
    *left = left->subspan(taken.size());
    return taken;
  }
  int64_t n_rows() const {
    return whole_texts_ ? std::ssize(step_.sequences[sequence_].tokens) : 1;
  }
  Status BeginPart() {
    const StepSequence& whole = step_.sequences[sequence_];
    const int64_t n_left = std::ssize(whole.tokens) - row_;
    part_sequence_ = whole;
    part_sequence_.tokens =
        whole.tokens.subspan(static_cast<size_t>(row_), static_cast<size_t>(n_rows()));
    part_sequence_.position += row_;
    const auto vectors = whole.rows.begin() + next_vector_;
    const int64_t n_vectors = std::ranges::count_if(part_sequence_.tokens, IsRow);
    part_sequence_.rows.assign(vectors, vectors + n_vectors);
    next_vector_ += n_vectors;
    const auto of_part = [&](int64_t n_of_all) {
      return std::clamp<int64_t>(n_of_all - (n_left - n_rows()), 0, n_rows());
    };
    part_sequence_.n_logits = of_part(whole.n_logits);
    part_sequence_.n_vectors = of_part(whole.n_vectors);
    Step part{.sequences = {&part_sequence_, 1}};
    const int64_t n_whole = whole.n_best == 0 ? part_sequence_.n_logits : 0;
    part.logits = Take(&logits_, n_whole * spec_.n_vocab);
    part.best = Take(&best_, part_sequence_.n_logits * whole.n_best);
    part.vectors = Take(&vectors_, part_sequence_.n_vectors * spec_.d_model);
    return WithoutExceptions("a step", [&]() -> Status {
      part_ = begin_(part);
      return OkStatus();
    });
  }
  void NextPart() {
    row_ += n_rows();
    if (row_ < std::ssize(step_.sequences[sequence_].tokens)) return;
    row_ = next_vector_ = 0;
    ++sequence_;
  }

  const Step step_;
  const ModelSpec& spec_;
  const bool whole_texts_;
  int& n_open_;
  const std::function<std::unique_ptr<StepRun>(const Step&)> begin_;
  std::span<float> logits_;
  std::span<TokenLogit> best_;
  std::span<float> vectors_;
  size_t sequence_ = 0;
  int64_t row_ = 0;          // the part's first row in its sequence
  int64_t next_vector_ = 0;  // the first input embedding after the part
  StepSequence part_sequence_;
  std::unique_ptr<StepRun> part_;
};

}  // namespace

MlxExecutor::MlxExecutor(std::shared_ptr<const MlxWeights> weights, MlxState* state,
                         const ExecutorOptions& options, bool row_by_row)
    : weights_(std::move(weights)),
      state_(*state),
      lanes_(options.n_threads),
      max_step_tokens_(options.max_step_tokens),
      max_beside_tokens_(std::min(options.max_beside_tokens, options.max_step_tokens)),
      row_by_row_(row_by_row) {}

int MlxExecutor::pause_points() const {
  const size_t n_blocks = weights_->model().blocks.size();
  return n_blocks == 0 ? 0 : static_cast<int>((n_blocks - 1) / kBlocksAtOnce);
}

StatusOr<std::unique_ptr<StepRun>> MlxExecutor::Begin(const Step& step) {
  if (n_open_ > 1) return FailedPrecondition("a step next to the paused one has not ended");
  const StepLimits limits{n_open_ > 0 ? max_beside_tokens_ : max_step_tokens_, kMaxBest,
                          /*rows=*/true};
  WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), state_, limits, step));
  if (row_by_row_) {
    return std::make_unique<RowByRow>(step, weights_->spec(), &n_open_, [this](const Step& part) {
      return std::make_unique<MlxStepRun>(*weights_, &state_, lanes_, part, &n_parts_, &stats_);
    });
  }
  return WithoutExceptions("a step", [&]() -> StatusOr<std::unique_ptr<StepRun>> {
    return std::make_unique<MlxStepRun>(*weights_, &state_, lanes_, step, &n_open_, &stats_);
  });
}

}  // namespace weft::mlx
