// The operations with recurrent state, each with its equation; part of operations.h.
#ifndef WEFT_MODEL_RECURRENT_OPERATIONS_H_
#define WEFT_MODEL_RECURRENT_OPERATIONS_H_

#include <cstdint>

#include "model/operation_parts.h"

namespace weft {

// A gated convolution instead of attention:
//   [b, c, x] = in(h), each n_channels wide
//   out(c * convolution(b * x))
template <typename Form>
struct ShortConvolutionTensors {
  typename Form::Linear in;  // n_out = 3 * n_channels
  typename Form::Convolution convolution;
  typename Form::Linear out;
};
struct ShortConvolution : ShortConvolutionTensors<InFile> {
  template <typename Form>
  using Tensors = ShortConvolutionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t n = convolution.n_channels;
    visitor.Tensor(in, {.n_in = d_model, .n_out = 3 * n}, of.in...);
    visitor.Tensor(convolution, {.n_in = convolution.n_taps, .n_out = n}, of.convolution...);
    visitor.Slot(convolution.State());
    visitor.Tensor(out, {.n_in = n, .n_out = d_model}, of.out...);
  }
};

// Which key head value head v of linear attention reads.
enum class KeyHeads {
  kTiled,        // v % n_k_heads
  kInterleaved,  // v / (n_v_heads / n_k_heads)
};

// Linear attention by the gated delta rule. Per value head a state S of k_dim rows
// and v_dim columns, zero before the first token.
//
//   [q, k, v] = silu(convolution(qkv(h)));  n_k_heads, n_k_heads, n_v_heads heads
//   q = q / max(|q|, epsilon) / sqrt(k_dim);  k = k / max(|k|, epsilon)    per head
//   a = exp(decay_rate * softplus(decay(h) + decay_bias));  b = sigmoid(beta(h))
//   S = a S;  S = S + k (b (v - S^T k))^T;  o = S^T q
//   out(norm(o) * silu(gate(h)))
template <typename Form>
struct GatedDeltaNetTensors {
  typename Form::Linear qkv, gate;
  typename Form::Linear beta, decay;  // n_out = n_v_heads each, or
  typename Form::Linear beta_decay;   // both: for each key head the betas of its (interleaved)
                                      // value heads, then their decays
  typename Form::Convolution convolution;
  typename Form::Vector decay_bias = {}, decay_rate = {};  // F32, one per value head
  typename Form::Norm norm;                                // over v_dim, per head
  typename Form::Linear out;
};
struct GatedDeltaNet : GatedDeltaNetTensors<InFile> {
  int n_k_heads = 0;
  int n_v_heads = 0;  // a multiple of n_k_heads
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;
  KeyHeads key_heads = KeyHeads::kTiled;
  float epsilon = 0;
  int slot = -1;  // index into ModelSpec::slots; n_v_heads * k_dim * v_dim floats

  template <typename Form>
  using Tensors = GatedDeltaNetTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Slot({slot, SlotKind::kDeltaNet, n_v_heads, k_dim, v_dim});
    visitor.Require(n_k_heads > 0 && n_v_heads > 0 && n_v_heads % n_k_heads == 0,
                    "as many value heads for each key head");
    visitor.Require(k_dim > 0 && v_dim > 0, "heads hold values");
    visitor.Require(!beta_decay || key_heads == KeyHeads::kInterleaved,
                    "betas and decays together lie by key head");
    visitor.Require(epsilon >= 0 && epsilon <= 1, "epsilon is small");
    const int64_t n_values = n_v_heads * v_dim, n_qkv = 2 * n_k_heads * k_dim + n_values;
    const Shape gates = {.n_in = d_model, .n_out = n_v_heads, .needed = !beta_decay};
    visitor.Tensor(qkv, {.n_in = d_model, .n_out = n_qkv}, of.qkv...);
    visitor.Tensor(gate, {.n_in = d_model, .n_out = n_values}, of.gate...);
    visitor.Tensor(beta, gates, of.beta...);
    visitor.Tensor(decay, gates, of.decay...);
    visitor.Tensor(beta_decay, {.n_in = d_model, .n_out = int64_t{2} * n_v_heads, .needed = !beta},
                   of.beta_decay...);
    visitor.Tensor(convolution, {.n_in = convolution.n_taps, .n_out = n_qkv}, of.convolution...);
    visitor.Slot(convolution.State());
    visitor.Tensor(decay_bias, {.n_in = n_v_heads}, of.decay_bias...);
    visitor.Tensor(decay_rate, {.n_in = n_v_heads}, of.decay_rate...);
    visitor.Tensor(norm, {.n_in = v_dim, .needed = false}, of.norm...);
    visitor.Tensor(out, {.n_in = n_values, .n_out = d_model}, of.out...);
  }
};

