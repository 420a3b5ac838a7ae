#include "backend/mlx/mlx_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "backend/checks.h"
#include "backend/spec_tensors.h"
#include "base/thread_pool.h"
#include "kernels/quants/quants.h"

namespace weft::mlx {

namespace {

// Bytes of a tensor to pack before the file's memory is released.
constexpr int64_t kPieceBytes = 16 << 20;

}  // namespace

// Walks the spec once: creates every matrix's arrays, binds every operation to them, then packs all
// matrices. The first error is kept, and ends the load.
class Binder {
 public:
  Binder(MlxWeights* weights, const LoadOptions& options)
      : weights_(*weights),
        file_(*weights->file_),
        spec_(weights->spec_),
        progress_(options.progress),
        pool_(options.n_threads) {}

  Status Bind();
  Status Pack();

 private:
  friend struct TensorBinder<Binder>;
  // Rows [first_row, first_row + n_out) of each of `count` slices.
  struct Job {
    int tensor;
    int64_t first_row, n_in, n_out, rows_per_slice, count;
    bool widened;  // to F32
    Matrix matrix;
  };

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const TensorInfo& Info(TensorRef ref) const {
    return file_.tensors()[static_cast<size_t>(ref.index)];
  }
  // An array to be filled later.
  mx::array Take(mx::Shape shape, mx::Dtype type);
  Matrix MatrixOf(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out, int64_t count,
                  bool stacked);
  void PackJob(const Job& job, bool is_last);
  void PackOneRow(const Job& job, int64_t row) const;

  BoundLinear Of(const Linear& linear);
  BoundStack Of(const StackedLinear& stack);
  BoundNorm Of(const Norm& norm);
  BoundConvolution Of(const Convolution& convolution);
  std::optional<mx::array> Of(TensorRef ref);
  std::optional<mx::array> Kept(const std::vector<float>& values, mx::Shape shape);

  BoundPath Of(const Path& path);
  BoundBlock Of(const Block& block);

