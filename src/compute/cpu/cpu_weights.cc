#include "compute/cpu/cpu_weights.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "compute/checks.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_binder.h"
#include "xxhash.h"

namespace weft::cpu {

// Bytes of a tensor to pack before the file's memory is released.
constexpr int64_t kPieceBytes = 16 << 20;

// Matrices share buffers of this size; a larger one gets its own. Most matrices are too small for
// huge pages of their own, and without huge pages reads wait for page table walks.
constexpr size_t kBufferBytes = size_t{128} << 20;

Status BoundTable::Read(int64_t row, std::byte* raw, float* out) const {
  const std::span<std::byte> bytes(raw, static_cast<size_t>(row_bytes()));
  WEFT_RETURN_IF_ERROR(file->Read(*tensor, row * row_bytes(), bytes));
  Dequantize(tensor->type, raw, n_values(), out);
  return OkStatus();
}

class Binder : public SpecBinder<Binder, Packed, Bound> {
 public:
  explicit Binder(CpuWeights* weights)
      : SpecBinder(*weights->file_, weights->spec_, &weights->tensors_,
                   weights->beside_ != nullptr ? &weights->beside_->tensors_ : nullptr),
        weights_(*weights) {}

  Status Bind(const LoadOptions& options);
  // After Bind, without packing: whether the weights' packed copy holds exactly these matrices.
  bool CopyFits() const;
  // As PackWith, and writes the packed copy, which is the last part of the progress.
  Status PackAndKeep(const LoadOptions& options, const PackedCopies& copies, ThreadPool* pool);

  // See spec_binder.h.
  using SpecBinder::Of;
  BoundLinear Of(const Linear& linear);
  BoundStack Of(const StackedLinear& stack);
  BoundTable Table(TensorRef ref) { return {&file_, &Info(ref)}; }
  const float* Put(std::vector<float> values, const TensorInfo& tensor, int64_t n_columns);
  std::byte* Reserve(const MatrixRows& rows);
  Status Pack(const Job& job, bool is_last);
  void Check(const auto& /*op*/) {}
  void Check(const Attention& op);
  void Check(const Convolution& convolution);

 private:
  static int64_t MemberBytes(const MatrixRows& rows) {
    return TileCount(rows.n_out) * PackedTileBytes(rows.tensor->type, rows.n_in);
  }
  // Memory for packed tiles; null if there is none left. With a packed copy, the address in that
  // copy: it is read-only, and meaningful only if CopyFits.
  std::byte* Take(int64_t bytes);
  std::byte* TakeFromCopy(int64_t bytes);
  Status PackWith(const LoadOptions& options, ThreadPool* pool);
  void Keep(const PackedCopies& copies, const PackedCopies::Progress& progress) const;
  // Hash of the list of matrices and their order.
  uint64_t Layout() const;

