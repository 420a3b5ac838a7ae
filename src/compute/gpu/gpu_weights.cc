#include "compute/gpu/gpu_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <utility>

#include "base/thread_pool.h"
#include "compute/checks.h"
#include "compute/kernels/quants/quants.h"
#include "compute/kernels_gpu/attention.h"
#include "compute/kernels_gpu/best.h"
#include "compute/kernels_gpu/experts.h"
#include "compute/kernels_gpu/streams.h"
#include "compute/spec_binder.h"

namespace weft::gpu {

namespace {

// Matrices and vectors share allocations of this size; a larger one gets its own.
constexpr int64_t kSlabBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 256;
// Matrices are packed on the host in chunks of this size before they are uploaded.
constexpr int64_t kStagingBytes = int64_t{16} << 20;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

class Binder : public SpecBinder<Binder, OnDevice, Bound> {
 public:
  Binder(GpuWeights* weights, const ModelFile& file)
      : SpecBinder(file, weights->spec_, &weights->tensors_,
                   weights->beside_ != nullptr ? &weights->beside_->tensors_ : nullptr),
        weights_(*weights) {}

  Status Bind();
  Status Upload(const LoadOptions& options);

  // See spec_binder.h.
  using SpecBinder::Of;
  BoundLinear Of(const Linear& linear);
  BoundStack Of(const StackedLinear& stack);
  BoundLinear Table(TensorRef ref);
  const float* Put(std::vector<float> values, const TensorInfo& tensor, int64_t n_columns = 0);
  OnDevice::Matrix Reserve(const MatrixRows& rows);
  Status Pack(const Job& job, bool is_last);
  void BindOperation(const auto& op, auto* bound) {
    JoinInputs(op);
    SpecBinder::BindOperation(op, bound);
    AddVectors(op, bound);
  }
  void Check(const auto& /*op*/) {}
  void Check(const Attention& op);
  void Check(const LatentAttention& op) {
    CheckHeads(op.latent_dim + op.rope_dim, op.latent_dim);
    CheckChoice(op.choice);
  }
  void Check(const CompressedAttention& /*op*/) { Refuse("attention to compressed entries"); }
  void Check(const GatherSides& /*op*/) { Refuse("hyper-connections"); }
  void Check(const SpreadSides& /*op*/) { Refuse("hyper-connections"); }
  void Check(const PredictSides& op) {
    if (op.router.n_out <= device::kMaxStreams) return;
    Fail(Unimplemented("the gpu backends have no more than ", device::kMaxStreams, " streams, not ",
                       op.router.n_out));
  }
  void Check(const BidirectionalAttention& op) { CheckHeads(op.k_dim, op.v_dim); }
  void Check(const UnfoldedLatentAttention& op) { CheckHeads(op.nope_dim + op.rope_dim, op.v_dim); }
  void Check(const MixtureOfExperts& op);

 private:
  struct Values {
    std::byte* to;
    std::vector<float> values;
  };

  // Device memory; null if there is none left.
  std::byte* Take(int64_t bytes, const TensorInfo& tensor);
  MatrixParts TakeRows(int64_t n_rows, const PartBytes& bytes, const TensorInfo& tensor);
  OnDevice::Matrix MatrixAt(const MatrixRows& rows, const MatrixParts& parts) const;

  // Places matrices with the same input one after the other, so that their products take one
  // launch: each run of neighbours that can be joined.
  void Join(std::initializer_list<const Linear*> linears);
  bool MayJoin(const Linear& linear) const;
  bool Joins(const Linear& a, const Linear& b) const;
  void PlaceRun(std::span<const Linear* const> run);
  void JoinInputs(const auto& /*op*/) {}
  void JoinInputs(const Attention& op) { Join({&op.q, &op.k, &op.v}); }
  void JoinInputs(const BidirectionalAttention& op) { Join({&op.q, &op.k, &op.v}); }
  void JoinInputs(const LatentAttention& op) { Join({&op.kv_a, &op.q, &op.q_a}); }
  void JoinInputs(const DenseFfn& op) { Join({&op.up, &op.gate}); }
  void JoinInputs(const GatedDeltaNet& op) { Join({&op.qkv, &op.gate}); }