  MlxWeights& weights_;
  const ModelFile& file_;
  const ModelSpec& spec_;
  const std::function<void(double)>& progress_;
  ThreadPool pool_;
  const Path* const last_to_write_ = LastToWriteState(spec_);
  Status status_;
  std::vector<Job> jobs_;
  // The job that packs (tensor, first row, outputs, widened).
  std::map<std::tuple<int, int64_t, int64_t, bool>, size_t> job_of_;
};

mx::array Binder::Take(mx::Shape shape, mx::Dtype type) {
  size_t bytes = mx::size_of(type);
  for (const int n : shape) bytes *= static_cast<size_t>(n);
  weights_.memory_bytes_ += static_cast<int64_t>(bytes);
  return mx::array(mx::allocator::malloc(bytes), std::move(shape), type);
}

Matrix Binder::MatrixOf(TensorRef weight, int64_t first_row, int64_t n_in, int64_t n_out,
                        int64_t count, bool stacked) {
  const TensorInfo& tensor = Info(weight);
  Matrix matrix{.packing = PackingOf(tensor.type), .levels = {}, .scales = {}, .biases = {}};
  if (!status_.ok()) return matrix;
  // MLX gathers only among F32 matrices.
  const bool widened = stacked && matrix.packing.form == Form::kFloat;
  const auto [known, is_new] =
      job_of_.try_emplace({weight.index, first_row, n_out, widened}, jobs_.size());
  if (!is_new) return jobs_[known->second].matrix;
  const auto shape = [&](int64_t n) {
    return stacked ? mx::Shape{Size(count), Size(n_out), Size(n)} : mx::Shape{Size(n_out), Size(n)};
  };
  const int64_t n_groups = matrix.packing.Groups(n_in);
  switch (matrix.packing.form) {
    case Form::kFloat:
      matrix.levels = Take(shape(n_in), widened ? mx::float32 : FloatTypeOf(tensor.type));
      break;
    case Form::kAffine:
      matrix.levels = Take(shape(matrix.packing.Words(n_in)), mx::uint32);
      matrix.scales = Take(shape(n_groups), mx::float32);
      matrix.biases = Take(shape(n_groups), mx::float32);
      break;
    case Form::kMxfp4:
      matrix.levels = Take(shape(matrix.packing.Words(n_in)), mx::uint32);
      matrix.scales = Take(shape(n_groups), mx::uint8);
      break;
  }
  jobs_.push_back({.tensor = weight.index,
                   .first_row = first_row,
                   .n_in = n_in,
                   .n_out = n_out,
                   .rows_per_slice = tensor.dims[1],
                   .count = count,
                   .widened = widened,
                   .matrix = matrix});
  return matrix;
}

BoundLinear Binder::Of(const Linear& linear) {
  BoundLinear bound;
  if (!linear) return bound;
  bound.matrix = MatrixOf(linear.weight, linear.first_row, linear.n_in, linear.n_out, 1, false);
  const std::vector<float> bias = ValuesOf(file_, linear.bias);
  if (!bias.empty()) {
    const auto first = bias.begin() + linear.first_row;
    bound.bias = Kept({first, first + linear.n_out}, {Size(linear.n_out)});
  }
  bound.scale = Of(linear.scale);
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  BoundStack bound;
  if (!stack) return bound;
  bound.matrix =
      MatrixOf(stack.weight, stack.first_row, stack.n_in, stack.n_out, stack.count, true);
  bound.bias = Kept(ValuesOf(file_, stack.bias), {Size(stack.count), Size(stack.n_out)});
  bound.scale = Of(stack.scale);
  return bound;
}

BoundNorm Binder::Of(const Norm& norm) {
  BoundNorm bound;
  bound.spec = norm;
  const auto shape = [&](size_t n) {
    const auto n_values = static_cast<int64_t>(n);
    return n_values == norm.width ? mx::Shape{Size(n_values)}
                                  : mx::Shape{Size(n_values / norm.width), Size(norm.width)};
  };
  std::vector<float> weight = ValuesOf(file_, norm.weight);
  for (float& value : weight) value *= norm.factor;
  if (!weight.empty()) bound.weight = Kept(weight, shape(weight.size()));
  const std::vector<float> bias = ValuesOf(file_, norm.bias);
  if (!bias.empty()) bound.bias = Kept(bias, shape(bias.size()));
  return bound;
}

BoundConvolution Binder::Of(const Convolution& convolution) {
  const std::vector<float> kernel = ValuesOf(file_, convolution.kernel);
  std::vector<float> transposed(kernel.size());
  PutTapsFirst(convolution, kernel.data(), transposed.data());
  return {.kernel = Kept(transposed, {Size(convolution.n_taps), Size(convolution.n_channels)}),
          .bias = Of(convolution.bias)};
}

std::optional<mx::array> Binder::Of(TensorRef ref) {
  const std::vector<float> values = ValuesOf(file_, ref);
  return Kept(values, {Size(std::ssize(values))});
}

std::optional<mx::array> Binder::Kept(const std::vector<float>& values, mx::Shape shape) {
  if (values.empty()) return {};
  mx::array kept = Take(std::move(shape), mx::float32);
  WEFT_CHECK(kept.size() == values.size(), "a vector has the shape that the spec gives it");
  std::ranges::copy(values, kept.data<float>());
  return kept;
}

BoundPath Binder::Of(const Path& path) {
  const auto bind = [&]<typename Operation>(const Operation& op) -> BoundOp {
    if constexpr (!kRefusedName<Operation>.empty()) {
      Fail(Unimplemented("the mlx backend has no ", kRefusedName<Operation>,
                         "; use the cpu backend"));
    }
    if constexpr (requires { op.sparsity; }) {
      if (op.sparsity != 0) {
        Fail(Unimplemented("the mlx backend has no sparse gates; use the cpu backend"));
      }
    }
    if constexpr (requires { op.choice; }) {
      if (op.choice) {
        Fail(Unimplemented("the mlx backend has no attention to chosen keys; use the cpu backend"));
      }
    }
    if constexpr (std::is_same_v<Operation, MixtureOfExperts>) {
      if (op.weights == RouterWeights::kSoftmaxOfNear) {
        Fail(
            Unimplemented("the mlx backend has no experts weighed among near logits; use the cpu "
                          "backend"));
      }
    }
    if constexpr (std::is_same_v<Operation, Attention>) {
      if (op.chunk > 0) {
        Fail(Unimplemented("the mlx backend has no attention by chunks; use the cpu backend"));
      }
    }
    Bound<Operation> bound;
    bound.spec = &op;
    op.Visit(spec_.d_model, TensorBinder{this}, bound);
    return bound;
  };
  return {Of(path.pre), std::visit(bind, path.op), Of(path.post), path.scale};
}

BoundBlock Binder::Of(const Block& block) {
  BoundBlock bound;
  bound.keeps_input = block.keeps_input;
  bound.pre = Of(block.pre);
  for (const Path& path : block.paths) {
    bound.paths.push_back(Of(path));
    bound.last_to_write |= &path == last_to_write_;
  }
  bound.post = Of(block.post);
  bound.residual_scale = block.residual_scale;
  if (block.stream_scale) bound.stream_scale = ValuesOf(file_, block.stream_scale)[0];
  bound.stream_scale *= block.stream_factor;
  bound.stream_norm = Of(block.stream_norm);
  return bound;
}

Status Binder::Bind() {
  WEFT_RETURN_IF_ERROR(CheckWeightTypes(file_, spec_));
  BoundModel& model = weights_.model_;
  model.input_norm = Of(spec_.input_norm);
  if (spec_.per_layer_input) {
    const PerLayerInput& input = *spec_.per_layer_input;
    model.per_layer_input = BoundPerLayerInput{Of(input.proj), Of(input.norm)};
  }
  for (const Layer& layer : spec_.layers) {
    for (const Block& block : layer.blocks) model.blocks.push_back(Of(block));
  }
  model.output_norm = Of(spec_.output_norm);
  model.output = Of(spec_.output);
  WEFT_RETURN_IF_ERROR(status_);
  return CheckHostHolds(weights_.memory_bytes_);
}

void Binder::PackOneRow(const Job& job, int64_t row) const {
  const TensorInfo& tensor = file_.tensors()[static_cast<size_t>(job.tensor)];
  const int64_t in_file = row / job.n_out * job.rows_per_slice + job.first_row + row % job.n_out;
  const std::byte* const from = tensor.data.data() + in_file * tensor.row_bytes();
  // Separate handles, because data() of a const array is const.
  mx::array levels = *job.matrix.levels;
  const Packing& packing = job.matrix.packing;
  if (packing.form == Form::kFloat) {
    const auto row_bytes = static_cast<int64_t>(levels.itemsize()) * job.n_in;
    std::byte* const to = levels.data<std::byte>() + row * row_bytes;
    if (job.widened) {
      Dequantize(tensor.type, from, job.n_in, reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
    return;
  }
  mx::array scales = *job.matrix.scales;
  const int64_t groups_row = row * packing.Groups(job.n_in);
  PackedRow out{
      .words = levels.data<uint32_t>() + row * packing.Words(job.n_in),
      .scales = scales.data<std::byte>() + groups_row * static_cast<int64_t>(scales.itemsize()),
      .biases = nullptr};
  if (job.matrix.biases) {
    mx::array biases = *job.matrix.biases;
    out.biases = biases.data<float>() + groups_row;
  }
  PackRow(tensor.type, from, job.n_in, out);
}

// Packs piece by piece, so that little of the file is in memory in addition to the packed matrix.
void Binder::PackJob(const Job& job, bool is_last) {
  const TensorInfo& tensor = file_.tensors()[static_cast<size_t>(job.tensor)];
  const int64_t n_rows = job.n_out * job.count;
  const int64_t piece =
      std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, tensor.row_bytes()));
  for (int64_t first = 0; first < n_rows; first += piece) {
    pool_.ParallelFor(std::min(piece, n_rows - first), 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) PackOneRow(job, first + i);
    });
  }
  if (is_last) file_.Release(tensor, tensor.data);
}