  CpuWeights& weights_;
  ThreadPool* pool_ = nullptr;
  std::vector<std::span<std::byte>> rooms_;  // free space of each buffer of matrices
  int64_t taken_from_copy_ = 0;
};

std::byte* Binder::TakeFromCopy(int64_t bytes) {
  const std::span<const std::byte> body = weights_.copy_->body();
  const int64_t begin = taken_from_copy_;
  taken_from_copy_ += bytes;
  const bool is_there = taken_from_copy_ <= static_cast<int64_t>(body.size());
  return const_cast<std::byte*>(body.data() + (is_there ? begin : 0));
}

std::byte* Binder::Take(int64_t bytes) {
  if (weights_.copy_ != nullptr) return TakeFromCopy(bytes);
  const auto size = static_cast<size_t>(bytes);  // whole cache lines, as for all tiles
  for (std::span<std::byte>& room : rooms_) {
    if (room.size() < size) continue;
    std::byte* const taken = room.data();
    room = room.subspan(size);
    return taken;
  }
  const auto file_bytes = static_cast<size_t>(file_.file_bytes());
  AlignedBuffer buffer(std::max(size, std::min(kBufferBytes, file_bytes)));
  if (buffer.data() == nullptr) buffer = AlignedBuffer(size);
  if (buffer.data() == nullptr) return nullptr;
  rooms_.push_back(buffer.As<std::byte>().subspan(size));
  weights_.matrices_.push_back(std::move(buffer));
  return weights_.matrices_.back().data();
}

std::byte* Binder::Reserve(const MatrixRows& rows) {
  const int64_t bytes = MemberBytes(rows) * rows.count;
  std::byte* const tiles = Take(bytes);
  if (tiles == nullptr) {
    Fail(ResourceExhausted("no memory for the ", HumanBytes(static_cast<uint64_t>(bytes)),
                           " of tensor ", Printable(rows.tensor->name), "; use a smaller model"));
    return nullptr;
  }
  weights_.memory_bytes_ += bytes;
  return tiles;
}

BoundLinear Binder::Of(const Linear& linear) {
  BoundLinear bound;
  if (!linear) return bound;
  bound.matrix = {Info(linear.weight).type, linear.n_in, linear.n_out, MatrixOf(RowsOf(linear))};
  if (const float* bias = Of(linear.bias)) bound.bias = bias + linear.first_row;
  bound.scale = Of(linear.scale);
  if (status_.ok()) Fail(weights_.adapters_.Bind(linear, bound.matrix.tiles));
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  BoundStack bound;
  if (!stack) return bound;
  const MatrixRows rows = RowsOf(stack);
  bound.first = {rows.tensor->type, stack.n_in, stack.n_out, MatrixOf(rows)};
  bound.member_bytes = MemberBytes(rows);
  bound.bias = Of(stack.bias);
  bound.scale = Of(stack.scale);
  return bound;
}

const float* Binder::Put(std::vector<float> values, const TensorInfo& /*tensor*/,
                         int64_t /*n_columns*/) {
  weights_.memory_bytes_ += std::ssize(values) * static_cast<int64_t>(sizeof(float));
  weights_.vectors_.push_back(std::move(values));
  return weights_.vectors_.back().data();
}

void Binder::Check(const Attention& op) {
  if (!GatesByHead(op)) {
    Fail(
        Unimplemented("the cpu backend needs gated queries as wide as the values, and their norm "
                      "by head"));
  }
}

void Binder::Check(const Convolution& convolution) {
  const int64_t n_taps = convolution.n_taps;
  if (n_taps >= 1 && n_taps <= kMaxConvolutionTaps) return;
  Fail(Unimplemented("the cpu backend has no convolution of ", n_taps, " taps, but of 1 to ",
                     kMaxConvolutionTaps));
}

Status Binder::Bind(const LoadOptions& options) {
  WEFT_RETURN_IF_ERROR(BindSpec(&weights_.model_));
  weights_.model_.token_types = Of(spec_.token_types.table);
  WEFT_RETURN_IF_ERROR(weights_.adapters_.BindEmbedding());
  weights_.memory_bytes_ += weights_.adapters_.memory_bytes();
  // The system can drop parts of a mapped copy and read them again, at the speed of the disk. Only
  // who has asked for copies wants that.
  const bool may_exceed_memory = weights_.copy_ != nullptr && !options.packed_copies.is_default;
  return may_exceed_memory ? OkStatus() : CheckHostHolds(weights_.memory_bytes_, file_);
}

uint64_t Binder::Layout() const {
  std::vector<int64_t> numbers;
  for (const Job& job : jobs_) {
    numbers.insert(numbers.end(), {job.index, job.first_row, job.n_out, job.n_in,
                                   job.tensor->dims[1], job.count, MemberBytes(job)});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(int64_t));
}

bool Binder::CopyFits() const {
  const PackedCopy& copy = *weights_.copy_;
  return taken_from_copy_ == static_cast<int64_t>(copy.body().size()) && Layout() == copy.layout();
}

void Binder::Keep(const PackedCopies& copies, const PackedCopies::Progress& progress) const {
  std::vector<std::span<const std::byte>> tiles;
  tiles.reserve(jobs_.size());
  for (const Job& job : jobs_) {
    tiles.emplace_back(job.matrix, static_cast<size_t>(MemberBytes(job) * job.count));
  }
  const int64_t begin_us = NowMicros();
  copies.Write(Layout(), tiles, progress);
  weights_.copy_write_us_ = NowMicros() - begin_us;
}

Status Binder::PackWith(const LoadOptions& options, ThreadPool* pool) {
  pool_ = pool;
  return PackAll(options);
}

Status Binder::PackAndKeep(const LoadOptions& options, const PackedCopies& copies,
                           ThreadPool* pool) {
  if (!copies.are_kept()) return PackWith(options, pool);
  // Disks are slower than packing from a file in memory.
  constexpr double kPacking = 0.4;
  LoadOptions packing = options;
  PackedCopies::Progress writing;
  if (options.progress) {
    packing.progress = [&](double fraction) { options.progress(kPacking * fraction); };
    writing = [&](double fraction) { options.progress(kPacking + (1 - kPacking) * fraction); };
  }
  WEFT_RETURN_IF_ERROR(PackWith(packing, pool));
  Keep(copies, writing);
  return OkStatus();
}

// Packs piece by piece, so that little of the file is in memory in addition to the packed tiles.
Status Binder::Pack(const Job& job, bool is_last) {
  const TensorInfo& tensor = *job.tensor;
  const int64_t tiles = TileCount(job.n_out);
  const int64_t tile_bytes = PackedTileBytes(tensor.type, job.n_in);
  const auto source_of = [&](int64_t i) {
    return job.Row(i / tiles * job.n_out + i % tiles * kTileOutputs);
  };
  const int64_t n_tiles = tiles * job.count;
  const int64_t piece = is_last
                            ? std::max<int64_t>(kPieceBytes / (kTileOutputs * tensor.row_bytes()),
                                                int64_t{8} * pool_->n_threads())
                            : n_tiles;
  for (int64_t first = 0; first < n_tiles; first += piece) {
    const int64_t last = std::min(n_tiles, first + piece);
    pool_->ParallelFor(last - first, 2, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        const int64_t n_rows =
            std::min<int64_t>(kTileOutputs, job.n_out - i % tiles * kTileOutputs);
        PackTile(tensor.type, source_of(i), static_cast<int>(n_rows), job.n_in,
                 job.matrix + i * tile_bytes);
      }
    });
    if (is_last && last < n_tiles) file_.Release(tensor, {source_of(first), source_of(last)});
  }
  return OkStatus();
}

