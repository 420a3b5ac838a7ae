// Walks a spec once and binds each operation to a backend's own form of its tensors: memory for
// every matrix first, then all matrices packed in one pass over the file.
//
// A backend's binder derives from SpecBinder<Itself, Form, Bound>, and defines
//   Of(const Linear&), Of(const StackedLinear&)    from MatrixOf, with their biases and scales
//   Table(TensorRef)
//   Put(values, tensor, n_columns)                 a Vector; n_columns 0: of one dimension
//   Reserve(rows)                                  memory for a Matrix; fails with Fail
//   Pack(job, is_last)                             is_last: no later job reads the tensor
//   Check(operation or convolution)                fails for those that the backend lacks
// It may hide any other function with its own. Owner thread only.
#ifndef WEFT_COMPUTE_SPEC_BINDER_H_
#define WEFT_COMPUTE_SPEC_BINDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "compute/backend.h"
#include "compute/bound_spec.h"
#include "compute/checks.h"
#include "compute/spec_tensors.h"
#include "model/formats/model_file.h"

namespace weft {

// Rows [first_row, first_row + n_out) of each of `count` slices of a tensor.
struct MatrixRows {
  int index;  // the tensor's
  const TensorInfo* tensor;
  int64_t first_row, n_in, n_out, count;
  bool stacked;

  MatrixKey key() const { return {index, first_row, n_out, stacked}; }
  // The stored bytes of row `i` of n_out * count.
  const std::byte* Row(int64_t i) const {
    const int64_t row = i / n_out * (tensor->rows() / count) + first_row + i % n_out;
    return tensor->data.data() + row * tensor->row_bytes();
  }
};

template <typename Self, typename Form, template <typename> typename Bound>
class SpecBinder {
 public:
  using Spec = BoundSpec<Form, Bound>;
  using Tensors = BoundTensors<Form>;
  struct Job : MatrixRows {
    typename Form::Matrix matrix;
  };

  typename Form::Vector Of(TensorRef ref) {
    if (!ref || !status_.ok()) return {};
    if (const auto* known = Find(&Tensors::vectors, ref.index)) return *known;
    return tensors_.vectors[ref.index] = self().Put(ValuesOf(Info(ref)), Info(ref), 0);
  }
  typename Form::Norm Of(const Norm& norm) {
    typename Form::Norm bound;
    bound.spec = norm;
    bound.weight = Of(norm.weight);
    bound.bias = Of(norm.bias);
    const TensorRef vector = norm.weight ? norm.weight : norm.bias;
    if (vector) bound.weight_values = Info(vector).values();
    return bound;
  }
  typename Form::Convolution Of(const Convolution& convolution) {
    self().Check(convolution);
    if (!status_.ok()) return {};
    const TensorInfo& tensor = Info(convolution.kernel);
    const std::vector<float> kernel = ValuesOf(tensor);
    std::vector<float> transposed(kernel.size());
    PutTapsFirst(convolution, kernel.data(), transposed.data());
    return {&convolution, self().Put(std::move(transposed), tensor, convolution.n_channels),
            Of(convolution.bias)};
  }
  void BindOperation(const auto& op, auto* bound) {
    op.Visit(spec_.d_model, TensorVisitor(&self()), *bound);
  }

 protected:
  // `tensors` gets all that is bound; those of `beside`, which may be null, are shared.
  SpecBinder(const ModelFile& file, const ModelSpec& spec, Tensors* tensors, const Tensors* beside)
      : file_(file), spec_(spec), tensors_(*tensors), beside_(beside) {}

  Status BindSpec(typename Spec::Model* model);
  // Packs all matrices, and releases the file's memory of each tensor after its last one.
  Status PackAll(const LoadOptions& options);

  // Keeps the first error, which ends the load.
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const TensorInfo& Info(TensorRef ref) const {
    return file_.tensors()[static_cast<size_t>(ref.index)];
  }
  // What is bound here or in the weights beside; or null.
  template <typename Map>
  const typename Map::mapped_type* Find(Map Tensors::*map,
                                        const typename Map::key_type& key) const {
    if (const auto it = (tensors_.*map).find(key); it != (tensors_.*map).end()) return &it->second;
    if (beside_ == nullptr) return nullptr;
    const auto it = (beside_->*map).find(key);
    return it != (beside_->*map).end() ? &it->second : nullptr;
  }

  MatrixRows RowsOf(const Linear& linear) const {
    return {linear.weight.index,
            &Info(linear.weight),
            linear.first_row,
            linear.n_in,
            linear.n_out,
            1,
            false};
  }
  MatrixRows RowsOf(const StackedLinear& stack) const {
    return {stack.weight.index,
            &Info(stack.weight),
            stack.first_row,
            stack.n_in,
            stack.n_out,
            stack.count,
            true};
  }
  // The same rows share one matrix.
  typename Form::Matrix MatrixOf(const MatrixRows& rows) {
    if (!status_.ok()) return {};
    if (const auto* known = Find(&Tensors::matrices, rows.key())) return *known;
    return AddJob(rows, self().Reserve(rows));
  }
  typename Form::Matrix AddJob(const MatrixRows& rows, typename Form::Matrix matrix) {
    if (!status_.ok()) return {};
    jobs_.push_back({rows, matrix});
    tensors_.matrices.emplace(rows.key(), matrix);
    return matrix;
  }

