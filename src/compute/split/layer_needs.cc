#include "compute/split/layer_needs.h"

#include <algorithm>

#include "compute/kernels/quants/quants.h"
#include "compute/spec_tensors.h"
#include "compute/split/expert_spec.h"
#include "compute/split/split_spec.h"

namespace weft {

namespace {

// Scratch memory of steps, buffers, and the driver's own memory.
constexpr int64_t kWorkBytes = int64_t{512} << 20;
constexpr int64_t kKvValueBytes = 2;

int64_t BytesOf(const Backend& backend, const TensorInfo& tensor) {
  const bool is_matrix = tensor.n_dims >= 2 && CanDequantize(tensor.type);
  if (!is_matrix) return tensor.values() * static_cast<int64_t>(sizeof(float));
  const HeldAs held = backend.FormOf(tensor.type, tensor.n_dims > 2);
  const int64_t width = tensor.dims[0], whole = held.row_multiple;
  const int64_t n_values = tensor.values() / width * ((width + whole - 1) / whole * whole);
  return static_cast<int64_t>(static_cast<double>(n_values) * held.bits_per_weight / 8);
}

int64_t WeightBytesOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec) {
  int64_t bytes = 0;
  for (const TensorRef ref : TensorsOf(spec)) {
    bytes += BytesOf(backend, file.tensors()[static_cast<size_t>(ref.index)]);
  }
  return bytes;
}

// Counts the state of a layer's operations, regardless of the spec's lists of state.
struct StateCounter : OperationVisitor {
  explicit StateCounter(const ModelSpec& its_spec) : spec(its_spec) {}
  void Kv(const KvUse& use) {
    if (!use.writes) return;
    const KvLayer& layer = spec.kv_layers[static_cast<size_t>(use.layer)];
    const int64_t window = spec.kv_groups[static_cast<size_t>(layer.group)].window;
    const int64_t tokens = window > 0 ? std::min(window, kCountedTokens) : kCountedTokens;
    bytes += layer.n_values(tokens) * kKvValueBytes;
  }
  void Slot(const SlotUse& use) {
    bytes += use.n_heads * use.n_rows * use.n_columns * static_cast<int64_t>(sizeof(float));
  }
  const ModelSpec& spec;
  int64_t bytes = 0;
};

}  // namespace

int64_t StateBytesOf(const ModelSpec& spec) {
  StateCounter counter(spec);
  VisitOperations(spec, counter);
  return counter.bytes;
}

ModelNeeds NeedsOf(const Backend& backend, const ModelFile& file, const ModelSpec& spec) {
  ModelNeeds needs;
  for (const Layer& layer : spec.layers) {
    ModelSpec alone;
    alone.d_model = spec.d_model;
    alone.layers = {layer};
    alone.kv_layers = spec.kv_layers;
    alone.kv_groups = spec.kv_groups;
    needs.layers.push_back(
        {.weight_bytes = WeightBytesOf(backend, file, alone), .state_bytes = StateBytesOf(alone)});
  }
  ModelSpec output;
  output.output = spec.output;
  output.output_norm = spec.output_norm;
  needs.output_bytes = WeightBytesOf(backend, file, output);
  return needs;
}

int64_t WholeBytes(const Backend& backend, const ModelFile& file, const ModelSpec& spec) {
  return WeightBytesOf(backend, file, spec) + StateBytesOf(spec) + kWorkBytes;
}

int LastLayersThatFit(int64_t free_bytes, const ModelNeeds& needs) {
  int64_t left = free_bytes - kWorkBytes - needs.output_bytes;
  int n = 0;
  for (auto layer = needs.layers.rbegin(); layer != needs.layers.rend(); ++layer, ++n) {
    left -= layer->weight_bytes + layer->state_bytes;
    if (left < 0) break;
  }
  return n;
}

int ChooseLastLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                     const ModelSpec& spec) {
  const int n_layers = static_cast<int>(spec.layers.size());
  int n = LastLayersThatFit(free_bytes, NeedsOf(backend, file, spec));
  // A whole model also has its tables on the device.
  if (n == n_layers && WholeBytes(backend, file, spec) > free_bytes) --n;
  while (n > 0 && n < n_layers && !split::Split(spec, n_layers - n).ok()) --n;
  return n;
}

int ChooseExpertLayers(int64_t free_bytes, const Backend& backend, const ModelFile& file,
                       const ModelSpec& spec) {
  const int n_layers = split::LayersWithExperts(spec, static_cast<int>(spec.layers.size()));
  int64_t needed = WholeBytes(backend, file, spec);
  for (int n = 0; n < n_layers; ++n) {
    if (needed <= free_bytes) return split::LayersWithExperts(spec, n);
    ModelSpec alone;
    alone.d_model = spec.d_model;
    alone.layers = {spec.layers[static_cast<size_t>(n)]};
    const ModelSpec experts = split::SplitExperts(alone, 1).host;
    needed -= WeightBytesOf(backend, file, experts);
  }
  return n_layers;
}

}  // namespace weft