  // Vectors that are no tensors of the operation.
  void AddVectors(const auto& /*op*/, auto* /*bound*/) {}
  void AddVectors(const BidirectionalAttention& op, Bound<BidirectionalAttention>* bound) {
    if (!op.slopes.empty() && status_.ok()) bound->slopes = Put(op.slopes, Info(op.q.weight));
  }
  void AddVectors(const SelectiveScan& op, Bound<SelectiveScan>* bound) {
    if (status_.ok()) bound->channel_rate = Transposed(op.rate, op.n_channels, op.state_dim);
  }
  // (rows, columns) values as (columns, rows).
  const float* Transposed(TensorRef ref, int64_t n_rows, int64_t n_columns);

  void CheckChoice(const KeyChoice& choice) {
    if (choice) Refuse("attention to chosen keys");
  }
  void Refuse(std::string_view what) {
    Fail(Unimplemented("the gpu backends have no ", what, "; use the cpu backend"));
  }
  void CheckHeads(int64_t k_dim, int64_t v_dim);

  // Packs band `band`, counted over all members of a job.
  void PackBand(const Job& job, const PartBytes& bytes, int64_t band, const MatrixParts& to) const;
  Status Send(std::byte* to, int64_t bytes);

  GpuWeights& weights_;
  std::vector<Values> values_;
  std::span<std::byte> room_;  // free space of the last allocation
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Memory> staging_;
  ThreadPool* pool_ = nullptr;
};

std::byte* Binder::Take(int64_t bytes, const TensorInfo& tensor) {
  const int64_t size = Aligned(std::max<int64_t>(bytes, 1));
  if (static_cast<int64_t>(room_.size()) < size) {
    const int64_t whole = std::min(kSlabBytes, static_cast<int64_t>(file_.file_bytes()));
    auto memory = weights_.device_->Allocate(std::max(size, Aligned(whole)));
    if (!memory.ok()) memory = weights_.device_->Allocate(size);
    if (!memory.ok()) {
      Fail(ResourceExhausted("no memory on the device for tensor ", Printable(tensor.name), " (",
                             Message(memory.status()), "); use a smaller model"));
      return nullptr;
    }
    const auto memory_bytes = static_cast<size_t>((*memory)->bytes());
    weights_.memory_bytes_ += (*memory)->bytes();
    room_ = {(*memory)->data(), memory_bytes};
    weights_.memory_.push_back(*std::move(memory));
  }
  std::byte* const taken = room_.data();
  room_ = room_.subspan(static_cast<size_t>(size));
  return taken;
}

const float* Binder::Put(std::vector<float> values, const TensorInfo& tensor,
                         int64_t /*n_columns*/) {
  std::byte* const to = Take(std::ssize(values) * 4, tensor);
  if (to == nullptr) return nullptr;
  values_.push_back({to, std::move(values)});
  return reinterpret_cast<const float*>(to);
}

MatrixParts Binder::TakeRows(int64_t n_rows, const PartBytes& bytes, const TensorInfo& tensor) {
  MatrixParts parts = {.levels = Take(n_rows * bytes.levels, tensor)};
  if (bytes.meta > 0) parts.meta = Take(n_rows * bytes.meta, tensor);
  if (bytes.super > 0) parts.super = Take(n_rows * bytes.super, tensor);
  return parts;
}

OnDevice::Matrix Binder::MatrixAt(const MatrixRows& rows, const MatrixParts& parts) const {
  BoundLinear bound;
  bound.form = FormOf(rows.tensor->type);
  bound.by_tiles = bound.form->multiply_tiles != nullptr && weights_.device_->multiplies_tiles();
  bound.matrix = {reinterpret_cast<const uint32_t*>(parts.levels),
                  reinterpret_cast<const uint8_t*>(parts.meta),
                  reinterpret_cast<const uint16_t*>(parts.super), static_cast<int32_t>(rows.n_in),
                  static_cast<int32_t>(rows.n_out)};
  return {bound, parts};
}

OnDevice::Matrix Binder::Reserve(const MatrixRows& rows) {
  const TensorInfo& tensor = *rows.tensor;
  if (FormOf(tensor.type) == nullptr) {
    Fail(Unimplemented("tensor ", Printable(tensor.name), " has type ", NameOf(tensor.type),
                       ", which the gpu backends cannot compute with; convert the model to "
                       "another type"));
    return {};
  }
  return MatrixAt(rows, TakeRows(device::PaddedOutputs(rows.n_out) * rows.count,
                                 BytesOfRow(tensor.type, rows.n_in), tensor));
}

bool Binder::MayJoin(const Linear& linear) const {
  if (FormOf(Info(linear.weight).type) == nullptr || linear.scale ||
      Find(&Tensors::matrices, RowsOf(linear).key()) != nullptr) {
    return false;
  }
  if (!linear.bias) return true;
  const TensorInfo& bias = Info(linear.bias);
  return CanDequantize(bias.type) && bias.values() == linear.n_out &&
         Find(&Tensors::vectors, linear.bias.index) == nullptr;
}

bool Binder::Joins(const Linear& a, const Linear& b) const {
  return MayJoin(a) && MayJoin(b) && Info(a.weight).type == Info(b.weight).type &&
         a.n_in == b.n_in && device::PaddedOutputs(a.n_out) == a.n_out &&
         static_cast<bool>(a.bias) == static_cast<bool>(b.bias);
}

void Binder::Join(std::initializer_list<const Linear*> linears) {
  std::vector<const Linear*> run;
  for (const Linear* linear : linears) {
    if (!*linear) continue;
    if (!run.empty() && !Joins(*run.back(), *linear)) {
      PlaceRun(run);
      run.clear();
    }
    run.push_back(linear);
  }
  PlaceRun(run);
}

void Binder::PlaceRun(std::span<const Linear* const> run) {
  if (run.size() < 2 || !status_.ok()) return;
  const TensorInfo& first = Info(run[0]->weight);
  const PartBytes bytes = BytesOfRow(first.type, run[0]->n_in);
  int64_t n_rows = 0;
  std::vector<float> biases;
  for (const Linear* linear : run) {
    n_rows += device::PaddedOutputs(linear->n_out);
    if (!linear->bias) continue;
    const std::vector<float> values = ValuesOf(Info(linear->bias));
    biases.insert(biases.end(), values.begin(), values.end());
  }
  const float* bias = biases.empty() ? nullptr : Put(std::move(biases), Info(run[0]->bias));
  MatrixParts parts = TakeRows(n_rows, bytes, first);
  if (!status_.ok()) return;
  for (const Linear* linear : run) {
    const MatrixRows rows = RowsOf(*linear);
    OnDevice::Matrix matrix = MatrixAt(rows, parts);
    parts = parts.After(rows.n_out, bytes);
    matrix.linear.end = reinterpret_cast<const uint32_t*>(parts.levels);
    AddJob(rows, matrix);
    if (bias == nullptr) continue;
    tensors_.vectors.emplace(linear->bias.index, bias);
    bias += rows.n_out;
  }
}

BoundLinear Binder::Of(const Linear& linear) {
  if (!linear) return {};
  BoundLinear bound = MatrixOf(RowsOf(linear)).linear;
  const float* const bias = Of(linear.bias);
  // If matrices were joined, their biases are already those of their own rows.
  const bool is_whole = bias != nullptr && Info(linear.bias).values() != linear.n_out;
  bound.bias = is_whole ? bias + linear.first_row : bias;
  bound.scale = Of(linear.scale);
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  if (!stack) return {};
  BoundStack bound = {MatrixOf(RowsOf(stack)).linear};
  bound.count = stack.count;
  bound.bias = Of(stack.bias);
  bound.scale = Of(stack.scale);
  return bound;
}

const float* Binder::Transposed(TensorRef ref, int64_t n_rows, int64_t n_columns) {
  const std::vector<float> values = ValuesOf(Info(ref));
  std::vector<float> transposed(values.size());
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t column = 0; column < n_columns; ++column) {
      transposed[static_cast<size_t>(column * n_rows + row)] =
          values[static_cast<size_t>(row * n_columns + column)];
    }
  }
  return Put(std::move(transposed), Info(ref));
}

