#include "backend/spec_tensors.h"

#include <set>

#include "kernels/quants.h"

namespace weft {

namespace {

// Collects indices; an operation that has no overload here does not compile.
class Collector {
 public:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    (AddOne(parts), ...);
  }

  void operator()(const Attention& op) {
    Add(op.q, op.k, op.v, op.out, op.q_norm, op.k_norm, op.v_norm, op.sinks);
  }
  void operator()(const LatentAttention& op) {
    Add(op.q, op.q_a, op.q_b, op.q_a_norm, op.kv_a, op.kv_norm, op.k_b, op.v_b, op.out);
  }
  void operator()(const ShortConvolution& op) { Add(op.in, op.convolution, op.out); }
  void operator()(const GatedDeltaNet& op) {
    Add(op.qkv, op.gate, op.beta, op.decay, op.beta_decay, op.convolution, op.decay_bias,
        op.decay_rate, op.norm, op.out);
  }
  void operator()(const StateSpace& op) {
    Add(op.in, op.convolution, op.step_bias, op.rate, op.skip, op.norm, op.out);
  }
  void operator()(const DenseFfn& op) { Add(op.gate, op.up, op.down, op.output_gate); }
  void operator()(const MixtureOfExperts& op) {
    Add(op.router, op.router_norm, op.selection_bias, op.gate, op.up, op.down);
  }
  void operator()(const PerLayerGate& op) { Add(op.gate, op.proj); }

  const std::set<int>& indices() const { return indices_; }

 private:
  void AddOne(TensorRef ref) {
    if (ref) indices_.insert(ref.index);
  }
  void AddOne(const Linear& linear) { Add(linear.weight, linear.bias); }
  void AddOne(const StackedLinear& stack) { Add(stack.weight, stack.bias, stack.scale); }
  void AddOne(const Convolution& convolution) { Add(convolution.kernel, convolution.bias); }
  void AddOne(const Norm& norm) { Add(norm.weight, norm.bias); }

  std::set<int> indices_;
};

}  // namespace

std::vector<TensorRef> TensorsOf(const ModelSpec& spec) {
  Collector collector;
  collector.Add(spec.embedding, spec.output_norm, spec.output);
  if (spec.per_layer_input) {
    collector.Add(spec.per_layer_input->table, spec.per_layer_input->proj,
                  spec.per_layer_input->norm);
  }
  for (const Layer& layer : spec.layers) {
    for (const Block& block : layer.blocks) {
      collector.Add(block.pre, block.post, block.stream_scale);
      for (const Path& path : block.paths) {
        collector.Add(path.pre, path.post);
        std::visit(collector, path.op);
      }
    }
  }
  std::vector<TensorRef> refs;
  for (const int index : collector.indices()) refs.push_back({index});
  return refs;
}

Status CheckWeightTypes(const ModelFile& file, const ModelSpec& spec) {
  for (const TensorRef ref : TensorsOf(spec)) {
    const TensorInfo& tensor = file.tensors()[ref.index];
    if (CanDequantize(tensor.type)) continue;
    return file.TensorError(tensor.name,
                            StrCat("its type ", NameOf(tensor.type),
                                   " cannot be computed with; convert the model to another type"));
  }
  return OkStatus();
}

}  // namespace weft
