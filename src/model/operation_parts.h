// The parts of operations (operations.h): references to weights, norms, convolutions, state; and
// the visitor over them.
#ifndef WEFT_MODEL_OPERATION_PARTS_H_
#define WEFT_MODEL_OPERATION_PARTS_H_

#include <cstdint>
#include <string_view>

namespace weft {

// --- references to weights ----------------------------------------------------

// A tensor of the model file, by its index in ModelFile::tensors(). Building the spec has checked
// its shape.
struct TensorRef {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const TensorRef&) const = default;
};

// out = W x + b. W is rows [first_row, first_row + n_out) of a matrix tensor whose rows are n_in
// values long (a fused tensor serves several Linears). The bias is an F32 vector with a value for
// each row of the tensor; b has the values of W's rows. `scale`, if any, is one F32 factor of the
// output; there is then no bias.
struct Linear {
  TensorRef weight;
  TensorRef bias;
  int64_t first_row = 0;
  int64_t n_in = 0;
  int64_t n_out = 0;
  TensorRef scale = {};
  explicit operator bool() const { return static_cast<bool>(weight); }
  bool operator==(const Linear&) const = default;
};

// `count` matrices of one 3-D tensor (dims n_in, rows, count): experts, or heads.
// Member i is rows [first_row, first_row + n_out) of slice i. The bias, if any,
// has dims (n_out, count); `scale`, if any, one F32 factor per member, applied to
// the member's output.
struct StackedLinear {
  TensorRef weight;
  TensorRef bias;
  TensorRef scale;
  int64_t first_row = 0;
  int64_t n_in = 0;
  int64_t n_out = 0;
  int64_t count = 0;
  explicit operator bool() const { return static_cast<bool>(weight); }
  bool operator==(const StackedLinear&) const = default;
};

enum class NormKind { kNone, kRms, kLayer };

// y = x / rms(x) * weight (kRms), or the classic layer norm with its bias (kLayer). An absent
// `weight` means all ones. Applied to groups of `width` values: the whole vector, or each head by
// itself.
struct Norm {
  NormKind kind = NormKind::kNone;
  TensorRef weight;
  TensorRef bias;
  int64_t width = 0;
  float epsilon = 0;
  // Multiplies the normalised value (before the weight); 1 in nearly all models.
  float factor = 1;
  explicit operator bool() const { return kind != NormKind::kNone; }
  bool operator==(const Norm&) const = default;
};

// --- state of a session ---------------------------------------------------------------

// An operation's use of the KV cache.
struct KvUse {
  int layer;  // index into ModelSpec::kv_layers
  int n_heads, n_kv_heads;
  int64_t k_dim, v_dim;  // per head
  bool v_in_k;           // a value is the first v_dim of its key
  bool writes;           // false: reads the cache of another operation
  int64_t stride = 1;    // see KvLayer
  bool exact = false;
};

// An operation's recurrent state: n_heads states of n_rows rows and n_columns columns.
enum class SlotKind { kConvolution, kDeltaNet, kStateSpace };
struct SlotUse {
  int slot;  // index into ModelSpec::slots
  SlotKind kind;
  int64_t n_heads, n_rows, n_columns;
};

// A short causal convolution, separately for each channel. With u_t the channels' inputs at
// position t (zero before the first token):
//   y_t[c] = bias[c] + sum over j in [0, n_taps):  kernel[c][j] * u_{t - (n_taps - 1) + j}[c]
// The last tap belongs to the position itself. State: the latest n_taps - 1 inputs of every
// channel.
struct Convolution {
  TensorRef kernel;  // F32, n_channels rows of n_taps
  TensorRef bias;    // F32, one per channel
  int64_t n_channels = 0;
  int64_t n_taps = 0;
  int slot = -1;  // index into ModelSpec::slots; (n_taps - 1) * n_channels floats
  SlotUse State() const { return {slot, SlotKind::kConvolution, 1, n_taps - 1, n_channels}; }
};

// --- visiting -------------------------------------------------------------------------

// The required shape of an operation's tensor.
struct Shape {
  int64_t n_in = 1;    // values per row, per vector, or per group of a norm
  int64_t n_out = 1;   // rows; groups of a norm
  int64_t count = 1;   // members of a stack
  int64_t n_used = 1;  // members used per row
  bool needed = true;  // false: optional
};

// The methods that Visit calls; a visitor overrides those that it needs.
struct OperationVisitor {
  // `of`: the same tensor in the other forms passed to Visit. Parts are TensorRef (a vector),
  // Linear, StackedLinear, Norm, Convolution.
  void Tensor(const auto& /*part*/, const Shape&, auto&... /*of*/) {}
  // A vector that holds n_rows rows of n_in values, of any type that can be decoded; optional.
  void Table(const auto& /*part*/, int64_t /*n_in*/, int64_t /*n_rows*/, auto&... /*of*/) {}
  void Kv(const KvUse&) {}
  void Slot(const SlotUse&) {}
  // The rope rotates values of heads of `dim`; -1: no rope.
  void UsesRope(int /*rope*/, int64_t /*dim*/) {}
  // Reads the layer's run of `width` values of the per-layer inputs.
  void UsesLayerInput(int /*layer*/, int64_t /*width*/) {}
  // Reads or writes `n` side streams.
  void UsesSides(int64_t /*n*/) {}
  // The operation sees the whole text of a row, including later tokens.
  void WholeText() {}
  // A condition that the operation's numbers must meet.
  void Require(bool /*holds*/, std::string_view /*what*/) {}
};

// The form of an operation's tensors in a spec. A backend defines its own forms;
// Attention::Tensors<ItsForm> and so on then have the same member names.
struct InFile {
  using Vector = TensorRef;
  using Linear = weft::Linear;
  using Stack = StackedLinear;
  using Norm = weft::Norm;
  using Convolution = weft::Convolution;
};

}  // namespace weft

#endif  // WEFT_MODEL_OPERATION_PARTS_H_