BoundLinear Binder::Table(TensorRef ref) {
  if (!ref) return {};
  const TensorInfo& tensor = Info(ref);
  return MatrixOf({ref.index, &tensor, 0, tensor.dims[0], tensor.rows(), 1, false}).linear;
}

void Binder::CheckHeads(int64_t k_dim, int64_t v_dim) {
  if (v_dim > device::kMaxValueDims) {
    Fail(Unimplemented("the gpu backends have no attention to values of ", v_dim,
                       " dimensions, but of up to ", device::kMaxValueDims));
  }
  if (k_dim > device::kMaxHeadDims) {
    Fail(Unimplemented("the gpu backends have no attention to keys of ", k_dim,
                       " dimensions, but of up to ", device::kMaxHeadDims));
  }
}

void Binder::Check(const Attention& op) {
  CheckHeads(op.k_dim, op.v_dim);
  CheckChoice(op.choice);
  if (!GatesByHead(op)) {
    Fail(
        Unimplemented("the gpu backends need gated queries as wide as the values, and their "
                      "norm by head"));
  }
  const auto is_wide = [](const Norm& norm) { return norm && norm.width > device::kMaxHeadNorm; };
  if (op.norms_after_rope && (is_wide(op.q_norm) || is_wide(op.k_norm))) {
    Fail(Unimplemented("the gpu backends norm heads of up to ", device::kMaxHeadNorm,
                       " values after their rotation, not of ", op.k_dim));
  }
}

