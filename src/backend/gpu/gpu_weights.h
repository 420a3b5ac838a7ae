// A model's weights on a device: every matrix uploaded once in the kernels' form, vectors as
// floats, and the spec's operations bound to them.
//
// Immutable once loaded; any thread. All executors of a process share the weights, and with them
// the device.
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

// The spec's types with device pointers instead of tensor references.
struct BoundLinear {
  device::MatrixView matrix;
  const WeightForm* form = nullptr;
  const float* bias = nullptr;   // (member, n_out)
  const float* scale = nullptr;  // per member
  bool by_tiles = false;         // more than one row go through multiply_tiles
  // The levels of a matrix joined with this one begin here; null if none is.
  const uint32_t* end = nullptr;
  explicit operator bool() const { return form != nullptr; }
};

// Whether b was joined to a, so that b's outputs follow a's.
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
  int64_t weight_values = 0;  // per group, or for the whole row
  const float* bias = nullptr;
  explicit operator bool() const { return static_cast<bool>(spec); }
};

struct BoundConvolution {
  const Convolution* spec = nullptr;
  const float* kernel = nullptr;  // (n_taps, n_channels): transposed from the file
  const float* bias = nullptr;
};

// The bound form of an operation's tensors (see operations.h).
struct OnDevice {
  using Vector = const float*;
  using Linear = BoundLinear;
  using Stack = BoundStack;
  using Norm = BoundNorm;
  using Convolution = BoundConvolution;
};

// An operation bound to uploaded tensors, with the names that they have in its spec.
template <typename Operation>
struct Bound : Operation::template Tensors<OnDevice> {
  const Operation* spec = nullptr;
  const float* slopes = nullptr;        // BidirectionalAttention only
  const float* channel_rate = nullptr;  // SelectiveScan: the rates as (state, channel)
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
  std::vector<BoundBlock> blocks;  // all layers' blocks, in order
  BoundNorm output_norm;
  BoundLinear output;
};

class GpuWeights : public Weights {
 public:
  // Errors name the tensor. `number`: the device's number, for Weights::device().
  static StatusOr<std::shared_ptr<const GpuWeights>> Load(std::shared_ptr<device::Device> device,
                                                          int number,
                                                          std::shared_ptr<const ModelFile> file,
                                                          ModelSpec spec,
                                                          const LoadOptions& options);

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return number_; }
  int64_t memory_bytes() const override { return memory_bytes_; }

  const BoundModel& model() const { return model_; }
  // The weights' device. All users of these weights share this object.
  const std::shared_ptr<device::Device>& gpu() const { return device_; }
  // The device of LoadOptions::beside, if those weights are on a GPU; otherwise null.
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
  // Matrices (by tensor, first row and outputs) and vectors in memory_, or in that of `beside_`.
  std::shared_ptr<const GpuWeights> beside_;
  std::map<std::tuple<int, int64_t, int64_t>, BoundLinear> matrix_of_;
  std::map<int, const float*> vector_of_;
  BoundModel model_;
};

}  // namespace weft::gpu

#endif  // WEFT_BACKEND_GPU_GPU_WEIGHTS_H_
