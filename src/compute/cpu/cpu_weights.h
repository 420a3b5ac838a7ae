// A model's weights on the CPU: every matrix packed once, vectors as floats, and the spec's
// operations bound to them.
//
// Immutable once loaded; any thread. Keeps the file open, because rows of embedding tables are read
// when they are used. If the table were mapped, whole runs of pages around each row would count as
// this process's memory.
#ifndef WEFT_COMPUTE_CPU_CPU_WEIGHTS_H_
#define WEFT_COMPUTE_CPU_CPU_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "compute/backend.h"
#include "compute/bound_spec.h"
#include "compute/cpu/adapters.h"
#include "compute/cpu/packed_copy.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/matmul/matmul.h"

namespace weft::cpu {

// The spec's types with pointers instead of tensor references.
struct BoundLinear {
  PackedMatrix matrix;
  const float* bias = nullptr;
  const float* scale = nullptr;  // one factor
  explicit operator bool() const { return matrix.tiles != nullptr; }
};

struct BoundStack {
  PackedMatrix first;  // member 0; the others follow
  int64_t member_bytes = 0;
  const float* bias = nullptr;   // (count, n_out)
  const float* scale = nullptr;  // count
  explicit operator bool() const { return first.tiles != nullptr; }
  PackedMatrix Member(int64_t i) const {
    PackedMatrix member = first;
    member.tiles += i * member_bytes;
    return member;
  }
};

using BoundNorm = BoundNormOf<const float*>;
using BoundConvolution = BoundConvolutionOf<const float*>;

// A table in the file whose rows are read and decoded one by one.
struct BoundTable {
  const ModelFile* file = nullptr;
  const TensorInfo* tensor = nullptr;
  explicit operator bool() const { return tensor != nullptr; }
  int64_t n_values() const { return tensor->dims[0]; }
  // Reads row `row`: its row_bytes() stored bytes into `raw`, its values as floats into `out`.
  Status Read(int64_t row, std::byte* raw, float* out) const;
  int64_t row_bytes() const { return tensor->row_bytes(); }
};

// The bound form of a spec (see bound_spec.h).
struct Packed {
  using Vector = const float*;
  using Linear = BoundLinear;
  using Stack = BoundStack;
  using Norm = BoundNorm;
  using Convolution = BoundConvolution;
  using Table = BoundTable;
  using Matrix = std::byte*;  // tiles
};

template <typename Operation>
using Bound = BoundOperation<Packed, Operation>;

using BoundPath = BoundSpec<Packed, Bound>::Path;
using BoundBlock = BoundSpec<Packed, Bound>::Block;
using BoundPerLayerInput = BoundSpec<Packed, Bound>::PerLayerInput;
using BoundRowInput = BoundSpec<Packed, Bound>::RowInput;
using BoundHiddenInput = BoundSpec<Packed, Bound>::HiddenInput;
struct BoundModel : BoundSpec<Packed, Bound>::Model {
  const float* token_types = nullptr;  // rows of d_model
};

// Max taps of a convolution.
inline constexpr int64_t kMaxConvolutionTaps = 64;

class CpuWeights : public Weights {
 public:
  // Packs with the kernels of `isa`; the packed form is the same for all. Errors name the tensor.
  static StatusOr<std::shared_ptr<const CpuWeights>> Load(std::shared_ptr<const ModelFile> file,
                                                          ModelSpec spec,
                                                          const LoadOptions& options, Isa isa);

  const ModelSpec& spec() const override { return spec_; }
  int device() const override { return 0; }
  int64_t memory_bytes() const override { return memory_bytes_; }
  int64_t mapped_bytes() const override {
    return copy_ != nullptr ? static_cast<int64_t>(copy_->body().size()) : 0;
  }
  int64_t copy_write_us() const override { return copy_write_us_; }
  Status CheckUnchanged() const override {
    return copy_ != nullptr ? copy_->CheckUnchanged() : OkStatus();
  }

  const BoundModel& model() const { return model_; }
  const CpuAdapters& adapters() const { return adapters_; }
  // What was packed: the rows of a tensor, or of each of its matrices, from `first_row` on.
  struct PackedRows {
    const TensorInfo* tensor;
    int64_t first_row;
    const std::byte* tiles;
  };
  std::vector<PackedRows> packed() const;
  Isa isa() const { return isa_; }

 private:
  friend class Binder;
  CpuWeights(std::shared_ptr<const ModelFile> file, ModelSpec spec, const LoadOptions& options,
             Isa isa, std::unique_ptr<const PackedCopy> copy,
             std::shared_ptr<const CpuWeights> beside)
      : file_(std::move(file)),
        spec_(std::move(spec)),
        isa_(isa),
        copy_(std::move(copy)),
        beside_(std::move(beside)),
        adapters_(options.adapters) {}

  const std::shared_ptr<const ModelFile> file_;
  const ModelSpec spec_;
  const Isa isa_;
  const std::unique_ptr<const PackedCopy> copy_;    // holds all matrices; may be null
  const std::shared_ptr<const CpuWeights> beside_;  // holds some of our matrices; may be null
  CpuAdapters adapters_;
  BoundTensors<Packed> tensors_;
  int64_t memory_bytes_ = 0;
  int64_t copy_write_us_ = 0;
  std::vector<AlignedBuffer> matrices_;
  std::vector<std::vector<float>> vectors_;
  BoundModel model_;
};

}  // namespace weft::cpu

#endif  // WEFT_COMPUTE_CPU_CPU_WEIGHTS_H_
