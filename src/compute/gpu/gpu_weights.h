// A model's weights on a device: every matrix uploaded once in the kernels' form, vectors as
// floats, and the spec's operations bound to them.
//
// Immutable once loaded; any thread. All executors of a process share the weights, and with them
// the device.
#ifndef WEFT_COMPUTE_GPU_GPU_WEIGHTS_H_
#define WEFT_COMPUTE_GPU_GPU_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "compute/backend.h"
#include "compute/bound_spec.h"
#include "compute/device/runtime.h"
#include "compute/gpu/weight_forms.h"
#include "compute/kernels_gpu/kernels.h"

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

// Addresses of the parts of rows (weight_forms.h); null if the form lacks the part.
struct MatrixParts {
  std::byte *levels = nullptr, *meta = nullptr, *super = nullptr;
  // The parts of the rows that follow the first n.
  MatrixParts After(int64_t n, const PartBytes& of_row) const {
    return {levels + n * of_row.levels, meta == nullptr ? nullptr : meta + n * of_row.meta,
            super == nullptr ? nullptr : super + n * of_row.super};
  }
};

using BoundNorm = BoundNormOf<const float*>;
using BoundConvolution = BoundConvolutionOf<const float*>;

// The bound form of a spec (see bound_spec.h).
struct OnDevice {
  using Vector = const float*;
  using Linear = BoundLinear;
  using Stack = BoundStack;
  using Norm = BoundNorm;
  using Convolution = BoundConvolution;
  using Table = BoundLinear;
  struct Matrix {
    BoundLinear linear;
    MatrixParts parts;
  };
};

template <typename Operation>
struct Bound : BoundOperation<OnDevice, Operation> {
  const float* slopes = nullptr;        // BidirectionalAttention only
  const float* channel_rate = nullptr;  // SelectiveScan: the rates as (state, channel)
};

using BoundPath = BoundSpec<OnDevice, Bound>::Path;
using BoundBlock = BoundSpec<OnDevice, Bound>::Block;
using BoundHiddenInput = BoundSpec<OnDevice, Bound>::HiddenInput;
struct BoundModel : BoundSpec<OnDevice, Bound>::Model {
  BoundLinear token_types;
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
  BoundTensors<OnDevice> tensors_;            // in memory_
  std::shared_ptr<const GpuWeights> beside_;  // holds some of our tensors; may be null
  BoundModel model_;
};

}  // namespace weft::gpu

#endif  // WEFT_COMPUTE_GPU_GPU_WEIGHTS_H_