void Binder::Check(const MixtureOfExperts& op) {
  if (op.weights == RouterWeights::kRootSoftplus) Refuse("experts weighed by roots of softplus");
  if (op.by_token) Refuse("experts chosen by a token's id");
  if (op.n_experts > device::kMaxExperts || op.n_groups > device::kMaxGroups) {
    Fail(Unimplemented("the gpu backends have no mixture of ", op.n_experts, " experts in ",
                       op.n_groups, " groups, but of up to ", device::kMaxExperts, " in ",
                       device::kMaxGroups));
  }
}

Status Binder::Bind() {
  constexpr int64_t kMaxVocab = int64_t{device::kMaxBestSlices} * device::kBestSlice;
  if (spec_.n_vocab > kMaxVocab) {
    return Unimplemented("the gpu backends have vocabularies of up to ", kMaxVocab,
                         " tokens, the model has ", spec_.n_vocab);
  }
  WEFT_RETURN_IF_ERROR(BindSpec(&weights_.model_));
  weights_.model_.token_types = Table(spec_.token_types.table);
  return status_;
}

// Uploads the first `bytes` of the staging memory.
Status Binder::Send(std::byte* to, int64_t bytes) {
  stream_->CopyToDevice(to, staging_->data(), bytes);
  return stream_->Synchronize();
}

void Binder::PackBand(const Job& job, const PartBytes& bytes, int64_t band,
                      const MatrixParts& to) const {
  const int64_t n_bands = device::CeilDiv(job.n_out, device::kBandOutputs);
  const int64_t first = band % n_bands * device::kBandOutputs;
  const int64_t n = std::min<int64_t>(device::kBandOutputs, job.n_out - first);
  if (n < device::kBandOutputs) {
    const auto clear = [](std::byte* part, int64_t row_bytes) {
      std::memset(part, 0, static_cast<size_t>(row_bytes * device::kBandOutputs));
    };
    clear(to.levels, bytes.levels);
    clear(to.meta, bytes.meta);
    clear(to.super, bytes.super);
  }
  for (int64_t i = 0; i < n; ++i) {
    PackRow(job.tensor->type, job.Row(band / n_bands * job.n_out + first + i), job.n_in,
            static_cast<int>(i), to.levels, to.meta, to.super);
  }
}

