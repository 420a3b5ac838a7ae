#include "compute/gpu/gpu_executor.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "compute/checks.h"
#include "compute/gpu/gpu_step_run.h"

namespace weft::gpu {

namespace {

int64_t RoundUp(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

// Rounds many items up by at most a quarter, because even an empty item launches blocks.
int64_t RoundUpItems(int64_t n) {
  constexpr int64_t kFew = 256;
  if (n <= kFew) return n > 0 ? RoundUp(n) : 0;
  const int64_t unit = RoundUp(n) / 8;
  return (n + unit - 1) / unit * unit;
}

// Max experts per row of all mixtures that run on the device.
int64_t MostUsedExperts(const ModelSpec& spec) {
  int64_t most = 1;
  ForEachPath(spec, [&](const Path& path) {
    const auto* op = std::get_if<MixtureOfExperts>(&path.op);
    if (op != nullptr && op->up) most = std::max<int64_t>(most, op->n_used);
  });
  return most;
}

// Calls `use` for each maximal run of indices in [0, n) for which `is` holds.
template <typename Is, typename Use>
void ForRuns(int64_t n, const Is& is, const Use& use) {
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    while (end < n && is(end) == is(begin)) ++end;
    if (is(begin)) use(begin, end);
  }
}

constexpr size_t kMaxPrograms = 48;
// Graphs use device memory that the driver does not report; this is more than a launch and its
// arguments are known to take.
constexpr int64_t kBytesPerLaunch = 4096;

}  // namespace

// --- context ------------------------------------------------------------------------------------

StatusOr<std::unique_ptr<StepContext>> StepContext::New(const GpuWeights& weights, GpuState* state,
                                                        HostExperts* experts, int64_t max_rows,
                                                        device::Priority priority) {
  std::unique_ptr<StepContext> context(new StepContext(weights, state, experts, RoundUp(max_rows)));
  WEFT_RETURN_IF_ERROR(context->Start(priority));
  return context;
}

StepContext::~StepContext() {
  if (stream_ != nullptr) static_cast<void>(stream_->Synchronize());
}

Status StepContext::Start(device::Priority priority) {
  device::Device& device = gpu();
  const ModelSpec& spec = weights_.spec();
  WEFT_ASSIGN_OR_RETURN(stream_, device.NewStream(priority));
  for (auto& event : events_) {
    WEFT_ASSIGN_OR_RETURN(event, device.NewEvent());
  }
  const int64_t text_kv_bytes = TextKvBytes(spec, max_rows_);
  if (text_kv_bytes > 0) {
    WEFT_ASSIGN_OR_RETURN(text_kv_, device.Allocate(text_kv_bytes));
  }
  std::byte* const text_kv = text_kv_ != nullptr ? text_kv_->data() : nullptr;
  WEFT_ASSIGN_OR_RETURN(
      buffer_, StepBuffer::New(&device, spec, state_.layout().page_tokens, max_rows_, text_kv));
  generation_ = buffer_->generation();
  WEFT_ASSIGN_OR_RETURN(scratch_, device.Allocate(ScratchBytes()));
  WEFT_ASSIGN_OR_RETURN(arrivals_, device.Allocate(std::max<int64_t>(1, n_arrivals_) * 4));

  if (spec.hidden_input) {
    const int64_t hidden_bytes = max_rows_ * HiddenWidth(spec) * 4;
    WEFT_ASSIGN_OR_RETURN(hidden_, device.Allocate(hidden_bytes));
    WEFT_ASSIGN_OR_RETURN(hidden_staging_, device.AllocatePinned(hidden_bytes));
  }

  const auto lay_out = [&](std::byte* begin) {
    constexpr int64_t n = StepBuffer::kPieceRows;
    Arena arena(begin);
    gathered_ = {arena.Take<float>(n * spec.d_model), spec.d_model};
    logits_ = {arena.Take<float>(n * spec.n_vocab), spec.n_vocab};
    int8_ = arena.TakeBytes(n, spec.d_model);
    return arena.used();
  };
  WEFT_ASSIGN_OR_RETURN(piece_, device.Allocate(lay_out(nullptr)));
  lay_out(piece_->data());
  WEFT_ASSIGN_OR_RETURN(finder_, BestFinder::New(&device, spec.n_vocab, max_rows_));
  WEFT_ASSIGN_OR_RETURN(results_, device.AllocatePinned(StepBuffer::kPieceRows *
                                                        std::max(spec.n_vocab, spec.d_model) * 4));
  WEFT_ASSIGN_OR_RETURN(exchange_, MixtureExchange::New(&device, spec, experts_, max_rows_));
  return OkStatus();
}

int64_t StepContext::ScratchBytes() {
  int64_t most = 256;
  for (int64_t rows = 1; rows <= max_rows_; rows *= 2) {
    Arena arena(nullptr);
    Builder builder(weights_, state_, *buffer_, {rows, rows, 1, 1}, &arena, {});
    static_cast<void>(builder.Build(nullptr, nullptr, [](const Launches&) {}));
    most = std::max(most, arena.most());
    n_launches_ = std::max(n_launches_, builder.n_launches());
    n_arrivals_ = std::max(n_arrivals_, builder.n_arrivals());
  }
  return most;
}

ProgramSize StepContext::SizeOf() const {
  // Only kernels of recurrent state have a block per sequence.
  const bool counts = !weights_.spec().slots.empty();
  const int64_t rows = RoundUp(buffer_->n_rows());
  ProgramSize size = {rows, counts ? RoundUp(buffer_->n_sequences()) : rows, 0, 0};
  size.row_items = RoundUpItems(buffer_->n_items(0));
  size.tile_items = RoundUpItems(buffer_->n_items(1));
  const int64_t n_logits = buffer_->n_logits();
  if (rows > kMaxWholeRows || n_logits == 0) return size;
  static_assert(kMaxWholeRows <= StepBuffer::kPieceRows);
  size.logits = RoundUp(n_logits);
  size.asked = finder_->AskedOf(0, n_logits);
  return size;
}

StatusOr<const Program*> StepContext::ProgramFor(const ProgramSize& size) {
  if (generation_ != buffer_->generation() || base_ != finder_->base()) programs_.clear();
  generation_ = buffer_->generation();
  base_ = finder_->base();
  ++n_begun_;
  const auto known = programs_.find(size);
  if (known != programs_.end()) {
    known->second.last_used = n_begun_;
    return &known->second;
  }
  if (programs_.size() >= kMaxPrograms) DropOldest();
  Arena arena(scratch_->data());
  Builder builder(weights_, state_, *buffer_, size, &arena,
                  {arrivals_->As<int32_t>(), hidden_rows()});
  Program program;
  const auto add_results = [&](const Launches& to) {
    if (size.logits > 0) LaunchLogits(0, size.logits, size.asked, builder.stream(), to);
  };
  WEFT_RETURN_IF_ERROR(builder.Build(&gpu(), &program.parts, add_results));
  program.stream = builder.stream();
  program.has_logits = size.logits > 0;
  program.last_used = n_begun_;
  return &programs_.emplace(size, std::move(program)).first->second;
}

// Safe, because no step is in flight when another one begins.
void StepContext::DropOldest() {
  const auto oldest = std::min_element(
      programs_.begin(), programs_.end(),
      [](const auto& a, const auto& b) { return a.second.last_used < b.second.last_used; });
  programs_.erase(oldest);
}

Status StepContext::Begin(const Step& step) {
  if (std::exchange(ended_early_, true)) stream_->Fill(arrivals_->data(), 0, arrivals_->bytes());
  WEFT_RETURN_IF_ERROR(state_.HoldFor(step));
  WEFT_RETURN_IF_ERROR(buffer_->Fill(step, stream_.get()));
  WEFT_RETURN_IF_ERROR(finder_->Fill(step, stream_.get()));
  WEFT_ASSIGN_OR_RETURN(program_, ProgramFor(SizeOf()));
  piece_of_logits_ = -1;
  EnqueueHidden(step);
  WEFT_RETURN_IF_ERROR(EnqueueInputs(step));
  return state_.LetWait(stream_.get());
}

// Writes input embeddings to the stream's rows; the embedding kernel skips these rows.
Status StepContext::EnqueueInputs(const Step& step) {
  int64_t n_vectors = 0;
  for (const StepSequence& sequence : step.sequences) n_vectors += std::ssize(sequence.rows);
  if (n_vectors == 0) return OkStatus();
  const ModelSpec& spec = weights_.spec();
  const int64_t bytes = spec.d_model * static_cast<int64_t>(sizeof(float));
  if (inputs_ == nullptr || inputs_->bytes() < n_vectors * bytes) {
    WEFT_ASSIGN_OR_RETURN(inputs_, gpu().AllocatePinned(n_vectors * bytes));
  }
  std::byte* from = inputs_->data();
  int64_t row = 0;
  for (const StepSequence& sequence : step.sequences) {
    auto vector = sequence.rows.begin();
    for (const TokenId token : sequence.tokens) {
      const int64_t at = row++;
      if (!IsRow(token)) continue;
      std::ranges::transform(*vector++, reinterpret_cast<float*>(from),
                             [&](float value) { return value * spec.embedding_scale; });
      float* const to = program_->stream.values + at * program_->stream.stride;
      stream_->CopyToDevice(reinterpret_cast<std::byte*>(to), from, bytes);
      from += bytes;
    }
  }
  return OkStatus();
}

Rows StepContext::hidden_rows() const {
  if (hidden_ == nullptr) return {};
  return {hidden_->As<float>(), HiddenWidth(weights_.spec())};
}

void StepContext::EnqueueHidden(const Step& step) {
  if (hidden_ == nullptr) return;
  float* to = hidden_staging_->As<float>();
  for (const StepSequence& sequence : step.sequences) {
    to = std::ranges::copy(sequence.hidden, to).out;
  }
  stream_->CopyToDevice(hidden_->data(), hidden_staging_->data(),
                        (to - hidden_staging_->As<float>()) * 4);
}

Input StepContext::LaunchPiece(const Piece& piece, const Rows& stream, const Launches& to) {
  const ModelSpec& spec = weights_.spec();
  const RowSet& rows = piece.rows;
  device::StreamArgs args;
  args.x = stream;
  args.index = piece.index;
  if (piece.norms) args.norm = PartOf(weights_.model().output_norm);
  if (!piece.bytes) args.out = gathered_;
  if (piece.bytes) args.bytes = int8_;
  args.width = static_cast<int32_t>(spec.d_model);
  args.n_rows = rows.n;
  if (const auto* const kernel = AdvanceKernelOf(args)) {
    to.Add(*kernel, {1, static_cast<int>(rows.most), 1, device::StreamThreads(spec.d_model)}, args);
    return {gathered_, int8_};
  }
  device::CopyArgs gather;
  gather.from = stream;
  gather.to = gathered_;
  gather.width = args.width;
  gather.index = piece.index;
  gather.n_rows = rows.n;
  to.Add(device::CopyRows, ColumnsShape(spec.d_model, rows.most), gather);
  const BoundNorm& norm = weights_.model().output_norm;
  if (piece.norms && norm) LaunchNorm(norm, gathered_, spec.d_model, gathered_, rows, to);
  if (piece.bytes) {
    to.Add(device::QuantizeRows, QuantizeShapeOf(spec.d_model, rows, 1),
           QuantizeArgsOf(gathered_, spec.d_model, int8_, rows));
  }
  return {gathered_, int8_};
}

// Vectors from before the output norm and vectors from after it go through the same memory.
void StepContext::EnqueueVectors(int64_t piece) {
  const int64_t first = piece * StepBuffer::kPieceRows;
  const int64_t n = std::min(StepBuffer::kPieceRows, buffer_->n_vectors() - first);
  for (const bool raw : {false, true}) {
    bool is_there = false;
    ForRuns(
        n, [&](int64_t i) { return buffer_->is_raw(first + i) == raw; },
        [&](int64_t begin, int64_t end) {
          if (!std::exchange(is_there, true)) {
            LaunchPiece({buffer_->vector_rows(piece), buffer_->vector_piece(piece), !raw, false},
                        program_->stream, Launches(stream_.get()));
          }
          EnqueueRows(gathered_, begin, end);
        });
  }
}

// Downloads rows to the same offsets in the results.
void StepContext::EnqueueRows(const Rows& rows, int64_t begin, int64_t end) {
  const int64_t row_bytes = rows.stride * 4;
  stream_->CopyToHost(results_->data() + begin * row_bytes,
                      reinterpret_cast<const std::byte*>(rows.values) + begin * row_bytes,
                      (end - begin) * row_bytes);
}

void StepContext::LaunchLogits(int64_t piece, int64_t n, const Asked& asked, const Rows& stream,
                               const Launches& to) {
  const ModelSpec& spec = weights_.spec();
  const BoundLinear& output = weights_.model().output;
  RowSet rows = buffer_->logit_piece(piece);
  rows.most = n;
  const Input input =
      LaunchPiece({buffer_->logit_rows(piece), rows, true, output.form->int8}, stream, to);
  const Product product = ProductOf(output, input, logits_, rows);
  to.Add(*product.kernel, product.shape, product.args);
  if (spec.logit_scale != 1 || spec.logit_softcap > 0) {
    device::ScaleArgs args;
    args.stream = logits_;
    args.width = static_cast<int32_t>(spec.n_vocab);
    args.scale = spec.logit_scale;
    args.softcap = spec.logit_softcap;
    args.n_rows = rows.n;
    to.Add(device::ScaleRows, ColumnsShape(spec.n_vocab, n), args);
  }
  finder_->Launch(piece, asked, logits_, rows, to);
}

void StepContext::EnqueueLogits(int64_t piece) {
  const int64_t n =
      std::min(StepBuffer::kPieceRows, buffer_->n_logits() - piece * StepBuffer::kPieceRows);
  const Asked asked = finder_->AskedOf(piece, n);
  if (!program_->has_logits) {
    LaunchLogits(piece, n, asked, program_->stream, Launches(stream_.get()));
  }
  piece_of_logits_ = piece;
  finder_->EnqueueCopies(asked, n, stream_.get());
  EnqueueWhole(piece, n);
}

void StepContext::EnqueueRow(int64_t piece, int64_t i) {
  if (piece != piece_of_logits_) EnqueueLogits(piece);
  const int64_t row_bytes = weights_.spec().n_vocab * 4;
  stream_->CopyToHost(results_->data(),
                      reinterpret_cast<const std::byte*>(logits_.values) + i * row_bytes,
                      row_bytes);
}

void StepContext::EnqueueWhole(int64_t piece, int64_t n) {
  ForRuns(
      n, [&](int64_t i) { return finder_->n_best(piece, i) == 0; },
      [&](int64_t begin, int64_t end) { EnqueueRows(logits_, begin, end); });
}

int64_t StepContext::bytes() const {
  return scratch_->bytes() + arrivals_->bytes() + piece_->bytes() + buffer_->bytes() +
         finder_->bytes() + (text_kv_ != nullptr ? text_kv_->bytes() : 0) +
         (inputs_ != nullptr ? inputs_->bytes() : 0) +
         (exchange_ != nullptr ? exchange_->bytes() : 0);
}

int64_t StepContext::program_bytes() const {
  return n_launches_ * kBytesPerLaunch * static_cast<int64_t>(kMaxPrograms);
}

// --- executor -----------------------------------------------------------------------------

StatusOr<std::unique_ptr<Executor>> GpuExecutor::New(std::shared_ptr<const GpuWeights> weights,
                                                     GpuState* state,
                                                     const ExecutorOptions& options) {
  // Each tile of pairs is a block, and each expert's last tile may be partly empty.
  const int64_t used = MostUsedExperts(weights->spec());
  const int64_t n_tiles = RoundUp(options.max_step_tokens) * used / device::kMatmulRows;
  if (used > 1 && n_tiles + device::kMaxExperts > device::kMaxGridYz) {
    return InvalidArgument("steps of ", options.max_step_tokens, " tokens that go through ", used,
                           " experts each are too large for a device; use smaller steps");
  }
  try {
    std::unique_ptr<GpuExecutor> executor(new GpuExecutor(std::move(weights), state, options));
    WEFT_ASSIGN_OR_RETURN(executor->context_,
                          StepContext::New(*executor->weights_, state, executor->experts_.get(),
                                           executor->max_step_tokens_, device::Priority::kLow));
    WEFT_ASSIGN_OR_RETURN(executor->beside_,
                          StepContext::New(*executor->weights_, state, executor->experts_.get(),
                                           executor->max_beside_tokens_, device::Priority::kUsual));
    return std::unique_ptr<Executor>(std::move(executor));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for an executor");
  }
}

GpuExecutor::GpuExecutor(std::shared_ptr<const GpuWeights> weights, GpuState* state,
                         const ExecutorOptions& options)
    : weights_(std::move(weights)),
      state_(*state),
      experts_(options.experts),
      max_step_tokens_(options.max_step_tokens),
      max_beside_tokens_(std::min(options.max_beside_tokens, options.max_step_tokens)) {}

StatusOr<std::unique_ptr<StepRun>> GpuExecutor::Begin(const Step& step) {
  StepContext* const context = context_->in_use ? beside_.get() : context_.get();
  if (context->in_use) return FailedPrecondition("a step next to the paused one has not ended");
  const StepLimits limits{context == beside_.get() ? max_beside_tokens_ : max_step_tokens_,
                          device::kMaxBest, /*rows=*/true,
                          /*prediction_heads=*/true, /*changes=*/true};
  WEFT_RETURN_IF_ERROR(ValidateStep(weights_->spec(), state_, limits, step));
  // Work in flight still reads buffers that the next step may replace.
  const auto failed = [&](Status why) {
    static_cast<void>(context->stream().Synchronize());
    return why;
  };
  try {
    if (Status begun = context->Begin(step); !begun.ok()) return failed(std::move(begun));
    return NewGpuRun(context, step);
  } catch (const std::bad_alloc&) {
    return failed(ResourceExhausted("out of memory before a step; use smaller steps"));
  }
}

}  // namespace weft::gpu
