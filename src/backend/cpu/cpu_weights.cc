#include "backend/cpu/cpu_weights.h"

#include <algorithm>
#include <map>
#include <new>
#include <utility>

#include "backend/checks.h"
#include "backend/spec_tensors.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "kernels/quants/quants.h"
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

// Walks the spec once: assigns memory to every matrix and pointers to every operation, then packs
// all matrices. The first error is kept, and ends the load.
class Binder {
 public:
  explicit Binder(CpuWeights* weights)
      : weights_(*weights), file_(*weights->file_), spec_(weights->spec_) {}

  Status Bind();
  Status Pack(const LoadOptions& options, ThreadPool* pool);

  // After Bind, without Pack: whether the weights' packed copy holds exactly these matrices.
  bool CopyFits() const;
  // Writes the packed copy. Call it after Pack.
  void Keep(const PackedCopies& copies) const;

 private:
  friend struct TensorBinder<Binder>;
  // A run of equal matrices of one tensor, to pack into `tiles`.
  struct Job {
    int tensor;
    int64_t first_row;  // within each slice
    int64_t n_out, n_in;
    int64_t rows_per_slice;
    int64_t count;
    int64_t member_bytes;
    std::byte* tiles;
  };

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const TensorInfo& Info(TensorRef ref) const { return file_.tensors()[ref.index]; }
  bool CheckType(const TensorInfo& tensor);
  // Memory for packed tiles; null if there is none left. With a packed copy, the address in that
  // copy: it is read-only, and meaningful only if CopyFits.
  std::byte* Take(int64_t bytes);
  std::byte* TakeFromCopy(int64_t bytes);
  // Hash of the list of matrices and their order.
  uint64_t Layout() const;

  std::byte* Matrices(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out,
                      int64_t count, int64_t* member_bytes);
  BoundLinear Of(const Linear& linear);
  BoundStack Of(const StackedLinear& stack);
  BoundNorm Of(const Norm& norm);
  BoundTable Table(TensorRef ref);
  const float* Of(TensorRef ref, int64_t* n_values = nullptr);

  BoundConvolution Of(const Convolution& convolution);
  // Fails for operations that this backend lacks.
  void CheckOp(const auto& /*op*/) {}
  void CheckOp(const Attention& op);
  BoundPath Of(const Path& path);
  BoundBlock Of(const Block& block);

  CpuWeights& weights_;
  const ModelFile& file_;
  const ModelSpec& spec_;
  const Path* const last_to_write_ = LastToWriteState(spec_);
  Status status_;
  std::vector<Job> jobs_;
  std::vector<std::span<std::byte>> rooms_;  // free space of each buffer of matrices
  int64_t taken_from_copy_ = 0;
  std::map<int, const float*> vector_of_;  // address of each decoded vector
};

bool Binder::CheckType(const TensorInfo& tensor) {
  if (CanDequantize(tensor.type)) return true;
  Fail(Unimplemented("tensor ", Printable(tensor.name), " has type ", NameOf(tensor.type),
                     ", which the cpu backend cannot compute with; convert the model to another "
                     "type"));
  return false;
}

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

std::byte* Binder::Matrices(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out,
                            int64_t count, int64_t* member_bytes) {
  const TensorInfo& tensor = Info(weight);
  if (!status_.ok() || !CheckType(tensor)) return nullptr;
  *member_bytes = TileCount(n_out) * PackedTileBytes(tensor.type, n_in);
  const CpuWeights::MatrixKey key{weight.index, first_row, n_out};
  if (const auto known = weights_.tiles_of_.find(key); known != weights_.tiles_of_.end()) {
    return known->second;
  }
  if (weights_.beside_ != nullptr) {
    const auto shared = weights_.beside_->tiles_of_.find(key);
    if (shared != weights_.beside_->tiles_of_.end()) return shared->second;
  }
  const int64_t bytes = *member_bytes * count;
  std::byte* const tiles = Take(bytes);
  if (tiles == nullptr) {
    Fail(ResourceExhausted("no memory for the ", HumanBytes(static_cast<uint64_t>(bytes)),
                           " of tensor ", Printable(tensor.name), "; use a smaller model"));
    return nullptr;
  }
  weights_.tiles_of_[key] = tiles;
  jobs_.push_back(
      {weight.index, first_row, n_out, n_in, tensor.dims[1], count, *member_bytes, tiles});
  weights_.memory_bytes_ += bytes;
  return tiles;
}