Status Binder::Pack() {
  std::map<int, int> jobs_left;  // by tensor
  for (const Job& job : jobs_) ++jobs_left[job.tensor];
  size_t done = 0;
  for (const Job& job : jobs_) {
    PackJob(job, --jobs_left[job.tensor] == 0);
    ++done;
    if (progress_) progress_(static_cast<double>(done) / static_cast<double>(jobs_.size()));
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<const MlxWeights>> MlxWeights::Load(std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options) {
  std::shared_ptr<MlxWeights> weights(new MlxWeights(std::move(file), std::move(spec)));
  Binder binder(weights.get(), options);
  WEFT_RETURN_IF_ERROR(binder.Bind());
  WEFT_RETURN_IF_ERROR(binder.Pack());
  weights->wired_.emplace(weights->memory_bytes_);
  return weights;
}

Status MlxWeights::AddTableRow(TensorRef table, int64_t row, float scale, float* out) const {
  const TensorInfo& tensor = file_->tensors()[static_cast<size_t>(table.index)];
  std::vector<std::byte> raw(static_cast<size_t>(tensor.row_bytes()));
  WEFT_RETURN_IF_ERROR(file_->Read(tensor, row * tensor.row_bytes(), raw));
  std::vector<float> values(static_cast<size_t>(tensor.dims[0]));
  Dequantize(tensor.type, raw.data(), tensor.dims[0], values.data());
  for (size_t i = 0; i < values.size(); ++i) out[i] += values[i] * scale;
  return OkStatus();
}

int64_t MlxWeights::TableWidth(TensorRef table) const {
  return file_->tensors()[static_cast<size_t>(table.index)].dims[0];
}

}  // namespace weft::mlx
