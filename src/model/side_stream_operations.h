// AltUp: operations of models with several streams. Layers compute on the first stream and correct
// the others from it; part of operations.h.
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
