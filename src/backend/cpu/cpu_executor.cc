#include "backend/cpu/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/mutex.h"

namespace weft::cpu {

StatusOr<std::unique_ptr<Executor>> CpuExecutor::New(std::shared_ptr<const CpuWeights> weights,
                                                     const ExecutorOptions& options) {
  try {
    WEFT_ASSIGN_OR_RETURN(Scratch scratch,
                          Scratch::New(weights->spec(), weights->model(), options.max_step_tokens));
    std::unique_ptr<CpuExecutor> executor(
        new CpuExecutor(std::move(weights), options, std::move(scratch)));
    for (const Workspace& workspace : executor->workspaces_) {
      if (workspace.scratch.data() == nullptr) {
        return ResourceExhausted("no memory for the threads' scratch; use fewer threads");
      }
    }
    return std::unique_ptr<Executor>(std::move(executor));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for an executor");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start ", options.n_threads, " threads: ", error.what());
  }
}

CpuExecutor::CpuExecutor(std::shared_ptr<const CpuWeights> weights, const ExecutorOptions& options,
                         Scratch scratch)
    : weights_(std::move(weights)),
      max_step_tokens_(options.max_step_tokens),
      kv_(weights_->spec(), options.kv_type, options.page_tokens),
      slots_(SlotFloats(weights_->spec())),
      scratch_(std::move(scratch)),
      compute_(options.n_threads, weights_->isa()),
      workspaces_(static_cast<size_t>(compute_.n_threads())),
      context_{weights_->spec(), compute_, scratch_, kv_, slots_, workspaces_} {
  layout_.page_tokens = options.page_tokens;
  layout_.page_bytes = kv_.page_bytes();
  layout_.slot_bytes = slots_.slot_bytes();
  scratch_bytes_ = scratch_.bytes();
  const BoundModel& model = weights_->model();
  int64_t bytes = std::max(model.embedding.row_bytes(), MaxAttentionScratch(weights_->spec(), kv_) *
                                                            static_cast<int64_t>(sizeof(float)));
  if (model.per_layer_input) bytes = std::max(bytes, model.per_layer_input->table.row_bytes());
  for (Workspace& workspace : workspaces_) {
    workspace.scratch = AlignedBuffer(static_cast<size_t>(bytes));
    scratch_bytes_ += static_cast<int64_t>(workspace.scratch.size());
  }
}

Status CpuExecutor::Forward(const Step& step, std::span<float> logits) {
  WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), layout_, kv_.n_pages(), slots_.n_slots(),
                                    max_step_tokens_, step, logits.size()));
  const auto start = std::chrono::steady_clock::now();
  int64_t n_rows = 0;
  try {
    context_.Begin(step);
    n_rows = context_.n_rows();
    if (slots_.slot_bytes() > 0) {
      for (const StepSequence& sequence : step.sequences) slots_.Touch(sequence.slot);
    }
    WEFT_RETURN_IF_ERROR(Embed());
    if (weights_->model().per_layer_input) WEFT_RETURN_IF_ERROR(ComputePerLayerInputs());
    for (const BoundBlock& block : weights_->model().blocks) {
      if (context_.n_rows() > 0) RunBlock(block);
    }
    ComputeLogits(logits);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory during a step; use smaller steps");
  }
  StageStats& stats = compute_.stats();
  stats.total_ns += Compute::NanosSince(start);
  ++stats.steps;
  stats.rows += n_rows;
  return OkStatus();
}

Status CpuExecutor::ReadTable(const BoundTable& table, const RowsView& to) {
  Mutex mutex;
  Status status;
  compute_.ForEach(context_.n_rows(), table.n_values() * 2, [&](int64_t row, int worker) {
    Status read =
        table.Read(context_.rows[row].token, workspaces_[worker].scratch.data(), to.row(row));
    if (read.ok()) return;
    MutexLock lock(&mutex);
    if (status.ok()) status = std::move(read);
  });
  return status;
}

Status CpuExecutor::Embed() {
  const RowsView& stream = scratch_.stream;
  WEFT_RETURN_IF_ERROR(ReadTable(weights_->model().embedding, stream));
  const float scale = weights_->spec().embedding_scale;
  if (scale == 1) return OkStatus();
  compute_.ForEach(context_.n_rows(), stream.width, [&](int64_t row, int) {
    compute_.vec().scale(scale, stream.width, stream.row(row));
  });
  return OkStatus();
}

