// Operations of models with several streams; part of operations.h. AltUp: layers compute on the
// first stream and correct the others from it. Hyper-connections: layers compute on a mix of all.
//
// s_0 is the residual stream; s_1 ... s_(n-1), the side streams, are d_model wide, too, and live
// only as long as a step. ModelSpec::n_side_streams is their number.
#ifndef WEFT_MODEL_SIDE_STREAM_OPERATIONS_H_
#define WEFT_MODEL_SIDE_STREAM_OPERATIONS_H_

#include <cmath>
#include <cstdint>

#include "model/operation_parts.h"

namespace weft {

// Begins the side streams: s_i = enter_i(s_0), scaled to the length of s_0. Returns 0.
template <typename Form>
struct EnterSidesTensors {
  typename Form::Stack enter;  // a member for each side stream
};
struct EnterSides : EnterSidesTensors<InFile> {
  template <typename Form>
  using Tensors = EnterSidesTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.UsesSides(enter.count);
    visitor.Tensor(enter, {d_model, d_model, enter.count, enter.count}, of.enter...);
  }
};

// Returns mean(s_0, leave_i(s_i) scaled to the length of s_0) - s_0.
template <typename Form>
struct LeaveSidesTensors {
  typename Form::Stack leave;  // a member for each side stream
};
struct LeaveSides : LeaveSidesTensors<InFile> {
  template <typename Form>
  using Tensors = LeaveSidesTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.UsesSides(leave.count);
    visitor.Tensor(leave, {d_model, d_model, leave.count, leave.count}, of.leave...);
  }
};

// Predicts the n streams before a layer:
//   c = coefficients(tanh(router(router_norm(s_0)))), n * n values
//   s_i = s_i + sum over j of c[n i + j] s_j, for the side streams; returns the sum for s_0
template <typename Form>
struct PredictSidesTensors {
  typename Form::Norm router_norm;
  typename Form::Linear router;        // n_out = n
  typename Form::Linear coefficients;  // n -> n * n
};
struct PredictSides : PredictSidesTensors<InFile> {
  template <typename Form>
  using Tensors = PredictSidesTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t n = router.n_out;
    visitor.UsesSides(n - 1);
    visitor.Tensor(router_norm, {.n_in = d_model}, of.router_norm...);
    visitor.Tensor(router, {.n_in = d_model, .n_out = n}, of.router...);
    visitor.Tensor(coefficients, {.n_in = n, .n_out = n * n}, of.coefficients...);
  }
};

// Corrects the streams after a layer. z is s_0, and a the stream at the beginning of the last block
// with keeps_input.
//   c = coefficients(tanh(router(router_norm(z)))), n values
//   s_i = s_i + (1 + c_i) (z - a), for the side streams;  s = z + c_0 (z - a);  returns c_0 (z - a)
//   s_i = s_i + post_norm(proj(gelu(gate(s * scale)) * e)), for the side streams, where e is the
//   layer's part of the token's per-layer input
template <typename Form>
struct CorrectSidesTensors {
  typename Form::Norm router_norm;
  typename Form::Linear router;        // n_out = n
  typename Form::Linear coefficients;  // n -> n
  typename Form::Vector scale = {};    // F32, d_model
  typename Form::Linear gate, proj;
  typename Form::Norm post_norm;
};
struct CorrectSides : CorrectSidesTensors<InFile> {
  int layer = 0;

  template <typename Form>
  using Tensors = CorrectSidesTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t n = router.n_out;
    visitor.UsesSides(n - 1);
    visitor.UsesLayerInput(layer, gate.n_out);
    visitor.Tensor(router_norm, {.n_in = d_model}, of.router_norm...);
    visitor.Tensor(router, {.n_in = d_model, .n_out = n}, of.router...);
    visitor.Tensor(coefficients, {.n_in = n, .n_out = n}, of.coefficients...);
    visitor.Tensor(scale, {.n_in = d_model}, of.scale...);
    visitor.Tensor(gate, {.n_in = d_model, .n_out = gate.n_out}, of.gate...);
    visitor.Tensor(proj, {.n_in = gate.n_out, .n_out = d_model}, of.proj...);
    visitor.Tensor(post_norm, {.n_in = d_model}, of.post_norm...);
  }
};

// Hyper-connections: the side streams s_0 ... s_(n-1) are the residual, and x is what a block
// reads. The last side stream, number n, keeps a row's coefficients between the two operations.
//
//   m = map(s / rms(s)), over the n streams as one row;  with the runs of m:
//   pre_i  = sigmoid(scale[0] m_i + base_i) + mix_epsilon
//   post_i = 2 sigmoid(scale[1] m_(n+i) + base_(n+i))
//   c[i][j] = scale[2] m_(2n+in+j) + base_(2n+in+j), softmax over j, + mix_epsilon; then columns
//   (over i) are divided by their sums + mix_epsilon, and n_rounds - 1 times rows and columns are.
// Returns sum over i of pre_i s_i. `begins`: first s_i = x for all i. `ends`: map has n rows, scale
// one value, and only pre is computed.
template <typename Form>
struct GatherSidesTensors {
  typename Form::Linear map;
  typename Form::Vector scale = {}, base = {};  // F32
};
struct GatherSides : GatherSidesTensors<InFile> {
  int n = 0;
  int n_rounds = 1;
  float epsilon = 0;
  float mix_epsilon = 0;
  bool begins = false, ends = false;

  template <typename Form>
  using Tensors = GatherSidesTensors<Form>;
  int64_t n_coefficients() const { return n * (2 + n); }
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.UsesSides(n + 1);
    visitor.Require(n > 0 && n_rounds > 0 && n_coefficients() <= d_model,
                    "a stream has room for the coefficients");
    const int64_t n_out = ends ? n : n_coefficients();
    visitor.Tensor(map, {.n_in = n * d_model, .n_out = n_out}, of.map...);
    visitor.Tensor(scale, {.n_in = ends ? 1 : 3}, of.scale...);
    visitor.Tensor(base, {.n_in = n_out}, of.base...);
  }
};

// After a block: s_j = post_j x + sum over i of c[i][j] s_i, with the coefficients of the last
// GatherSides. Returns 0.
template <typename Form>
struct SpreadSidesTensors {};
struct SpreadSides : SpreadSidesTensors<InFile> {
  int n = 0;

  template <typename Form>
  using Tensors = SpreadSidesTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t /*d_model*/, Visitor&& visitor, Of&... /*of*/) const {
    visitor.UsesSides(n + 1);
  }
};

// x + norm(up(down(x))): a learned low-rank residual.
template <typename Form>
struct LowRankTensors {
  typename Form::Linear down, up;
  typename Form::Norm norm;
};
struct LowRank : LowRankTensors<InFile> {
  template <typename Form>
  using Tensors = LowRankTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Tensor(down, {.n_in = d_model, .n_out = up.n_in}, of.down...);
    visitor.Tensor(up, {.n_in = down.n_out, .n_out = d_model}, of.up...);
    visitor.Tensor(norm, {.n_in = d_model}, of.norm...);
  }
};

}  // namespace weft

#endif  // WEFT_MODEL_SIDE_STREAM_OPERATIONS_H_