// A selective state space (Mamba 2). Per head a state S of state_dim rows and
// head_dim columns, zero before the first token; head h reads group
// h / (n_heads / n_groups) of B and C.
//
//   [z, xbc, d] = in(h), of d_inner, d_inner + 2 n_groups state_dim, n_heads values,
//       d_inner = n_heads head_dim
//   [x, B, C] = silu(convolution(xbc));  n_heads, n_groups, n_groups parts
//   d = softplus(d + step_bias);  a = exp(d rate)            per head
//   S = a S + B (d x)^T;  y = S^T C + skip x
//   out(norm(y * silu(z)))
template <typename Form>
struct StateSpaceTensors {
  typename Form::Linear in;
  typename Form::Convolution convolution;
  typename Form::Vector step_bias = {}, rate = {}, skip = {};  // F32, one per head
  typename Form::Norm norm;  // over d_inner / n_groups values, or absent
  typename Form::Linear out;
};
struct StateSpace : StateSpaceTensors<InFile> {
  int n_heads = 0;
  int n_groups = 0;  // divides n_heads
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  int slot = -1;  // index into ModelSpec::slots; n_heads * state_dim * head_dim floats

  template <typename Form>
  using Tensors = StateSpaceTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Slot({slot, SlotKind::kStateSpace, n_heads, state_dim, head_dim});
    const bool whole = n_groups > 0 && n_heads > 0 && n_heads % n_groups == 0;
    visitor.Require(whole, "as many heads in each group");
    visitor.Require(head_dim > 0 && state_dim > 0, "heads hold values");
    const int64_t inner = n_heads * head_dim, n_channels = inner + 2 * n_groups * state_dim;
    const int64_t group = whole ? inner / n_groups : 0;
    visitor.Require(!norm || norm.width == group, "the norm is of a group");
    visitor.Tensor(in, {.n_in = d_model, .n_out = inner + n_channels + n_heads}, of.in...);
    visitor.Tensor(convolution, {.n_in = convolution.n_taps, .n_out = n_channels},
                   of.convolution...);
    visitor.Slot(convolution.State());
    visitor.Tensor(step_bias, {.n_in = n_heads}, of.step_bias...);
    visitor.Tensor(rate, {.n_in = n_heads}, of.rate...);
    visitor.Tensor(skip, {.n_in = n_heads}, of.skip...);
    visitor.Tensor(norm, {.n_in = group, .n_out = n_groups, .needed = false}, of.norm...);
    visitor.Tensor(out, {.n_in = inner, .n_out = d_model}, of.out...);
  }
};

// A delta net whose states decay per key channel (Kimi's). All heads have head_dim keys, queries
// and values, n = n_heads * head_dim. Per head a state S of head_dim rows and columns.
//
//   q, k, v = silu(q_convolution(q(h))), ...
//   q = q / max(|q|, epsilon) / sqrt(head_dim);  k = k / max(|k|, epsilon)    per head
//   a = exp(decay_rate[head] * softplus(decay_b(decay_a(h)) + decay_bias)), one per key channel
//   b = sigmoid(beta(h)), one per head
//   S = diag(a) S;  S = S + k (b (v - S^T k))^T;  o = S^T q
//   out(norm(o) * sigmoid(gate_b(gate_a(h))))
template <typename Form>
struct ChannelDeltaNetTensors {
  typename Form::Linear q, k, v;  // n_out = n each
  typename Form::Convolution q_convolution, k_convolution, v_convolution;
  typename Form::Linear decay_a, decay_b, gate_a, gate_b, beta;
  typename Form::Vector decay_bias = {};  // F32, n
  typename Form::Vector decay_rate = {};  // F32, one per head
  typename Form::Norm norm;               // over head_dim, per head
  typename Form::Linear out;
};
struct ChannelDeltaNet : ChannelDeltaNetTensors<InFile> {
  int n_heads = 0;
  int64_t head_dim = 0;
  float epsilon = 0;
  int slot = -1;  // index into ModelSpec::slots; n_heads * head_dim * head_dim floats

