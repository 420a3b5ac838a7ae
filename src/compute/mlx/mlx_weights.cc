#include "compute/mlx/mlx_weights.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/thread_pool.h"
#include "compute/checks.h"
#include "compute/kernels/quants/quants.h"
#include "compute/spec_binder.h"

namespace weft::mlx {

class Binder : public SpecBinder<Binder, InArrays, Bound> {
 public:
  Binder(MlxWeights* weights, const LoadOptions& options)
      : SpecBinder(*weights->file_, weights->spec_, &weights->tensors_, nullptr),
        weights_(*weights),
        options_(options),
        pool_(options.n_threads) {}

  Status Bind() {
    WEFT_RETURN_IF_ERROR(BindSpec(&weights_.model_));
    return CheckHostHolds(weights_.memory_bytes_, file_);
  }
  Status PackThem() { return PackAll(options_); }

  // See spec_binder.h.
  using SpecBinder::Of;
  BoundLinear Of(const Linear& linear);
  BoundStack Of(const StackedLinear& stack);
  BoundNorm Of(const Norm& norm);
  TensorRef Table(TensorRef ref) { return ref; }
  std::optional<mx::array> Put(const std::vector<float>& values, const TensorInfo& tensor,
                               int64_t n_columns);
  Matrix Reserve(const MatrixRows& rows);
  Status Pack(const Job& job, bool is_last);
  void Check(const Convolution& /*convolution*/) {}
  template <typename Operation>
  void Check(const Operation& op);

 private:
  // MLX gathers only among F32 matrices.
  static bool IsWidened(const MatrixRows& rows, const Packing& packing) {
    return rows.stacked && packing.form == Form::kFloat;
  }
  // An array to be filled later.
  mx::array Take(mx::Shape shape, mx::Dtype type);
  void PackOneRow(const Job& job, int64_t row) const;
  void Refuse(std::string_view what) {
    Fail(Unimplemented("the mlx backend has no ", what, "; use the cpu backend"));
  }

