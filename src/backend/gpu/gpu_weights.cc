#include "backend/gpu/gpu_weights.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <utility>

#include "backend/checks.h"
#include "backend/spec_tensors.h"
#include "base/thread_pool.h"
#include "kernels/quants/quants.h"
#include "kernels_gpu/attention.h"
#include "kernels_gpu/best.h"
#include "kernels_gpu/experts.h"
#include "kernels_gpu/streams.h"

namespace weft::gpu {

namespace {

// Matrices and vectors share allocations of this size; a larger one gets its own.
constexpr int64_t kSlabBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 256;
// Matrices are packed on the host in chunks of this size before they are uploaded.
constexpr int64_t kStagingBytes = int64_t{16} << 20;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Walks the spec once: assigns memory to every tensor and pointers to every operation, then packs
// and uploads everything. The first error is kept, and ends the load.
class Binder {
 public:
  Binder(GpuWeights* weights, const ModelFile& file)
      : weights_(*weights), file_(file), spec_(weights->spec_) {}

  Status Bind();
  Status Upload(const LoadOptions& options);

 private:
  friend struct TensorBinder<Binder>;
  // `count` runs of n_rows rows of one tensor, one run per slice of rows_per_slice rows.
  struct Job {
    const TensorInfo* tensor;
    int64_t first_row, n_rows, rows_per_slice, count;
    std::byte *levels, *meta, *super;
  };
  struct Values {
    std::byte* to;
    std::vector<float> values;
  };

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const TensorInfo& Info(TensorRef ref) const { return file_.tensors()[ref.index]; }
  // Device memory; null if there is none left.
  std::byte* Take(int64_t bytes, const TensorInfo& tensor);
  const float* Put(std::vector<float> values, const TensorInfo& tensor);

  // Addresses of a matrix's parts.
  struct Place {
    std::byte *levels, *meta, *super;
  };
  Place TakeRows(int64_t n_rows, const PartBytes& bytes, const TensorInfo& tensor);
  BoundLinear Matrix(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out,
                     int64_t count, const Place* place = nullptr);
  BoundLinear Of(const Linear& linear);
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
  BoundStack Of(const StackedLinear& stack);
  BoundNorm Of(const Norm& norm);
  // (rows, columns) values as (columns, rows).
  const float* Transposed(TensorRef ref, int64_t n_rows, int64_t n_columns);
  BoundLinear Table(TensorRef ref);
  const float* Of(TensorRef ref, int64_t* n_values = nullptr);
  BoundConvolution Of(const Convolution& convolution);
  // Fails for operations, or sizes of them, that this backend lacks.
  void CheckOp(const auto& /*op*/) {}
  void CheckOp(const Attention& op);
  void CheckChoice(const KeyChoice& choice) {
    if (!choice) return;
    Fail(Unimplemented("the gpu backends have no attention to chosen keys; use the cpu backend"));
  }
  void CheckOp(const LatentAttention& op) {
    CheckHeads(op.latent_dim + op.rope_dim, op.latent_dim);
    CheckChoice(op.choice);
  }
  void CheckOp(const PredictSides& op) {
    if (op.router.n_out <= device::kMostStreams) return;
    Fail(Unimplemented("the gpu backends have no more than ", device::kMostStreams,
                       " streams, not ", op.router.n_out));
  }
  void CheckOp(const BidirectionalAttention& op) { CheckHeads(op.k_dim, op.v_dim); }
  void CheckOp(const UnfoldedLatentAttention& op) {
    CheckHeads(op.nope_dim + op.rope_dim, op.v_dim);
  }
  void CheckOp(const MixtureOfExperts& op);
  void CheckHeads(int64_t k_dim, int64_t v_dim);
  BoundPath Of(const Path& path);
  BoundBlock Of(const Block& block);

  // Addresses of a band's parts.
  struct BandParts {
    std::byte *levels, *meta, *super;
  };
  // Packs band `band`, counted over all members of a job.
  void PackBand(const Job& job, const PartBytes& bytes, int64_t band, const BandParts& to) const;
  Status UploadMatrix(const Job& job, ThreadPool* pool);
  Status Send(std::byte* to, int64_t bytes);