std::vector<CpuWeights::PackedRows> CpuWeights::packed() const {
  std::vector<PackedRows> packed;
  for (const auto& [key, tiles] : tensors_.matrices) {
    const auto& [tensor, first_row, n_rows, stacked] = key;
    packed.push_back({&file_->tensors()[tensor], first_row, tiles});
  }
  return packed;
}

StatusOr<std::shared_ptr<const CpuWeights>> CpuWeights::Load(std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options, Isa isa) {
  try {
    ThreadPool pool(options.n_threads);
    for (const Adapter& adapter : options.adapters) {
      WEFT_RETURN_IF_ERROR(CheckAdapterTypes(adapter));
    }
    WEFT_ASSIGN_OR_RETURN(const PackedCopies copies,
                          PackedCopies::Open(options.packed_copies, *file));
    if (auto copy = copies.Find(&pool)) {
      std::shared_ptr<CpuWeights> weights(
          new CpuWeights(file, spec, options, isa, std::move(copy), nullptr));
      Binder binder(weights.get());
      WEFT_RETURN_IF_ERROR(binder.Bind(options));
      if (binder.CopyFits()) return weights;
      LogLine("the model is packed anew: another version of Weft wrote its packed copy");
    }
    auto beside = std::dynamic_pointer_cast<const CpuWeights>(
        options.beside_is_same_file ? options.beside : nullptr);
    std::shared_ptr<CpuWeights> weights(
        new CpuWeights(std::move(file), std::move(spec), options, isa, nullptr, std::move(beside)));
    Binder binder(weights.get());
    WEFT_RETURN_IF_ERROR(binder.Bind(options));
    WEFT_RETURN_IF_ERROR(binder.PackAndKeep(options, copies, &pool));
    return weights;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the model's weights; use a smaller model");
  }
}

}  // namespace weft::cpu