  const ModelFile& file_;
  const ModelSpec& spec_;
  Tensors& tensors_;
  Status status_;
  std::vector<Job> jobs_;

 private:
  // Binds each tensor of an operation.
  struct TensorVisitor : OperationVisitor {
    explicit TensorVisitor(Self* its_binder) : binder(its_binder) {}
    void Tensor(const auto& part, const Shape&, auto& bound) { bound = binder->Of(part); }
    void Table(const auto& part, int64_t, int64_t, auto& bound) { bound = binder->Of(part); }
    Self* const binder;
  };

  Self& self() { return static_cast<Self&>(*this); }
  typename Spec::Path BindPath(const Path& path);
  typename Spec::Block BindBlock(const Block& block);

  const Tensors* const beside_;
  const Path* const last_to_write_ = LastToWriteState(spec_);
};

template <typename Self, typename Form, template <typename> typename Bound>
typename BoundSpec<Form, Bound>::Path SpecBinder<Self, Form, Bound>::BindPath(const Path& path) {
  const auto bind = [&]<typename Operation>(const Operation& op) -> decltype(Spec::Path::op) {
    self().Check(op);
    Bound<Operation> bound;
    bound.spec = &op;
    bound.last_to_write = &path == last_to_write_;
    self().BindOperation(op, &bound);
    return bound;
  };
  return {self().Of(path.pre), std::visit(bind, path.op), self().Of(path.post), path.scale};
}

template <typename Self, typename Form, template <typename> typename Bound>
typename BoundSpec<Form, Bound>::Block SpecBinder<Self, Form, Bound>::BindBlock(
    const Block& block) {
  typename Spec::Block bound;
  bound.keeps_input = block.keeps_input;
  bound.pre = self().Of(block.pre);
  for (const Path& path : block.paths) bound.paths.push_back(BindPath(path));
  bound.post = self().Of(block.post);
  bound.residual_scale = block.residual_scale;
  if (block.stream_scale) bound.stream_scale = ValuesOf(file_, block.stream_scale)[0];
  bound.stream_scale *= block.stream_factor;
  bound.stream_norm = self().Of(block.stream_norm);
  bound.row_part = block.row_part;
  bound.replaces_stream = block.replaces_stream;
  return bound;
}

template <typename Self, typename Form, template <typename> typename Bound>
Status SpecBinder<Self, Form, Bound>::BindSpec(typename Spec::Model* model) {
  WEFT_RETURN_IF_ERROR(CheckWeightTypes(file_, spec_));
  if (spec_.embedding) model->embedding = self().Table(spec_.embedding);
  if (spec_.row_input) {
    model->row_input.emplace(typename Spec::RowInput{self().Of(spec_.row_input->norm),
                                                     self().Of(spec_.row_input->proj)});
  }
  if (spec_.positions) model->positions = self().Table(spec_.positions);
  model->input_norm = self().Of(spec_.input_norm);
  if (spec_.per_layer_input) {
    const PerLayerInput& input = *spec_.per_layer_input;
    model->per_layer_input.emplace(typename Spec::PerLayerInput{
        self().Table(input.table), self().Of(input.proj), self().Of(input.norm)});
  }
  if (spec_.hidden_input) {
    const HiddenInput& input = *spec_.hidden_input;
    model->hidden_input.emplace(typename Spec::HiddenInput{
        self().Of(input.token_norm), self().Of(input.hidden_norm), self().Of(input.proj)});
  }
  for (const Layer& layer : spec_.layers) {
    for (const Block& block : layer.blocks) model->blocks.push_back(BindBlock(block));
  }
  model->output_norm = self().Of(spec_.output_norm);
  model->output = self().Of(spec_.output);
  return status_;
}

template <typename Self, typename Form, template <typename> typename Bound>
Status SpecBinder<Self, Form, Bound>::PackAll(const LoadOptions& options) {
  std::map<int, int> jobs_left;  // by tensor
  double total_bytes = 0, done_bytes = 0;
  const auto bytes_of = [](const Job& job) {
    return static_cast<double>(job.n_out * job.count * job.tensor->row_bytes());
  };
  for (const Job& job : jobs_) {
    ++jobs_left[job.index];
    total_bytes += bytes_of(job);
  }
  for (const Job& job : jobs_) {
    const bool is_last = --jobs_left[job.index] == 0;
    WEFT_RETURN_IF_ERROR(self().Pack(job, is_last));
    if (is_last) file_.Release(*job.tensor, job.tensor->data);
    done_bytes += bytes_of(job);
    if (options.progress) options.progress(done_bytes / total_bytes);
  }
  return OkStatus();
}

}  // namespace weft

#endif  // WEFT_COMPUTE_SPEC_BINDER_H_