  template <typename Form>
  using Tensors = ChannelDeltaNetTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Slot({slot, SlotKind::kDeltaNet, n_heads, head_dim, head_dim});
    visitor.Require(n_heads > 0 && head_dim > 0, "heads hold values");
    visitor.Require(epsilon >= 0 && epsilon <= 1, "epsilon is small");
    const int64_t n = n_heads * head_dim;
    visitor.Tensor(q, {.n_in = d_model, .n_out = n}, of.q...);
    visitor.Tensor(k, {.n_in = d_model, .n_out = n}, of.k...);
    visitor.Tensor(v, {.n_in = d_model, .n_out = n}, of.v...);
    visitor.Tensor(q_convolution, {.n_in = q_convolution.n_taps, .n_out = n}, of.q_convolution...);
    visitor.Slot(q_convolution.State());
    visitor.Tensor(k_convolution, {.n_in = k_convolution.n_taps, .n_out = n}, of.k_convolution...);
    visitor.Slot(k_convolution.State());
    visitor.Tensor(v_convolution, {.n_in = v_convolution.n_taps, .n_out = n}, of.v_convolution...);
    visitor.Slot(v_convolution.State());
    visitor.Tensor(decay_a, {.n_in = d_model, .n_out = decay_b.n_in}, of.decay_a...);
    visitor.Tensor(decay_b, {.n_in = decay_a.n_out, .n_out = n}, of.decay_b...);
    visitor.Tensor(gate_a, {.n_in = d_model, .n_out = gate_b.n_in}, of.gate_a...);
    visitor.Tensor(gate_b, {.n_in = gate_a.n_out, .n_out = n}, of.gate_b...);
    visitor.Tensor(beta, {.n_in = d_model, .n_out = n_heads}, of.beta...);
    visitor.Tensor(decay_bias, {.n_in = n}, of.decay_bias...);
    visitor.Tensor(decay_rate, {.n_in = n_heads}, of.decay_rate...);
    visitor.Tensor(norm, {.n_in = head_dim}, of.norm...);
    visitor.Tensor(out, {.n_in = n, .n_out = d_model}, of.out...);
  }
};

// A selective state space per channel (Mamba 1). Per channel c a state h_c of state_dim values,
// zero before the first token.
//
//   [x, z] = in(h), n_channels each;  x = silu(convolution(x))
//   [d, B, C] = select(x), of step_rank, state_dim, state_dim values, each through its norm
//   d = softplus(step(d)), n_channels
//   h_c = exp(d_c rate[c]) h_c + d_c x_c B;  y_c = C . h_c + skip[c] x_c
//   out(y * silu(z))
template <typename Form>
struct SelectiveScanTensors {
  typename Form::Linear in;
  typename Form::Convolution convolution;
  typename Form::Linear select;
  typename Form::Norm step_norm, b_norm, c_norm;
  typename Form::Linear step;       // with its bias
  typename Form::Vector rate = {};  // F32, n_channels rows of state_dim
  typename Form::Vector skip = {};  // F32, n_channels
  typename Form::Linear out;
};
struct SelectiveScan : SelectiveScanTensors<InFile> {
  int64_t n_channels = 0;
  int64_t state_dim = 0;
  int slot = -1;  // index into ModelSpec::slots; state_dim * n_channels floats

  template <typename Form>
  using Tensors = SelectiveScanTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t n = n_channels;
    visitor.Slot({slot, SlotKind::kStateSpace, 1, state_dim, n});
    visitor.Require(n > 0 && state_dim > 0, "channels hold values");
    visitor.Tensor(in, {.n_in = d_model, .n_out = 2 * n}, of.in...);
    visitor.Tensor(convolution, {.n_in = convolution.n_taps, .n_out = n}, of.convolution...);
    visitor.Slot(convolution.State());
    visitor.Tensor(select, {.n_in = n, .n_out = step.n_in + 2 * state_dim}, of.select...);
    visitor.Tensor(step_norm, {.n_in = step.n_in, .needed = false}, of.step_norm...);
    visitor.Tensor(b_norm, {.n_in = state_dim, .needed = false}, of.b_norm...);
    visitor.Tensor(c_norm, {.n_in = state_dim, .needed = false}, of.c_norm...);
    visitor.Tensor(step, {.n_in = select.n_out - 2 * state_dim, .n_out = n}, of.step...);
    visitor.Tensor(rate, {.n_in = n * state_dim}, of.rate...);
    visitor.Tensor(skip, {.n_in = n}, of.skip...);
    visitor.Tensor(out, {.n_in = n, .n_out = d_model}, of.out...);
  }
};