Status Binder::Pack(const Job& job, bool /*is_last*/) {
  const PartBytes bytes = BytesOfRow(job.tensor->type, job.n_in);
  const PartBytes of_band = {bytes.levels * device::kBandOutputs, bytes.meta * device::kBandOutputs,
                             bytes.super * device::kBandOutputs};
  const int64_t n_bands = device::CeilDiv(job.n_out, device::kBandOutputs) * job.count;
  const int64_t band_bytes = of_band.levels + of_band.meta + of_band.super;
  const int64_t most = std::max<int64_t>(1, staging_->bytes() / band_bytes);
  for (int64_t first = 0; first < n_bands; first += most) {
    const int64_t n = std::min(most, n_bands - first);
    std::byte* const levels = staging_->data();
    std::byte* const meta = levels + n * of_band.levels;
    const MatrixParts staged = {levels, meta, meta + n * of_band.meta};
    pool_->ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        PackBand(job, bytes, first + i, staged.After(i, of_band));
      }
    });
    const MatrixParts to = job.matrix.parts.After(first, of_band);
    stream_->CopyToDevice(to.levels, staged.levels, n * of_band.levels);
    if (bytes.meta > 0) stream_->CopyToDevice(to.meta, staged.meta, n * of_band.meta);
    if (bytes.super > 0) stream_->CopyToDevice(to.super, staged.super, n * of_band.super);
    WEFT_RETURN_IF_ERROR(stream_->Synchronize());
  }
  return OkStatus();
}

Status Binder::Upload(const LoadOptions& options) {
  int64_t widest = 0;
  for (const Job& job : jobs_) {
    const PartBytes bytes = BytesOfRow(job.tensor->type, job.n_in);
    widest = std::max(widest, (bytes.levels + bytes.meta + bytes.super) * device::kBandOutputs);
  }
  for (const Values& values : values_) {
    widest = std::max<int64_t>(widest, std::ssize(values.values) * 4);
  }
  WEFT_ASSIGN_OR_RETURN(stream_, weights_.device_->NewStream());
  const int64_t file_bytes = static_cast<int64_t>(file_.file_bytes());
  WEFT_ASSIGN_OR_RETURN(staging_, weights_.device_->AllocatePinned(
                                      std::max(widest, std::min(kStagingBytes, file_bytes)) + 1));
  ThreadPool pool(options.n_threads);
  pool_ = &pool;
  WEFT_RETURN_IF_ERROR(PackAll(options));
  for (const Values& values : values_) {
    const int64_t bytes = std::ssize(values.values) * 4;
    if (bytes == 0) continue;
    std::memcpy(staging_->data(), values.values.data(), static_cast<size_t>(bytes));
    WEFT_RETURN_IF_ERROR(Send(values.to, bytes));
  }
  return OkStatus();
}

std::shared_ptr<device::Device> GpuWeights::DeviceOf(const Weights* beside) {
  const auto* const weights = dynamic_cast<const GpuWeights*>(beside);
  return weights != nullptr ? weights->device_ : nullptr;
}

StatusOr<std::shared_ptr<const GpuWeights>> GpuWeights::Load(std::shared_ptr<device::Device> device,
                                                             int number,
                                                             std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options) {
  try {
    std::shared_ptr<GpuWeights> weights(new GpuWeights(std::move(device), number, std::move(spec)));
    if (options.beside_is_same_file) {
      weights->beside_ = std::dynamic_pointer_cast<const GpuWeights>(options.beside);
    }
    Binder binder(weights.get(), *file);
    WEFT_RETURN_IF_ERROR(binder.Bind());
    WEFT_RETURN_IF_ERROR(binder.Upload(options));
    WEFT_RETURN_IF_ERROR(file->CheckUnchanged());
    return weights;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory for loading the model's weights; use a smaller model");
  }
}

}  // namespace weft::gpu