BoundLinear Binder::Of(const Linear& linear) {
  BoundLinear bound;
  if (!linear) return bound;
  int64_t member_bytes = 0;
  bound.matrix = {
      Info(linear.weight).type, linear.n_in, linear.n_out,
      Matrices(linear.weight, linear.first_row, linear.n_in, linear.n_out, 1, &member_bytes)};
  if (const float* bias = Of(linear.bias)) bound.bias = bias + linear.first_row;
  bound.scale = Of(linear.scale);
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  BoundStack bound;
  if (!stack) return bound;
  std::byte* const tiles = Matrices(stack.weight, stack.first_row, stack.n_in, stack.n_out,
                                    stack.count, &bound.member_bytes);
  bound.first = {Info(stack.weight).type, stack.n_in, stack.n_out, tiles};
  bound.bias = Of(stack.bias);
  bound.scale = Of(stack.scale);
  return bound;
}

BoundNorm Binder::Of(const Norm& norm) {
  BoundNorm bound;
  bound.spec = norm;
  bound.weight = Of(norm.weight, &bound.weight_values);
  bound.bias = Of(norm.bias, &bound.weight_values);
  return bound;
}

BoundTable Binder::Table(TensorRef ref) {
  const TensorInfo& tensor = Info(ref);
  CheckType(tensor);
  return {&file_, &tensor};
}

const float* Binder::Of(TensorRef ref, int64_t* n_values) {
  if (!ref || !status_.ok()) return nullptr;
  const TensorInfo& tensor = Info(ref);
  if (n_values != nullptr) *n_values = tensor.values();
  const auto [known, is_new] = vector_of_.try_emplace(ref.index, nullptr);
  if (!is_new) return known->second;
  if (!CheckType(tensor)) return nullptr;
  auto values = std::make_unique<float[]>(static_cast<size_t>(tensor.values()));
  Decode(tensor, values.get());
  weights_.memory_bytes_ += tensor.values() * static_cast<int64_t>(sizeof(float));
  known->second = values.get();
  weights_.vectors_.push_back(std::move(values));
  return known->second;
}

void Binder::CheckOp(const Attention& op) {
  if (!GatesByHead(op)) {
    Fail(
        Unimplemented("the cpu backend needs gated queries as wide as the values, and their norm "
                      "by head"));
  }
}

BoundConvolution Binder::Of(const Convolution& convolution) {
  BoundConvolution bound;
  bound.spec = &convolution;
  bound.bias = Of(convolution.bias);
  const int64_t n_taps = convolution.n_taps, n = convolution.n_channels;
  if (n_taps < 1 || n_taps > kMaxConvolutionTaps) {
    Fail(Unimplemented("the cpu backend has no convolution of ", n_taps, " taps, but of 1 to ",
                       kMaxConvolutionTaps));
  }
  const float* const kernel = Of(convolution.kernel);
  if (!status_.ok()) return bound;
  auto transposed = std::make_unique<float[]>(static_cast<size_t>(n_taps * n));
  PutTapsFirst(convolution, kernel, transposed.get());
  bound.kernel = transposed.get();
  weights_.memory_bytes_ += n_taps * n * static_cast<int64_t>(sizeof(float));
  weights_.vectors_.push_back(std::move(transposed));
  return bound;
}

BoundPath Binder::Of(const Path& path) {
  const auto bind = [&]<typename Operation>(const Operation& op) -> BoundOp {
    CheckOp(op);
    Bound<Operation> bound;
    bound.spec = &op;
    bound.last_to_write = &path == last_to_write_;
    op.Visit(spec_.d_model, TensorBinder{this}, bound);
    return bound;
  };
  return {Of(path.pre), std::visit(bind, path.op), Of(path.post), path.scale};
}

BoundBlock Binder::Of(const Block& block) {
  BoundBlock bound;
  bound.keeps_input = block.keeps_input;
  bound.pre = Of(block.pre);
  for (const Path& path : block.paths) bound.paths.push_back(Of(path));
  bound.post = Of(block.post);
  bound.residual_scale = block.residual_scale;
  if (const float* scale = Of(block.stream_scale)) bound.stream_scale = scale[0];
  bound.stream_scale *= block.stream_factor;
  bound.stream_norm = Of(block.stream_norm);
  return bound;
}

Status Binder::Bind() {
  BoundModel& model = weights_.model_;
  model.embedding = Table(spec_.embedding);
  if (spec_.positions) model.positions = Table(spec_.positions);
  model.token_types = Of(spec_.token_types.table);
  model.input_norm = Of(spec_.input_norm);
  if (spec_.per_layer_input) {
    const PerLayerInput& input = *spec_.per_layer_input;
    model.per_layer_input = {Table(input.table), Of(input.proj), Of(input.norm)};
  }
  if (spec_.hidden_input) {
    const HiddenInput& input = *spec_.hidden_input;
    model.hidden_input = {Of(input.token_norm), Of(input.hidden_norm), Of(input.proj)};
  }
  for (const Layer& layer : spec_.layers) {
    for (const Block& block : layer.blocks) model.blocks.push_back(Of(block));
  }
  model.output_norm = Of(spec_.output_norm);
  model.output = Of(spec_.output);
  WEFT_RETURN_IF_ERROR(status_);
  return CheckHostHolds(weights_.memory_bytes_);
}