  MlxWeights& weights_;
  const LoadOptions& options_;
  ThreadPool pool_;
};

mx::array Binder::Take(mx::Shape shape, mx::Dtype type) {
  size_t bytes = mx::size_of(type);
  for (const int n : shape) bytes *= static_cast<size_t>(n);
  weights_.memory_bytes_ += static_cast<int64_t>(bytes);
  return mx::array(mx::allocator::malloc(bytes), std::move(shape), type);
}

Matrix Binder::Reserve(const MatrixRows& rows) {
  const DType type = rows.tensor->type;
  Matrix matrix{.packing = PackingOf(type), .levels = {}, .scales = {}, .biases = {}};
  const auto shape = [&](int64_t n) {
    return rows.stacked ? mx::Shape{Size(rows.count), Size(rows.n_out), Size(n)}
                        : mx::Shape{Size(rows.n_out), Size(n)};
  };
  const int64_t n_groups = matrix.packing.Groups(rows.n_in);
  switch (matrix.packing.form) {
    case Form::kFloat:
      matrix.levels =
          Take(shape(rows.n_in), IsWidened(rows, matrix.packing) ? mx::float32 : FloatTypeOf(type));
      break;
    case Form::kAffine:
      matrix.levels = Take(shape(matrix.packing.Words(rows.n_in)), mx::uint32);
      matrix.scales = Take(shape(n_groups), mx::float32);
      matrix.biases = Take(shape(n_groups), mx::float32);
      break;
    case Form::kMxfp4:
      matrix.levels = Take(shape(matrix.packing.Words(rows.n_in)), mx::uint32);
      matrix.scales = Take(shape(n_groups), mx::uint8);
      break;
  }
  return matrix;
}

BoundLinear Binder::Of(const Linear& linear) {
  BoundLinear bound;
  if (!linear) return bound;
  bound.matrix = MatrixOf(RowsOf(linear));
  if (linear.bias) {
    const std::vector<float> bias = ValuesOf(file_, linear.bias);
    const auto first = bias.begin() + linear.first_row;
    bound.bias = Put({first, first + linear.n_out}, Info(linear.bias), 0);
  }
  bound.scale = Of(linear.scale);
  return bound;
}

BoundStack Binder::Of(const StackedLinear& stack) {
  BoundStack bound;
  if (!stack) return bound;
  bound.matrix = MatrixOf(RowsOf(stack));
  if (stack.bias) bound.bias = Put(ValuesOf(file_, stack.bias), Info(stack.bias), stack.n_out);
  bound.scale = Of(stack.scale);
  return bound;
}

BoundNorm Binder::Of(const Norm& norm) {
  BoundNorm bound;
  bound.spec = norm;
  const auto put = [&](TensorRef ref, float factor) -> std::optional<mx::array> {
    std::vector<float> values = ValuesOf(file_, ref);
    if (values.empty()) return {};
    for (float& value : values) value *= factor;
    const bool has_groups = std::ssize(values) != norm.width;
    return Put(values, Info(ref), has_groups ? norm.width : 0);
  };
  bound.weight = put(norm.weight, norm.factor);
  bound.bias = put(norm.bias, 1);
  return bound;
}

std::optional<mx::array> Binder::Put(const std::vector<float>& values, const TensorInfo& tensor,
                                     int64_t n_columns) {
  const int64_t n = std::ssize(values);
  mx::Shape shape{Size(n)};
  if (n_columns > 0) shape = {Size(n / n_columns), Size(n_columns)};
  mx::array kept = Take(std::move(shape), mx::float32);
  if (kept.size() != values.size()) {
    Fail(file_.TensorError(tensor.name, "its size is no multiple of its columns"));
    return {};
  }
  std::ranges::copy(values, kept.data<float>());
  return kept;
}

template <typename Operation>
void Binder::Check(const Operation& op) {
  if (!kRefusedName<Operation>.empty()) Refuse(kRefusedName<Operation>);
  if constexpr (requires { op.sparsity; }) {
    if (op.sparsity != 0) Refuse("sparse gates");
  }
  if constexpr (requires { op.choice; }) {
    if (op.choice) Refuse("attention to chosen keys");
  }
  if constexpr (std::is_same_v<Operation, MixtureOfExperts>) {
    if (op.weights == RouterWeights::kSoftmaxOfNear) Refuse("experts weighed among near logits");
    if (op.weights == RouterWeights::kRootSoftplus) Refuse("experts weighed by roots of softplus");
    if (op.by_token) Refuse("experts chosen by a token's id");
  }
  if constexpr (std::is_same_v<Operation, Attention>) {
    if (op.chunk > 0) Refuse("attention by chunks");
  }
}

void Binder::PackOneRow(const Job& job, int64_t row) const {
  const DType type = job.tensor->type;
  const std::byte* const from = job.Row(row);
  // Separate handles, because data() of a const array is const.
  mx::array levels = *job.matrix.levels;
  const Packing& packing = job.matrix.packing;
  if (packing.form == Form::kFloat) {
    const auto row_bytes = static_cast<int64_t>(levels.itemsize()) * job.n_in;
    std::byte* const to = levels.data<std::byte>() + row * row_bytes;
    if (IsWidened(job, packing)) {
      Dequantize(type, from, job.n_in, reinterpret_cast<float*>(to));
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
  PackRow(type, from, job.n_in, out);
}

Status Binder::Pack(const Job& job, bool /*is_last*/) {
  pool_.ParallelFor(job.n_out * job.count, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) PackOneRow(job, row);
  });
  return OkStatus();
}

StatusOr<std::shared_ptr<const MlxWeights>> MlxWeights::Load(std::shared_ptr<const ModelFile> file,
                                                             ModelSpec spec,
                                                             const LoadOptions& options) {
  std::shared_ptr<MlxWeights> weights(new MlxWeights(std::move(file), std::move(spec)));
  Binder binder(weights.get(), options);
  WEFT_RETURN_IF_ERROR(binder.Bind());
  WEFT_RETURN_IF_ERROR(binder.PackThem());
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