// The time mix of RWKV 7, n = n_heads * head_dim = d_model channels. p is the token's input before
// this one's, zero before the first token. Per head a state S of head_dim rows and columns.
//
//   x_i = x + (p - x) lerp_i, for i of r, w, k, v, a, g
//   r = receptance(x_r);  k = key(x_k);  v = value(x_v)
//   w = exp(-e^-0.5 sigmoid(decay_b(tanh(decay_a(x_w))) + decay_bias))
//   a = sigmoid(rate_b(rate_a(x_a)) + rate_bias);  g = gate_b(sigmoid(gate_a(x_g)))
//   v = v + (v_first - v) sigmoid(mix_b(mix_a(x_v)) + mix_bias), where v_first is the first
//       layer's v (`is_first`: this one's)
//   d = k removal, of length 1 per head;  k = k (1 + (a - 1) renewal)
//   S = diag(w) S - (d a) (S^T d)^T + k v^T;  y = S^T r     per head, S on the right as it was
//   out((norm(y) + v sum(k r bonus)) g)
template <typename Form>
struct TimeMixTensors {
  typename Form::Vector lerp = {};  // F32, six rows of n
  typename Form::Linear receptance, key, value;
  typename Form::Linear decay_a, decay_b, rate_a, rate_b, mix_a, mix_b, gate_a, gate_b;
  typename Form::Vector decay_bias = {}, rate_bias = {}, mix_bias = {};  // F32, n each
  typename Form::Vector removal = {}, renewal = {}, bonus = {};          // F32, n each
  typename Form::Norm norm;                                              // over head_dim, per head
  typename Form::Linear out;
};
struct TimeMix : TimeMixTensors<InFile> {
  int n_heads = 0;
  int64_t head_dim = 0;
  bool is_first = false;
  int slot = -1;        // index into ModelSpec::slots; n_heads * head_dim * head_dim floats
  int shift_slot = -1;  // likewise, n floats

  template <typename Form>
  using Tensors = TimeMixTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    const int64_t n = d_model;
    const Shape square = {.n_in = n, .n_out = n}, vector = {.n_in = n};
    const auto low = [&](const Linear& a, const auto& b) {
      return Shape{.n_in = n, .n_out = b.n_in, .needed = static_cast<bool>(a)};
    };
    const auto high = [&](const Linear& a) {
      return Shape{.n_in = a.n_out, .n_out = n, .needed = static_cast<bool>(a)};
    };
    visitor.Slot({slot, SlotKind::kDeltaNet, n_heads, head_dim, head_dim});
    visitor.Slot({shift_slot, SlotKind::kConvolution, 1, 1, n});
    visitor.Require(n_heads > 0 && n_heads * head_dim == n, "heads part the stream");
    visitor.Require(is_first != static_cast<bool>(mix_a), "all but the first mix in values");
    visitor.Require(decay_a && rate_a && gate_a, "gates have a low rank");
    visitor.Tensor(lerp, {.n_in = 6 * n}, of.lerp...);
    visitor.Tensor(receptance, square, of.receptance...);
    visitor.Tensor(key, square, of.key...);
    visitor.Tensor(value, square, of.value...);
    visitor.Tensor(decay_a, low(decay_a, decay_b), of.decay_a...);
    visitor.Tensor(decay_b, high(decay_a), of.decay_b...);
    visitor.Tensor(rate_a, low(rate_a, rate_b), of.rate_a...);
    visitor.Tensor(rate_b, high(rate_a), of.rate_b...);
    visitor.Tensor(mix_a, low(mix_a, mix_b), of.mix_a...);
    visitor.Tensor(mix_b, high(mix_a), of.mix_b...);
    visitor.Tensor(gate_a, low(gate_a, gate_b), of.gate_a...);
    visitor.Tensor(gate_b, high(gate_a), of.gate_b...);
    visitor.Tensor(decay_bias, vector, of.decay_bias...);
    visitor.Tensor(rate_bias, vector, of.rate_bias...);
    visitor.Tensor(mix_bias, {.n_in = n, .needed = !is_first}, of.mix_bias...);
    visitor.Tensor(removal, vector, of.removal...);
    visitor.Tensor(renewal, vector, of.renewal...);
    visitor.Tensor(bonus, vector, of.bonus...);
    visitor.Tensor(norm, {.n_in = head_dim, .n_out = n_heads}, of.norm...);
    visitor.Tensor(out, square, of.out...);
  }
};

// The channel mix of RWKV 7, with p as in TimeMix:
//   value(relu(key(x + (p - x) lerp))^2)
template <typename Form>
struct ChannelMixTensors {
  typename Form::Vector lerp = {};  // F32, d_model
  typename Form::Linear key, value;
};
struct ChannelMix : ChannelMixTensors<InFile> {
  int shift_slot = -1;  // index into ModelSpec::slots; d_model floats

  template <typename Form>
  using Tensors = ChannelMixTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Slot({shift_slot, SlotKind::kConvolution, 1, 1, d_model});
    visitor.Tensor(lerp, {.n_in = d_model}, of.lerp...);
    visitor.Tensor(key, {.n_in = d_model, .n_out = key.n_out}, of.key...);
    visitor.Tensor(value, {.n_in = key.n_out, .n_out = d_model}, of.value...);
  }
};

}  // namespace weft

#endif  // WEFT_MODEL_RECURRENT_OPERATIONS_H_
