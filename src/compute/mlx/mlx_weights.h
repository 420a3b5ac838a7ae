// A model's weights as MLX arrays, and the spec's operations bound to them.
//
// Immutable once loaded; any thread. The arrays hold host memory and are never computed, so they
// belong to no thread's stream. Keeps the file open, because rows of embedding tables are read from
// it directly.
#ifndef WEFT_COMPUTE_MLX_MLX_WEIGHTS_H_
#define WEFT_COMPUTE_MLX_MLX_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "compute/backend.h"
#include "compute/bound_spec.h"
#include "compute/mlx/device_memory.h"
#include "compute/mlx/mlx_include.h"
#include "compute/mlx/packing.h"

namespace weft::mlx {

// A matrix [n_out, n_in], or a stack of them [count, n_out, n_in].
struct Matrix {
  Packing packing;
  std::optional<mx::array> levels;  // the values if they are floats
  std::optional<mx::array> scales, biases;
  explicit operator bool() const { return levels.has_value(); }
};

struct BoundLinear {
  Matrix matrix;
  std::optional<mx::array> bias;   // [n_out]
  std::optional<mx::array> scale;  // [1]
  explicit operator bool() const { return static_cast<bool>(matrix); }
};

struct BoundStack {
  Matrix matrix;
  std::optional<mx::array> bias;   // [count, n_out]
  std::optional<mx::array> scale;  // [count]
  explicit operator bool() const { return static_cast<bool>(matrix); }
};

// The weight is multiplied by the spec's factor. [width] or [groups, width].
using BoundNorm = BoundNormOf<std::optional<mx::array>>;
using BoundConvolution = BoundConvolutionOf<std::optional<mx::array>>;

// The bound form of a spec (see bound_spec.h).
struct InArrays {
  using Vector = std::optional<mx::array>;
  using Linear = BoundLinear;
  using Stack = BoundStack;
  using Norm = BoundNorm;
  using Convolution = BoundConvolution;
  using Table = TensorRef;
  using Matrix = mlx::Matrix;
};

template <typename Operation>
using Bound = BoundOperation<InArrays, Operation>;

// For operations that this backend lacks: their name in the error message.
template <typename Operation>
inline constexpr std::string_view kRefusedName = "";
template <>
inline constexpr std::string_view kRefusedName<UnfoldedLatentAttention> =
    "latent attention with unfolded keys";
template <>
inline constexpr std::string_view kRefusedName<ChannelDeltaNet> =
    "delta nets that decay by channel";
template <>
inline constexpr std::string_view kRefusedName<SelectiveScan> = "state spaces of Mamba 1";
template <>
inline constexpr std::string_view kRefusedName<EnterSides> = "side streams";
template <>
inline constexpr std::string_view kRefusedName<LeaveSides> = "side streams";
template <>
inline constexpr std::string_view kRefusedName<PredictSides> = "side streams";
template <>
inline constexpr std::string_view kRefusedName<CorrectSides> = "side streams";
template <>
inline constexpr std::string_view kRefusedName<GatherSides> = "hyper-connections";
template <>
inline constexpr std::string_view kRefusedName<SpreadSides> = "hyper-connections";
template <>
inline constexpr std::string_view kRefusedName<CompressedAttention> =
    "attention to compressed entries";
template <>
inline constexpr std::string_view kRefusedName<LowRank> = "residuals of low rank";
template <>
inline constexpr std::string_view kRefusedName<TimeMix> = "time mix of RWKV 7";
template <>
inline constexpr std::string_view kRefusedName<ChannelMix> = "channel mix of RWKV 7";

using BoundPath = BoundSpec<InArrays, Bound>::Path;
using BoundBlock = BoundSpec<InArrays, Bound>::Block;
using BoundPerLayerInput = BoundSpec<InArrays, Bound>::PerLayerInput;
using BoundModel = BoundSpec<InArrays, Bound>::Model;

class MlxWeights : public Weights {
 public:
  // Errors name the tensor. May throw MLX's exceptions.
  static StatusOr<std::shared_ptr<const MlxWeights>> Load(std::shared_ptr<const ModelFile> file,
                                                          ModelSpec spec,
                                                          const LoadOptions& options);

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return 0; }
  int64_t memory_bytes() const override { return memory_bytes_; }

  const BoundModel& model() const { return model_; }
  // Adds row `row` of a table in the file, times `scale`, to `out`.
  Status AddTableRow(TensorRef table, int64_t row, float scale, float* out) const;
  int64_t TableWidth(TensorRef table) const;

 private:
  friend class Binder;
  MlxWeights(std::shared_ptr<const ModelFile> file, ModelSpec spec)
      : file_(std::move(file)), spec_(std::move(spec)) {}

  const std::shared_ptr<const ModelFile> file_;
  const ModelSpec spec_;
  int64_t memory_bytes_ = 0;
  BoundTensors<InArrays> tensors_;
  BoundModel model_;
  std::optional<WiredBytes> wired_;
};

}  // namespace weft::mlx

#endif  // WEFT_COMPUTE_MLX_MLX_WEIGHTS_H_
