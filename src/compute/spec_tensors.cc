#include "compute/spec_tensors.h"

#include <cstring>
#include <set>

#include "base/strings.h"
#include "compute/kernels/quants/quants.h"

namespace weft {

namespace {

class Collector : public OperationVisitor {
 public:
  void Tensor(const auto& part, const Shape&) { Add(part); }
  void Table(const auto& part, int64_t, int64_t) { Add(part); }

  template <typename... Parts>
  void Add(const Parts&... parts) {
    (AddOne(parts), ...);
  }

  const std::set<int>& indices() const { return indices_; }

 private:
  void AddOne(TensorRef ref) {
    if (ref) indices_.insert(ref.index);
  }
  void AddOne(const Linear& linear) { Add(linear.weight, linear.bias, linear.scale); }
  void AddOne(const StackedLinear& stack) { Add(stack.weight, stack.bias, stack.scale); }
  void AddOne(const Convolution& convolution) { Add(convolution.kernel, convolution.bias); }
  void AddOne(const Norm& norm) { Add(norm.weight, norm.bias); }

  std::set<int> indices_;
};

// Tables, which may hold numbers.
struct TableFinder : OperationVisitor {
  void Table(TensorRef ref, int64_t, int64_t) { indices.insert(ref.index); }
  std::set<int> indices;
};

}  // namespace

std::vector<TensorRef> TensorsOf(const ModelSpec& spec) {
  Collector collector;
  collector.Add(spec.embedding, spec.positions, spec.token_types.table, spec.input_norm,
                spec.output_norm, spec.output);
  if (spec.text_vector) {
    for (const HeadLayer& layer : spec.text_vector->head) collector.Add(layer.linear, layer.norm);
  }
  if (spec.hidden_input) {
    collector.Add(spec.hidden_input->token_norm, spec.hidden_input->hidden_norm,
                  spec.hidden_input->proj, spec.hidden_input->back);
  }
  if (spec.row_input) collector.Add(spec.row_input->norm, spec.row_input->proj);
  if (spec.per_layer_input) {
    collector.Add(spec.per_layer_input->table, spec.per_layer_input->proj,
                  spec.per_layer_input->norm);
  }
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      collector.Add(block.pre, block.post, block.stream_scale, block.stream_norm);
      for (const Path& path : block.paths) collector.Add(path.pre, path.post);
    }
  }
  VisitOperations(spec, collector);
  std::vector<TensorRef> refs;
  for (const int index : collector.indices()) refs.push_back({index});
  return refs;
}

Status CheckWeightTypes(const ModelFile& file, const ModelSpec& spec) {
  TableFinder tables;
  VisitOperations(spec, tables);
  for (const TensorRef ref : TensorsOf(spec)) {
    const TensorInfo& tensor = file.tensors()[ref.index];
    if (CanDequantize(tensor.type)) continue;
    if (tensor.type == DType::kI32 && tables.indices.contains(ref.index)) continue;
    return Unimplemented("tensor ", Printable(tensor.name), " has type ", NameOf(tensor.type),
                         ", which cannot be computed with; convert the model to another type");
  }
  return OkStatus();
}

Status CheckAdapterTypes(const Adapter& adapter) {
  for (const TensorInfo& tensor : adapter.file->tensors()) {
    if (CanDequantize(tensor.type)) continue;
    return Unimplemented(Message(adapter.file->TensorError(
        tensor.name, StrCat("it has type ", NameOf(tensor.type),
                            ", which cannot be computed with; convert the adapter to F16"))));
  }
  return OkStatus();
}

void DecodeRow(const TensorInfo& tensor, int64_t row, float* out) {
  const std::byte* const bytes = tensor.data.data() + row * tensor.row_bytes();
  if (tensor.type != DType::kI32) return Dequantize(tensor.type, bytes, tensor.dims[0], out);
  for (int64_t i = 0; i < tensor.dims[0]; ++i) {
    int32_t number = 0;
    std::memcpy(&number, bytes + i * static_cast<int64_t>(sizeof(number)), sizeof(number));
    out[i] = static_cast<float>(number);
  }
}

void Decode(const TensorInfo& tensor, float* out) {
  for (int64_t row = 0; row < tensor.rows(); ++row)
    DecodeRow(tensor, row, out + row * tensor.dims[0]);
}

std::vector<float> ValuesOf(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  Decode(tensor, values.data());
  return values;
}

std::vector<float> ValuesOf(const ModelFile& file, TensorRef ref) {
  if (!ref) return {};
  return ValuesOf(file.tensors()[static_cast<size_t>(ref.index)]);
}

StatusOr<std::vector<float>> ReadTableRows(const ModelFile& file, TensorRef table,
                                           std::span<const TokenId> numbers) {
  const TensorInfo& tensor = file.tensors()[static_cast<size_t>(table.index)];
  const auto width = static_cast<size_t>(tensor.dims[0]);
  std::vector<std::byte> raw(static_cast<size_t>(tensor.row_bytes()));
  std::vector<float> values(numbers.size() * width);
  for (size_t i = 0; i < numbers.size(); ++i) {
    WEFT_RETURN_IF_ERROR(file.Read(tensor, numbers[i] * tensor.row_bytes(), raw));
    Dequantize(tensor.type, raw.data(), tensor.dims[0], values.data() + i * width);
  }
  return values;
}

void PutTapsFirst(const Convolution& convolution, const float* kernel, float* out) {
  const int64_t n_taps = convolution.n_taps, n = convolution.n_channels;
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t j = 0; j < n_taps; ++j) out[j * n + c] = kernel[c * n_taps + j];
  }
}

}  // namespace weft
