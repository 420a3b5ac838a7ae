#include "compute/cpu/cpu_step_run.h"

#include <algorithm>
#include <new>
#include <utility>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "compute/checks.h"

namespace weft::cpu {

StatusOr<std::unique_ptr<StepRun>> CpuStepRun::Begin(const CpuWeights& weights,
                                                     StepContext* context, const Step& step) {
  try {
    std::unique_ptr<CpuStepRun> run(new CpuStepRun(weights, context, step));
    context->Begin(run->step_);
    return std::unique_ptr<StepRun>(std::move(run));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory before a step; use smaller steps");
  }
}

CpuStepRun::CpuStepRun(const CpuWeights& weights, StepContext* context, const Step& step)
    : weights_(weights), context_(context), compute_(context->compute), step_(step) {
  context_->in_use = true;
}

StatusOr<bool> CpuStepRun::Advance(FunctionRef<bool()> pause) {
  const auto start = std::chrono::steady_clock::now();
  try {
    WEFT_ASSIGN_OR_RETURN(const bool done, ComputeUntil(pause));
    compute_.stats().total_ns += Compute::NanosSince(start);
    return done;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory during a step; use smaller steps");
  }
}

StatusOr<bool> CpuStepRun::ComputeUntil(FunctionRef<bool()> pause) {
  // A step that ran while this one paused had other rows.
  compute_.adapters().Use(&context_->adapters, context_->adapted);
  if (next_block_ == 0) WEFT_RETURN_IF_ERROR(ComputeInputs());
  const auto& blocks = weights_.model().blocks;
  while (next_block_ < blocks.size()) {
    const BoundBlock& block = blocks[next_block_++];
    if (context_->n_rows() > 0) RunBlock(block);
    if (next_block_ < blocks.size() && pause()) return false;
  }
  ComputeOutputs();
  return true;
}

// Computes everything before the first block.
Status CpuStepRun::ComputeInputs() {
  ++compute_.stats().steps;
  compute_.stats().rows += context_->n_rows();
  if (context_->spec.slots.size() > 0) {
    for (const StepSequence& sequence : step_.sequences) context_->state.TouchSlot(sequence.slot);
  }
  WEFT_RETURN_IF_ERROR(Embed());
  if (weights_.model().hidden_input) JoinHidden();
  return weights_.model().per_layer_input ? ComputePerLayerInputs() : OkStatus();
}

namespace {

constexpr auto kTokenOf = [](const StepRow& row) -> int64_t { return row.token; };

}  // namespace

Status CpuStepRun::ReadTable(const BoundTable& table, FunctionRef<int64_t(const StepRow&)> index,
                             const RowsView& to) {
  Mutex mutex;
  Status status;
  compute_.ForEach(context_->n_rows(), table.n_values() * kDecode, [&](int64_t row, int worker) {
    const int64_t entry = index(context_->rows[row]);
    if (entry < 0) return;
    Status read = table.Read(entry, context_->workspaces[worker].scratch.data(), to.row(row));
    if (read.ok()) return;
    MutexLock lock(&mutex);
    if (status.ok()) status = std::move(read);
  });
  return status;
}

// Rows of patches, or of another model's results, instead of tokens.
void CpuStepRun::ReadRowInput(const BoundRowInput& input) {
  const RowsView& stream = context_->scratch.stream;
  const int64_t n = context_->n_rows();
  Arena arena = context_->scratch.ForRows(n);
  const RowInputScratch scratch{weights_.spec(), &arena};
  const RowsView& rows = input.proj ? scratch.rows : stream;
  compute_.ForEach(n, rows.width * kStep, [&](int64_t row, int) {
    compute_.NormRow(input.norm, context_->rows[row].vector, rows.width, rows.row(row));
  });
  if (input.proj) {
    const ActivationRows x = compute_.Input(rows, n, {&input.proj}, scratch.input);
    compute_.Multiply({MakeProduct(input.proj, x, n, stream)});
  }
  const auto& activation = weights_.spec().row_input->activation;
  if (!activation) return;
  compute_.ForEach(n, stream.width * kExp, [&](int64_t row, int) {
    compute_.vec().activate(ShapeOf(*activation), stream.row(row), nullptr, stream.width,
                            stream.row(row));
  });
}

Status CpuStepRun::Embed() {
  const RowsView& stream = context_->scratch.stream;
  if (const auto& input = weights_.model().row_input) {
    ReadRowInput(*input);
    return OkStatus();
  }
  if (!weights_.model().embedding) return OkStatus();
  WEFT_RETURN_IF_ERROR(ReadTable(weights_.model().embedding, kTokenOf, stream));
  WEFT_RETURN_IF_ERROR(AdaptEmbeddings());
  for (int64_t row = 0; row < context_->n_rows(); ++row) {
    const float* const vector = context_->rows[row].vector;
    if (vector != nullptr) std::copy_n(vector, stream.width, stream.row(row));
  }
  const float scale = weights_.spec().embedding_scale;
  if (scale != 1) {
    compute_.ForEach(context_->n_rows(), stream.width * kStep, [&](int64_t row, int) {
      compute_.vec().scale(scale, stream.width, stream.row(row));
    });
  }
  return AddPositionsAndTypes();
}

Status CpuStepRun::AdaptEmbeddings() {
  if (context_->adapted.empty()) return OkStatus();
  std::vector<TokenId> tokens;
  for (const StepRow& row : context_->rows) tokens.push_back(row.token);
  return compute_.adapters().AddToEmbeddings(tokens, context_->scratch.stream, &compute_);
}

Status CpuStepRun::AddPositionsAndTypes() {
  const BoundModel& model = weights_.model();
  const RowsView &stream = context_->scratch.stream, &added = context_->scratch.path_input;
  if (model.positions) {
    WEFT_RETURN_IF_ERROR(ReadTable(
        model.positions, [](const StepRow& row) { return row.position; }, added));
  } else if (model.token_types == nullptr && !model.input_norm) {
    return OkStatus();
  }
  compute_.ForEach(context_->n_rows(), stream.width * 3 * kStep, [&](int64_t row, int) {
    float* const x = stream.row(row);
    if (model.positions) compute_.vec().add(added.row(row), stream.width, x);
    if (model.token_types != nullptr) {
      compute_.vec().add(model.token_types + context_->rows[row].type * stream.width, stream.width,
                         x);
    }
    compute_.NormRow(model.input_norm, x, stream.width, x);
  });
  return OkStatus();
}

// Builds a prediction head's input from embeddings and hidden values.
void CpuStepRun::JoinHidden() {
  const BoundHiddenInput& bound = *weights_.model().hidden_input;
  const RowsView& stream = context_->scratch.stream;
  const int64_t n = context_->n_rows(), width = stream.width;
  Arena arena = context_->scratch.ForRows(n);
  const HiddenScratch scratch{weights_.spec(), &arena};
  const bool is_joined = !weights_.model().embedding;
  compute_.ForEach(n, scratch.joined.width * kStep, [&](int64_t row, int) {
    float* const joined = scratch.joined.row(row);
    if (is_joined) {
      std::copy_n(context_->rows[row].hidden, scratch.joined.width, joined);
      return;
    }
    compute_.NormRow(bound.token_norm, stream.row(row), width, joined);
    compute_.NormRow(bound.hidden_norm, context_->rows[row].hidden, width, joined + width);
  });
  const ActivationRows x = compute_.Input(scratch.joined, n, {&bound.proj}, scratch.input);
  compute_.Multiply({MakeProduct(bound.proj, x, n, stream)});
}

Status CpuStepRun::ComputePerLayerInputs() {
  const PerLayerInput& spec = *weights_.spec().per_layer_input;
  const BoundPerLayerInput& bound = *weights_.model().per_layer_input;
  const RowsView& inputs = context_->scratch.per_layer;
  const int64_t n = context_->n_rows();
  Arena arena = context_->scratch.ForRows(n);
  const PerLayerScratch scratch{weights_.spec(), &arena};
  WEFT_RETURN_IF_ERROR(ReadTable(bound.table, kTokenOf, scratch.table_rows));
  const ActivationRows x =
      compute_.Input(context_->scratch.stream, n, {&bound.proj}, scratch.input);
  compute_.Multiply({MakeProduct(bound.proj, x, n, inputs)});
  compute_.ForEach(n, inputs.width * 4 * kStep, [&](int64_t row, int) {
    float* const out = inputs.row(row);
    compute_.vec().scale(spec.proj_scale, inputs.width, out);
    compute_.NormRow(bound.norm, out, inputs.width, out);
    compute_.vec().add_scaled(scratch.table_rows.row(row), inputs.width, spec.table_scale, out);
    compute_.vec().scale(spec.sum_scale, inputs.width, out);
  });
  return OkStatus();
}

void CpuStepRun::RunBlock(const BoundBlock& block) {
  // An operation may drop rows, so n_rows() is read again each time.
  const int64_t width = weights_.spec().d_model;
  const RowsView& stream = context_->scratch.stream;
  // The normed rows; without a norm, the rows themselves.
  const auto normed = [&](const BoundNorm& norm, const RowsView& x, const RowsView& to) {
    if (!norm) return x;
    compute_.ForEach(context_->n_rows(), width * kStep, [&](int64_t row, int) {
      compute_.NormRow(norm, x.row(row), width, to.row(row));
    });
    return to;
  };
  if (block.keeps_input) {
    for (int64_t row = 0; row < context_->n_rows(); ++row) {
      std::copy_n(stream.row(row), width, context_->scratch.kept.row(row));
    }
  }
  const RowsView input = normed(block.pre, stream, context_->scratch.block_input);
  for (size_t p = 0; p < block.paths.size(); ++p) {
    const BoundPath& path = block.paths[p];
    const RowsView x = normed(path.pre, input, context_->scratch.path_input);
    const RowsView out = p == 0 ? context_->scratch.path_sum : context_->scratch.path_output;
    const auto run = [&](const auto& op) {
      RunOp(context_, op, x, stream, out);
      if (op.last_to_write) context_->KeepWantedRows();
    };
    std::visit(run, path.op);
    if (context_->n_rows() == 0) return;
    normed(path.post, out, out);
    if (p == 0 && path.scale == 1) continue;
    compute_.ForEach(context_->n_rows(), width * kStep, [&](int64_t row, int) {
      if (p == 0) return compute_.vec().scale(path.scale, width, out.row(row));
      compute_.vec().add_scaled(out.row(row), width, path.scale,
                                context_->scratch.path_sum.row(row));
    });
  }
  compute_.ForEach(context_->n_rows(), width * 2 * kStep, [&](int64_t row, int) {
    float* const sum = context_->scratch.path_sum.row(row);
    if (block.paths.empty()) std::fill_n(sum, width, 0.0f);
    compute_.NormRow(block.post, sum, width, sum);
    if (block.replaces_stream) {
      std::copy_n(sum, width, stream.row(row));
    } else {
      compute_.vec().add_scaled(sum, width, block.residual_scale, stream.row(row));
    }
    if (block.stream_scale != 1) compute_.vec().scale(block.stream_scale, width, stream.row(row));
    compute_.NormRow(block.stream_norm, stream.row(row), width, stream.row(row));
    const float* const added = context_->rows[row].added;
    if (block.row_part == 0 || added == nullptr) return;
    compute_.vec().add(added + (block.row_part - 1) * width, width, stream.row(row));
  });
}

// Norms the wanted rows and computes vectors and logits from them.
void CpuStepRun::ComputeOutputs() {
  context_->KeepWantedRows();
  const int64_t n = context_->n_rows();
  if (n == 0) return;
  const RowsView& x = context_->scratch.block_input;
  compute_.ForEach(n, x.width * kStep, [&](int64_t i, int) {
    compute_.NormRow(weights_.model().output_norm, context_->scratch.stream.row(i), x.width,
                     x.row(i));
  });
  float* vectors = step_.vectors.data();
  int64_t n_logits = 0;
  for (int64_t s = 0; s < context_->n_sequences(); ++s) {
    const StepSequence& sequence = step_.sequences[static_cast<size_t>(s)];
    const int64_t end = context_->first_rows[s + 1];
    const RowsView& from = sequence.vectors_before_norm ? context_->scratch.stream : x;
    for (int64_t row = end - sequence.n_vectors; row < end; ++row, vectors += x.width) {
      std::copy_n(from.row(row), x.width, vectors);
    }
    n_logits += sequence.n_logits;
  }
  if (n_logits > 0) ComputeLogits(x, n_logits);
}

// Logits go directly into the step's buffer if whole rows are wanted, otherwise into our own
// memory. Consecutive rows are computed as one product, because it reads the largest matrix.
void CpuStepRun::ComputeLogits(const RowsView& vectors, int64_t n_logits) {
  const int64_t n_vocab = weights_.spec().n_vocab;
  const bool whole = step_.best.empty();
  if (!whole) context_->logits.resize(static_cast<size_t>(n_logits * n_vocab));
  float* const begin = whole ? step_.logits.data() : context_->logits.data();
  float* out = begin;
  int64_t first = 0, n_together = 0;
  const auto compute_together = [&] {
    if (n_together > 0) ComputeLogitsOf(vectors, first, n_together, out);
    out += n_together * n_vocab;
    n_together = 0;
  };
  for (int64_t s = 0; s < context_->n_sequences(); ++s) {
    const StepSequence& sequence = step_.sequences[static_cast<size_t>(s)];
    if (sequence.n_logits == 0) continue;
    const int64_t row = context_->first_rows[s + 1] - sequence.n_logits;
    if (row != first + n_together) compute_together();
    if (n_together == 0) first = row;
    n_together += sequence.n_logits;
  }
  compute_together();
  if (!whole) PutResults({begin, n_vocab, n_vocab});
}

void CpuStepRun::ComputeLogitsOf(const RowsView& vectors, int64_t first, int64_t n, float* logits) {
  const ModelSpec& spec = weights_.spec();
  const BoundModel& model = weights_.model();
  const RowsView x{vectors.row(first), vectors.stride, vectors.width};
  const RowsView out{logits, spec.n_vocab, spec.n_vocab};
  Arena arena = context_->scratch.ForRows(n);
  const LogitsScratch scratch{spec, &arena};
  const ActivationRows input = compute_.Input(x, n, {&model.output}, scratch.input);
  compute_.adapters().Use(&context_->adapters, context_->adapted, first);
  compute_.Multiply({MakeProduct(model.output, input, n, out)});
  if (spec.logit_scale != 1 || spec.logit_softcap > 0) {
    compute_.ForEach(n, out.width * kExp, [&](int64_t i, int) {
      if (spec.logit_scale != 1) compute_.vec().scale(spec.logit_scale, out.width, out.row(i));
      if (spec.logit_softcap > 0) compute_.vec().softcap(spec.logit_softcap, out.width, out.row(i));
    });
  }
}

// Distributes rows of logits to the step's results: whole rows, or the best tokens of each.
void CpuStepRun::PutResults(const RowsView& rows) {
  struct Place {
    TokenLogit* best;  // null: the whole row
    int64_t n_best;
    float* logits;
  };
  std::vector<Place> places;
  TokenLogit* best = step_.best.data();
  float* logits = step_.logits.data();
  for (const StepSequence& sequence : step_.sequences) {
    for (int64_t i = 0; i < sequence.n_logits; ++i) {
      places.push_back({sequence.n_best > 0 ? best : nullptr, sequence.n_best, logits});
      best += sequence.n_best;
      if (sequence.n_best == 0) logits += rows.width;
    }
  }
  compute_.ForEach(std::ssize(places), rows.width * kStep, [&](int64_t i, int) {
    const Place& place = places[static_cast<size_t>(i)];
    const std::span<const float> row(rows.row(i), static_cast<size_t>(rows.width));
    if (place.best == nullptr) {
      std::ranges::copy(row, place.logits);
    } else {
      PutBest(row, {place.best, static_cast<size_t>(place.n_best)});
    }
  });
}

}  // namespace weft::cpu