uint64_t Binder::Layout() const {
  std::vector<int64_t> numbers;
  for (const Job& job : jobs_) {
    numbers.insert(numbers.end(), {job.tensor, job.first_row, job.n_out, job.n_in,
                                   job.rows_per_slice, job.count, job.member_bytes});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(int64_t));
}

bool Binder::CopyFits() const {
  const PackedCopy& copy = *weights_.copy_;
  return taken_from_copy_ == static_cast<int64_t>(copy.body().size()) && Layout() == copy.layout();
}

void Binder::Keep(const PackedCopies& copies) const {
  std::vector<std::span<const std::byte>> tiles;
  tiles.reserve(jobs_.size());
  for (const Job& job : jobs_) {
    tiles.emplace_back(job.tiles, static_cast<size_t>(job.member_bytes * job.count));
  }
  copies.Write(Layout(), tiles);
}

Status Binder::Pack(const LoadOptions& options, ThreadPool* pool) {
  std::map<int, int> jobs_left;  // by tensor
  int64_t total_bytes = 0;
  for (const Job& job : jobs_) {
    ++jobs_left[job.tensor];
    total_bytes += job.member_bytes * job.count;
  }
  int64_t done_bytes = 0;
  for (const Job& job : jobs_) {
    const TensorInfo& tensor = file_.tensors()[job.tensor];
    const int64_t tiles = TileCount(job.n_out);
    const int64_t tile_bytes = job.member_bytes / std::max<int64_t>(1, tiles);
    const auto source_of = [&](int64_t i) {
      const int64_t row = i / tiles * job.rows_per_slice + job.first_row + i % tiles * kTileOutputs;
      return tensor.data.data() + row * tensor.row_bytes();
    };
    // Piece by piece, so that little of the file is in memory in addition to the packed tiles.
    const bool is_last = --jobs_left[job.tensor] == 0;
    const int64_t n_tiles = tiles * job.count;
    const int64_t piece = is_last
                              ? std::max<int64_t>(kPieceBytes / (kTileOutputs * tensor.row_bytes()),
                                                  int64_t{8} * pool->n_threads())
                              : n_tiles;
    for (int64_t first = 0; first < n_tiles; first += piece) {
      const int64_t last = std::min(n_tiles, first + piece);
      pool->ParallelFor(last - first, 2, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = first + begin; i < first + end; ++i) {
          const int64_t n_rows =
              std::min<int64_t>(kTileOutputs, job.n_out - i % tiles * kTileOutputs);
          PackTile(tensor.type, source_of(i), static_cast<int>(n_rows), job.n_in,
                   job.tiles + i * tile_bytes);
        }
      });
      if (is_last && last < n_tiles) {
        file_.Release(tensor, {source_of(first), source_of(last)});
      }
    }
    if (is_last) file_.Release(tensor, tensor.data);
    done_bytes += job.member_bytes * job.count;
    if (options.progress) {
      options.progress(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
    }
  }
  return OkStatus();
}

std::vector<CpuWeights::PackedRows> CpuWeights::packed() const {
  std::vector<PackedRows> packed;
  for (const auto& [key, tiles] : tiles_of_) {
    const auto& [tensor, first_row, n_rows] = key;
    packed.push_back({&file_->tensors()[tensor], first_row, tiles});
  }
  return packed;
}

StatusOr<std::shared_ptr<const CpuWeights>> CpuWeights::Load(std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options, Isa isa) {
  try {
    ThreadPool pool(options.n_threads);
    WEFT_ASSIGN_OR_RETURN(const PackedCopies copies,
                          PackedCopies::Open(options.packed_copies, *file));
    if (auto copy = copies.Find(&pool)) {
      std::shared_ptr<CpuWeights> weights(
          new CpuWeights(file, spec, isa, std::move(copy), nullptr));
      Binder binder(weights.get());
      WEFT_RETURN_IF_ERROR(binder.Bind());
      if (binder.CopyFits()) return weights;
      LogLine("the model is packed anew: another version of Weft wrote its packed copy");
    }
    auto beside = std::dynamic_pointer_cast<const CpuWeights>(options.beside);
    std::shared_ptr<CpuWeights> weights(
        new CpuWeights(std::move(file), std::move(spec), isa, nullptr, std::move(beside)));
    Binder binder(weights.get());
    WEFT_RETURN_IF_ERROR(binder.Bind());
    WEFT_RETURN_IF_ERROR(binder.Pack(options, &pool));
    binder.Keep(copies);
    return weights;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for the model's weights; use a smaller model");
  }
}

}  // namespace weft::cpu