  GpuWeights& weights_;
  const ModelFile& file_;
  const ModelSpec& spec_;
  Status status_;
  std::vector<Job> jobs_;
  std::vector<Values> values_;
  std::span<std::byte> room_;  // free space of the last allocation
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Memory> staging_;
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

const float* Binder::Put(std::vector<float> values, const TensorInfo& tensor) {
  std::byte* const to = Take(std::ssize(values) * 4, tensor);
  if (to == nullptr) return nullptr;
  values_.push_back({to, std::move(values)});
  return reinterpret_cast<const float*>(to);
}

Binder::Place Binder::TakeRows(int64_t n_rows, const PartBytes& bytes, const TensorInfo& tensor) {
  Place place = {Take(n_rows * bytes.levels, tensor), nullptr, nullptr};
  if (bytes.meta > 0) place.meta = Take(n_rows * bytes.meta, tensor);
  if (bytes.super > 0) place.super = Take(n_rows * bytes.super, tensor);
  return place;
}

BoundLinear Binder::Matrix(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out,
                           int64_t count, const Place* place) {
  if (!status_.ok()) return {};
  const TensorInfo& tensor = Info(weight);
  const WeightForm* const form = FormOf(tensor.type);
  if (form == nullptr) {
    Fail(Unimplemented("tensor ", Printable(tensor.name), " has type ", NameOf(tensor.type),
                       ", which the gpu backends cannot compute with; convert the model to "
                       "another type"));
    return {};
  }
  const auto [known, is_new] = weights_.matrix_of_.try_emplace({weight.index, first_row, n_out});
  if (!is_new) return known->second;
  const PartBytes bytes = BytesOfRow(tensor.type, n_in);
  const Place at =
      place != nullptr ? *place : TakeRows(device::PaddedOutputs(n_out) * count, bytes, tensor);
  jobs_.push_back({&tensor, first_row, n_out, tensor.dims[1], count, at.levels, at.meta, at.super});
  BoundLinear& bound = known->second;
  bound.form = form;
  bound.by_tiles = form->multiply_tiles != nullptr && weights_.device_->multiplies_tiles();
  bound.matrix = {reinterpret_cast<const uint32_t*>(at.levels),
                  reinterpret_cast<const uint8_t*>(at.meta),
                  reinterpret_cast<const uint16_t*>(at.super), static_cast<int32_t>(n_in),
                  static_cast<int32_t>(n_out)};
  if (place != nullptr) {
    bound.end = reinterpret_cast<const uint32_t*>(at.levels + n_out * bytes.levels);
  }
  return bound;
}

bool Binder::MayJoin(const Linear& linear) const {
  if (FormOf(Info(linear.weight).type) == nullptr || linear.scale ||
      weights_.matrix_of_.contains({linear.weight.index, linear.first_row, linear.n_out})) {
    return false;
  }
  if (!linear.bias) return true;
  const TensorInfo& bias = Info(linear.bias);
  return CanDequantize(bias.type) && bias.values() == linear.n_out &&
         !weights_.vector_of_.contains(linear.bias.index);
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
  Place place = TakeRows(n_rows, bytes, first);
  if (!status_.ok()) return;
  for (const Linear* linear : run) {
    const int64_t n = linear->n_out;
    Matrix(linear->weight, linear->first_row, linear->n_in, n, 1, &place);
    place.levels += n * bytes.levels;
    if (place.meta != nullptr) place.meta += n * bytes.meta;
    if (place.super != nullptr) place.super += n * bytes.super;
    if (bias == nullptr) continue;
    weights_.vector_of_.emplace(linear->bias.index, bias);
    bias += n;
  }
}

BoundLinear Binder::Of(const Linear& linear) {
  if (!linear) return {};
  BoundLinear bound = Matrix(linear.weight, linear.first_row, linear.n_in, linear.n_out, 1);
  const float* const bias = Of(linear.bias);
  // If matrices were joined, their biases are already those of their own rows.
  const bool is_whole = bias != nullptr && Info(linear.bias).values() != linear.n_out;
  bound.bias = is_whole ? bias + linear.first_row : bias;
  bound.scale = Of(linear.scale);
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  if (!stack) return {};
  BoundStack bound = {Matrix(stack.weight, stack.first_row, stack.n_in, stack.n_out, stack.count)};
  bound.count = stack.count;
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
  if (!ref || !status_.ok()) return {};
  const TensorInfo& tensor = Info(ref);
  return Matrix(ref, 0, tensor.dims[0], tensor.rows(), 1);
}

const float* Binder::Of(TensorRef ref, int64_t* n_values) {
  if (!ref || !status_.ok()) return nullptr;
  const TensorInfo& tensor = Info(ref);
  if (n_values != nullptr) *n_values = tensor.values();
  const auto [known, is_new] = weights_.vector_of_.try_emplace(ref.index, nullptr);
  if (!is_new) return known->second;
  if (!CanDequantize(tensor.type)) {
    Fail(Unimplemented("tensor ", Printable(tensor.name), " has type ", NameOf(tensor.type),
                       ", which cannot be computed with; convert the model to another type"));
    return nullptr;
  }
  return known->second = Put(ValuesOf(tensor), tensor);
}

BoundConvolution Binder::Of(const Convolution& convolution) {
  BoundConvolution bound;
  bound.spec = &convolution;
  bound.bias = Of(convolution.bias);
  if (!status_.ok()) return bound;
  const std::vector<float> kernel = ValuesOf(Info(convolution.kernel));
  std::vector<float> transposed(kernel.size());
  PutTapsFirst(convolution, kernel.data(), transposed.data());
  bound.kernel = Put(std::move(transposed), Info(convolution.kernel));
  return bound;
}

void Binder::CheckHeads(int64_t k_dim, int64_t v_dim) {
  if (v_dim > device::kMostValueDims) {
    Fail(Unimplemented("the gpu backends have no attention to values of ", v_dim,
                       " dimensions, but of up to ", device::kMostValueDims));
  }
  if (k_dim > device::kMostHeadDims) {
    Fail(Unimplemented("the gpu backends have no attention to keys of ", k_dim,
                       " dimensions, but of up to ", device::kMostHeadDims));
  }
}

void Binder::CheckOp(const Attention& op) {
  CheckHeads(op.k_dim, op.v_dim);
  CheckChoice(op.choice);
  if (!GatesByHead(op)) {
    Fail(
        Unimplemented("the gpu backends need gated queries as wide as the values, and their "
                      "norm by head"));
  }
  const auto is_wide = [](const Norm& norm) { return norm && norm.width > device::kMostHeadNorm; };
  if (op.norms_after_rope && (is_wide(op.q_norm) || is_wide(op.k_norm))) {
    Fail(Unimplemented("the gpu backends norm heads of up to ", device::kMostHeadNorm,
                       " values after their rotation, not of ", op.k_dim));
  }
}

void Binder::CheckOp(const MixtureOfExperts& op) {
  if (op.n_experts > device::kMostExperts || op.n_groups > device::kMostGroups) {
    Fail(Unimplemented("the gpu backends have no mixture of ", op.n_experts, " experts in ",
                       op.n_groups, " groups, but of up to ", device::kMostExperts, " in ",
                       device::kMostGroups));
  }
}

BoundPath Binder::Of(const Path& path) {
  const auto bind = [&]<typename Operation>(const Operation& op) -> BoundOp {
    CheckOp(op);
    JoinInputs(op);
    Bound<Operation> bound;
    bound.spec = &op;
    op.Visit(spec_.d_model, TensorBinder{this}, bound);
    if constexpr (std::is_same_v<Operation, BidirectionalAttention>) {
      if (!op.slopes.empty() && status_.ok()) {
        bound.slopes = Put(op.slopes, Info(op.q.weight));
      }
    }
    if constexpr (std::is_same_v<Operation, SelectiveScan>) {
      if (status_.ok()) bound.channel_rate = Transposed(op.rate, op.n_channels, op.state_dim);
    }
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
  if (block.stream_scale) bound.stream_scale = ValuesOf(Info(block.stream_scale))[0];
  bound.stream_scale *= block.stream_factor;
  bound.stream_norm = Of(block.stream_norm);
  return bound;
}

Status Binder::Bind() {
  constexpr int64_t kMostVocab = int64_t{device::kMostBestSlices} * device::kBestSlice;
  if (spec_.n_vocab > kMostVocab) {
    return Unimplemented("the gpu backends have vocabularies of up to ", kMostVocab,
                         " tokens, the model has ", spec_.n_vocab);
  }
  BoundModel& model = weights_.model_;
  // The output first: if the embedding table is the same tensor, it shares this memory.
  model.output = Of(spec_.output);
  model.embedding = Table(spec_.embedding);
  model.positions = Table(spec_.positions);
  model.token_types = Table(spec_.token_types.table);
  model.input_norm = Of(spec_.input_norm);
  if (spec_.per_layer_input) {
    model.per_layer_table = Table(spec_.per_layer_input->table);
    model.per_layer_proj = Of(spec_.per_layer_input->proj);
    model.per_layer_norm = Of(spec_.per_layer_input->norm);
  }
  if (spec_.hidden_input) {
    const HiddenInput& input = *spec_.hidden_input;
    model.hidden_input = {Of(input.token_norm), Of(input.hidden_norm), Of(input.proj)};
  }
  for (const Layer& layer : spec_.layers) {
    for (const Block& block : layer.blocks) model.blocks.push_back(Of(block));
  }
  model.output_norm = Of(spec_.output_norm);
  return status_;
}

// Uploads the first `bytes` of the staging memory.
Status Binder::Send(std::byte* to, int64_t bytes) {
  stream_->CopyToDevice(to, staging_->data(), bytes);
  return stream_->Synchronize();
}

void Binder::PackBand(const Job& job, const PartBytes& bytes, int64_t band,
                      const BandParts& to) const {
  const TensorInfo& tensor = *job.tensor;
  const int64_t n_bands = device::CeilDiv(job.n_rows, device::kBandOutputs);
  const int64_t first = band % n_bands * device::kBandOutputs;
  const int64_t n = std::min<int64_t>(device::kBandOutputs, job.n_rows - first);
  if (n < device::kBandOutputs) {
    const auto clear = [](std::byte* part, int64_t row_bytes) {
      std::memset(part, 0, static_cast<size_t>(row_bytes * device::kBandOutputs));
    };
    clear(to.levels, bytes.levels);
    clear(to.meta, bytes.meta);
    clear(to.super, bytes.super);
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = band / n_bands * job.rows_per_slice + job.first_row + first + i;
    PackRow(tensor.type, tensor.data.data() + row * tensor.row_bytes(), tensor.dims[0],
            static_cast<int>(i), to.levels, to.meta, to.super);
  }
}

Status Binder::UploadMatrix(const Job& job, ThreadPool* pool) {
  const TensorInfo& tensor = *job.tensor;
  const PartBytes bytes = BytesOfRow(tensor.type, tensor.dims[0]);
  const PartBytes of_band = {bytes.levels * device::kBandOutputs, bytes.meta * device::kBandOutputs,
                             bytes.super * device::kBandOutputs};
  const int64_t n_bands = device::CeilDiv(job.n_rows, device::kBandOutputs) * job.count;
  const int64_t band_bytes = of_band.levels + of_band.meta + of_band.super;
  const int64_t most = std::max<int64_t>(1, staging_->bytes() / band_bytes);
  for (int64_t first = 0; first < n_bands; first += most) {
    const int64_t n = std::min(most, n_bands - first);
    std::byte* const levels = staging_->data();
    std::byte* const meta = levels + n * of_band.levels;
    std::byte* const super = meta + n * of_band.meta;
    pool->ParallelFor(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        PackBand(job, bytes, first + i,
                 {levels + i * of_band.levels, meta + i * of_band.meta, super + i * of_band.super});
      }
    });
    stream_->CopyToDevice(job.levels + first * of_band.levels, levels, n * of_band.levels);
    if (bytes.meta > 0) {
      stream_->CopyToDevice(job.meta + first * of_band.meta, meta, n * of_band.meta);
    }
    if (bytes.super > 0) {
      stream_->CopyToDevice(job.super + first * of_band.super, super, n * of_band.super);
    }
    WEFT_RETURN_IF_ERROR(stream_->Synchronize());
  }
  file_.Release(tensor, tensor.data);
  return OkStatus();
}

Status Binder::Upload(const LoadOptions& options) {
  int64_t widest = 0, total = 0, done = 0;
  for (const Job& job : jobs_) {
    const PartBytes bytes = BytesOfRow(job.tensor->type, job.tensor->dims[0]);
    widest = std::max(widest, (bytes.levels + bytes.meta + bytes.super) * device::kBandOutputs);
    total += job.n_rows * job.count;
  }
  for (const Values& values : values_)
    widest = std::max<int64_t>(widest, std::ssize(values.values) * 4);
  WEFT_ASSIGN_OR_RETURN(stream_, weights_.device_->NewStream());
  const int64_t file_bytes = static_cast<int64_t>(file_.file_bytes());
  WEFT_ASSIGN_OR_RETURN(staging_, weights_.device_->AllocatePinned(
                                      std::max(widest, std::min(kStagingBytes, file_bytes)) + 1));
  ThreadPool pool(options.n_threads);
  for (const Job& job : jobs_) {
    WEFT_RETURN_IF_ERROR(UploadMatrix(job, &pool));
    done += job.n_rows * job.count;
    if (options.progress) {
      options.progress(static_cast<double>(done) / static_cast<double>(total));
    }
  }
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
    if (auto beside = std::dynamic_pointer_cast<const GpuWeights>(options.beside)) {
      weights->matrix_of_ = beside->matrix_of_;
      weights->vector_of_ = beside->vector_of_;
      weights->beside_ = std::move(beside);
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