Status CpuExecutor::ComputePerLayerInputs() {
  const PerLayerInput& spec = *weights_->spec().per_layer_input;
  const BoundPerLayerInput& bound = *weights_->model().per_layer_input;
  const RowsView& inputs = scratch_.per_layer;
  const RowsView own = View(scratch_.a, inputs.width);
  const int64_t n = context_.n_rows();
  WEFT_RETURN_IF_ERROR(ReadTable(bound.table, own));
  const ActivationRows x = compute_.Input(scratch_.stream, n, {&bound.proj}, &scratch_.int8_input);
  compute_.Multiply({MakeProduct(bound.proj, x, n, inputs)});
  compute_.ForEach(n, inputs.width * 4, [&](int64_t row, int) {
    float* const out = inputs.row(row);
    compute_.vec().scale(spec.proj_scale, inputs.width, out);
    compute_.NormRow(bound.norm, out, inputs.width, out);
    compute_.vec().add_scaled(own.row(row), inputs.width, spec.table_scale, out);
    compute_.vec().scale(spec.sum_scale, inputs.width, out);
  });
  return OkStatus();
}

void CpuExecutor::RunBlock(const BoundBlock& block) {
  // An operation may drop rows: how many there are is asked again each time.
  const int64_t width = weights_->spec().d_model;
  const RowsView& stream = scratch_.stream;
  // Rows through a norm, or the rows themselves where there is none.
  const auto normed = [&](const BoundNorm& norm, const RowsView& x, const RowsView& to) {
    if (!norm) return x;
    compute_.ForEach(context_.n_rows(), width, [&](int64_t row, int) {
      compute_.NormRow(norm, x.row(row), width, to.row(row));
    });
    return to;
  };
  const RowsView input = normed(block.pre, stream, scratch_.block_input);
  for (size_t p = 0; p < block.paths.size(); ++p) {
    const BoundPath& path = block.paths[p];
    const RowsView x = normed(path.pre, input, scratch_.path_input);
    const RowsView out = p == 0 ? scratch_.path_sum : scratch_.path_output;
    std::visit([&](const auto& op) { RunOp(&context_, op, x, stream, out); }, path.op);
    if (path.last_to_write) context_.KeepRowsWithLogits();
    if (context_.n_rows() == 0) return;
    normed(path.post, out, out);
    if (p == 0) continue;
    compute_.ForEach(context_.n_rows(), width, [&](int64_t row, int) {
      compute_.vec().add(out.row(row), width, scratch_.path_sum.row(row));
    });
  }
  compute_.ForEach(context_.n_rows(), 2 * width, [&](int64_t row, int) {
    float* const sum = scratch_.path_sum.row(row);
    if (block.paths.empty()) std::fill_n(sum, width, 0.0f);
    compute_.NormRow(block.post, sum, width, sum);
    compute_.vec().add_scaled(sum, width, block.residual_scale, stream.row(row));
    if (block.stream_scale != 1) compute_.vec().scale(block.stream_scale, width, stream.row(row));
  });
}

void CpuExecutor::ComputeLogits(std::span<float> logits) {
  const ModelSpec& spec = weights_->spec();
  const BoundModel& model = weights_->model();
  context_.KeepRowsWithLogits();
  const int64_t n = context_.n_rows();
  if (n == 0) return;
  const RowsView& x = scratch_.block_input;
  compute_.ForEach(n, x.width, [&](int64_t i, int) {
    compute_.NormRow(model.output_norm, scratch_.stream.row(i), x.width, x.row(i));
  });
  const RowsView out{logits.data(), spec.n_vocab, spec.n_vocab};
  const ActivationRows input = compute_.Input(x, n, {&model.output}, &scratch_.int8_input);
  compute_.Multiply({MakeProduct(model.output, input, n, out)});
  if (spec.logit_scale == 1 && spec.logit_softcap <= 0) return;
  compute_.ForEach(n, out.width * 4, [&](int64_t i, int) {
    if (spec.logit_scale != 1) compute_.vec().scale(spec.logit_scale, out.width, out.row(i));
    if (spec.logit_softcap > 0) compute_.vec().softcap(spec.logit_softcap, out.width, out.row(i));
  });
}

}  // namespace weft::cpu
