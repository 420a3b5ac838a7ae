// A model's weights on a device: every matrix uploaded once in the kernels' form, vectors as
// floats, and the spec's operations bound to them.
//
// Immutable once loaded; any thread. Executors of a process share it, and with it the device.
#ifndef WEFT_BACKEND_GPU_GPU_WEIGHTS_H_
#define WEFT_BACKEND_GPU_GPU_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "backend/bound_spec.h"
#include "backend/gpu/weight_forms.h"
#include "device/runtime.h"
#include "kernels_gpu/kernels.h"

namespace weft::gpu {

// The spec's types with device pointers in place of tensor references.
struct BoundLinear {
  device::MatrixView matrix;
  const WeightForm* form = nullptr;
  const float* bias = nullptr;   // (member, n_out)
  const float* scale = nullptr;  // per member
  bool by_tiles = false;         // whether more than a row go through multiply_tiles
  // Where the levels of another matrix begin if that is this one's further outputs.
  const uint32_t* end = nullptr;
  explicit operator bool() const { return form != nullptr; }
};

// Whether both are one matrix, with b's outputs behind a's.
inline bool Continues(const BoundLinear& a, const BoundLinear& b) {
  const bool biases = a.bias == nullptr ? b.bias == nullptr : a.bias + a.matrix.n_out == b.bias;
  return a.end != nullptr && a.end == b.matrix.levels && a.form == b.form &&
         a.matrix.n_in == b.matrix.n_in && biases && a.scale == nullptr && b.scale == nullptr;
}

struct BoundStack : BoundLinear {
  int64_t count = 0;
};

struct BoundNorm {
  Norm spec;
  const float* weight = nullptr;
  int64_t weight_values = 0;  // one group's, or the whole row's
  const float* bias = nullptr;
  explicit operator bool() const { return static_cast<bool>(spec); }
};

struct BoundConvolution {
  const Convolution* spec = nullptr;
  const float* kernel = nullptr;  // (n_taps, n_channels): the file's, transposed
  const float* bias = nullptr;
};

// The form that an operation's tensors have here.
struct OnDevice {
  using Vector = const float*;
  using Linear = BoundLinear;
  using Stack = BoundStack;
  using Norm = BoundNorm;
  using Convolution = BoundConvolution;
};

// An operation over uploaded tensors, by the names that they have in its spec.
template <typename Operation>
struct Bound : Operation::template Tensors<OnDevice> {
  const Operation* spec = nullptr;
  const float* slopes = nullptr;        // of BidirectionalAttention
  const float* channel_rate = nullptr;  // of SelectiveScan: the rates, (state, channel)
};

using BoundOp = BoundOpOf<Bound>;

using BoundPath = BoundPathOf<BoundNorm, BoundOp>;
using BoundBlock = BoundBlockOf<BoundNorm, BoundPath>;

struct BoundHiddenInput {
  BoundNorm token_norm, hidden_norm;
  BoundLinear proj;
};

struct BoundModel {
  BoundLinear embedding, positions, token_types;
  BoundNorm input_norm;
  BoundLinear per_layer_table, per_layer_proj;
  BoundNorm per_layer_norm;
  std::optional<BoundHiddenInput> hidden_input;
  std::vector<BoundBlock> blocks;  // of all layers, in order
  BoundNorm output_norm;
  BoundLinear output;
};

class GpuWeights : public Weights {
 public:
  // Errors name the tensor. `number` is the device's, for Weights::device().
  static StatusOr<std::shared_ptr<const GpuWeights>> Load(std::shared_ptr<device::Device> device,
                                                          int number,
                                                          std::shared_ptr<const ModelFile> file,
                                                          ModelSpec spec,
                                                          const LoadOptions& options);

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return number_; }
  int64_t memory_bytes() const override { return memory_bytes_; }

  const BoundModel& model() const { return model_; }
  // Where the weights lie. One such object for these weights; what is made over it is its own.
  const std::shared_ptr<device::Device>& gpu() const { return device_; }
  // Of weights that others are to be loaded beside (LoadOptions); null: there are none.
  static std::shared_ptr<device::Device> DeviceOf(const Weights* beside);

 private:
  friend class Binder;
  GpuWeights(std::shared_ptr<device::Device> device, int number, ModelSpec spec)
      : device_(std::move(device)), number_(number), spec_(std::move(spec)) {}

  const std::shared_ptr<device::Device> device_;
  const int number_;
  const ModelSpec spec_;
  int64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<device::Memory>> memory_;
  // What lies there, or where `beside_` has it: matrices by tensor, first row and outputs.
  std::shared_ptr<const GpuWeights> beside_;
  std::map<std::tuple<int, int64_t, int64_t>, BoundLinear> matrix_of_;
  std::map<int, const float*> vector_of_;
  BoundModel model_;
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_GPU_WEIGHTS_H_
