// The operations of a path, each with its equation.
//
// An operation is described once: the numbers in its struct, the tensors in a template next to it,
// and Visit, which enumerates both. Code that needs all parts of an operation (which tensors a spec
// uses, whether they fit, what they cost, a backend's own form of them) is a visitor, and knows no
// operation by name.
#ifndef WEFT_MODEL_OPERATIONS_H_
#define WEFT_MODEL_OPERATIONS_H_

#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "model/latent_operations.h"
#include "model/operation_parts.h"
#include "model/recurrent_operations.h"
#include "model/side_stream_operations.h"

namespace weft {

// --- operations -------------------------------------------------------------------

enum class Activation {
  kSilu,
  kGeluTanh,
  kGeluErf,
  kRelu,
  kReluSquared,
  // gpt-oss: g = min(gate, limit), u = clamp(up, -limit, limit);
  // g * sigmoid(1.702 g) * (u + 1).
  kClampedSwiglu,
  kClampedSilu,    // min(silu(gate), limit) * clamp(up, -limit, limit)
  kSiluOfClamped,  // silu(min(gate, limit)) * clamp(up, -limit, limit)
  // x = up, without a gate. x > 0: rise x^2 + slope x; otherwise: fall (e^min(x, limit) - 1 - x) +
  // slope x.
  kXielu,
};

// Parameters of the activations that have any.
struct ActivationNumbers {
  float limit = 0;
  float rise = 0, fall = 0, slope = 0;
  bool operator==(const ActivationNumbers&) const = default;
};

// A query at position p is multiplied by 1 + scale * ln(floor((p + offset) / length) + 1).
struct QueryTemperature {
  float scale = 0;  // 0: off
  int64_t length = 1;
  int64_t offset = 0;
  explicit operator bool() const { return scale != 0; }
  double Of(int64_t position) const {
    const int64_t steps = (position + offset) / length;
    return 1 + scale * std::log(static_cast<double>(steps) + 1);
  }
  bool operator==(const QueryTemperature&) const = default;
};

// Which of the visible keys a query attends to.
//
// kKeys: the `count` best keys by the sum over index heads h of relu(q_h . k) w_h.
// kBlocks: for each key head, which has its own index head, the positions of the `count` best
// blocks of `block` positions; a block's score is its largest q . k; the last n_local blocks are
// always included. Ties go to the earlier key or block.
// kAsBefore: the choice of the last operation of the step that chose.
// Index queries and keys (one per token) are normed, and rotated from their first value on; the
// keys are stored.
struct KeyChoice {
  enum class Kind { kAll, kKeys, kBlocks, kAsBefore } kind = Kind::kAll;
  int64_t count = 0;
  int64_t block = 1;
  int64_t n_local = 0;
  int n_heads = 0;
  int64_t dim = 0;
  int rope = -1;
  int kv_layer = -1;  // one key head of `dim`, no values
  explicit operator bool() const { return kind != Kind::kAll; }
  bool Chooses() const { return kind == Kind::kKeys || kind == Kind::kBlocks; }
  bool operator==(const KeyChoice&) const = default;
  template <typename Visitor>
  void Visit(Visitor&& visitor) const {
    if (!Chooses()) return;
    visitor.Kv({kv_layer, n_heads, 1, dim, 0, false, true});
    visitor.UsesRope(rope, dim);
    visitor.Require(count > 0 && block > 0 && n_local >= 0 && n_heads > 0 && dim > 0,
                    "some keys are chosen");
  }
};

// The function applied to the gate of a head's output.
enum class GateActivation { kSigmoid, kSoftplus };

// Softmax attention with grouped heads: query head h reads key/value head h / (n_heads /
// n_kv_heads).
//
// Order: q, k, v = linears of the input (`gated_query`: for each head, q holds its query and then a
// gate of the same width); norms of q, k, v; rope of q, k; keys and values are stored; scores =
// scale * q.k, softcap, mask by window and chunk; softmax (with a sink: one more term exp(sink[h])
// in the denominator); weighted sum of values; times sigmoid(gate) or softplus(gate); output
// linear. `norms_after_rope`: q and k are rotated first, then normed. The temperature multiplies
// the query after that.
template <typename Form>
struct AttentionTensors {
  typename Form::Linear q, k, v, out;  // k and v are empty when !writes_kv
  typename Form::Linear gate;          // one row per query head, or as wide as the heads' outputs
  typename Form::Norm q_norm, k_norm, v_norm;  // over k_dim/v_dim per head, or the whole width
  typename Form::Vector sinks = {};            // F32, one per query head
  typename Form::Linear index_q, index_k;      // for a KeyChoice by blocks
  typename Form::Norm index_q_norm, index_k_norm;
  bool operator==(const AttentionTensors&) const = default;
};
struct Attention : AttentionTensors<InFile> {
  int kv_layer = -1;      // index into ModelSpec::kv_layers
  bool writes_kv = true;  // false: reads another layer's KV cache
  int n_heads = 0;
  int n_kv_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;
  bool v_from_k = false;  // v is the raw k projection (before norm and rope)
  bool gated_query = false;
  bool norms_after_rope = false;
  GateActivation gate_activation = GateActivation::kSigmoid;
  int rope = -1;      // index into ModelSpec::ropes, -1: none
  float scale = 1;    // applied to the scores
  float softcap = 0;  // c * tanh(score / c) when > 0
  QueryTemperature temperature;
  // Key j is visible to query i iff j >= i - i % chunk; 0: no chunks. The window of the KvLayer's
  // group then has the same length.
  int64_t chunk = 0;
  KeyChoice choice;
  bool operator==(const Attention&) const = default;

  template <typename Form>
  using Tensors = AttentionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Kv({kv_layer, n_heads, n_kv_heads, k_dim, v_dim, false, writes_kv});
    visitor.UsesRope(rope, k_dim);
    visitor.Require(n_kv_heads > 0 && n_heads > 0 && n_heads % n_kv_heads == 0,
                    "as many query heads for each key head");
    visitor.Require(k_dim > 0 && v_dim > 0, "heads hold values");
    visitor.Require(!v_from_k || (!v && k_dim == v_dim), "values from keys are as wide");
    visitor.Require(std::isfinite(scale) && softcap >= 0, "scores are finite");
    visitor.Require(temperature.length > 0 && temperature.offset >= 0 && chunk >= 0,
                    "runs of positions have a length");
    visitor.Require(!norms_after_rope ||
                        ((!q_norm || q_norm.width == k_dim) && (!k_norm || k_norm.width == k_dim)),
                    "norms after the rotation are of heads");
    visitor.Require(!gate || gate.n_out == n_heads || gate.n_out == n_heads * v_dim,
                    "gates are of heads or of their values");
    visitor.Require(!gate || !gated_query, "a head has one gate");
    visitor.Require(gate_activation == GateActivation::kSigmoid || !gated_query,
                    "gates after queries are sigmoids");
    const int64_t n_q = n_heads * k_dim * (gated_query ? 2 : 1);
    const int64_t n_k = n_kv_heads * k_dim, n_v = n_kv_heads * v_dim;
    visitor.Tensor(q, {.n_in = d_model, .n_out = n_q}, of.q...);
    visitor.Tensor(k, {.n_in = d_model, .n_out = n_k, .needed = writes_kv}, of.k...);
    visitor.Tensor(v, {.n_in = d_model, .n_out = n_v, .needed = writes_kv && !v_from_k}, of.v...);
    visitor.Tensor(out, {.n_in = n_heads * v_dim, .n_out = d_model}, of.out...);
    visitor.Tensor(gate, {.n_in = d_model, .n_out = gate.n_out, .needed = false}, of.gate...);
    visitor.Tensor(q_norm, {.n_in = k_dim, .n_out = n_heads, .needed = false}, of.q_norm...);
    visitor.Tensor(k_norm, {.n_in = k_dim, .n_out = n_kv_heads, .needed = false}, of.k_norm...);
    visitor.Tensor(v_norm, {.n_in = v_dim, .n_out = n_kv_heads, .needed = false}, of.v_norm...);
    visitor.Tensor(sinks, {.n_in = n_heads, .needed = false}, of.sinks...);
    choice.Visit(visitor);
    visitor.Require(!choice || (choice.kind == KeyChoice::Kind::kBlocks &&
                                choice.n_heads == n_kv_heads && chunk == 0),
                    "each key head chooses blocks");
    const int64_t n_index = choice.n_heads * choice.dim;
    const bool chooses = choice.Chooses();
    visitor.Tensor(index_q, {.n_in = d_model, .n_out = n_index, .needed = chooses}, of.index_q...);
    visitor.Tensor(index_k, {.n_in = d_model, .n_out = choice.dim, .needed = chooses},
                   of.index_k...);
    visitor.Tensor(index_q_norm, {.n_in = choice.dim, .n_out = choice.n_heads, .needed = false},
                   of.index_q_norm...);
    visitor.Tensor(index_k_norm, {.n_in = choice.dim, .needed = false}, of.index_k_norm...);
  }
};

// Softmax attention among all tokens of a text, including later ones. Keys and values live only as
// long as the step: nothing of a text is kept, and all of its rows are in one step.
//
// Order: q, k, v = linears of the input; norms of q and k; rope of q and k; the score of tokens i
// and j is scale * q_i.k_j - slopes[h] |i - j|, visible if |i - j| <= reach; softmax; weighted sum
// of values; output linear.
template <typename Form>
struct BidirectionalAttentionTensors {
  typename Form::Linear q, k, v, out;
  typename Form::Norm q_norm, k_norm;  // per head, or over the whole width
};
struct BidirectionalAttention : BidirectionalAttentionTensors<InFile> {
  int n_heads = 0;
  int n_kv_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;
  int64_t reach = -1;  // how far a token sees in both directions; -1: no limit
  int rope = -1;       // index into ModelSpec::ropes, -1: none
  float scale = 1;
  std::vector<float> slopes;  // one per query head; empty: no distance penalty

  template <typename Form>
  using Tensors = BidirectionalAttentionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.WholeText();
    visitor.UsesRope(rope, k_dim);
    visitor.Require(n_kv_heads > 0 && n_heads > 0 && n_heads % n_kv_heads == 0,
                    "as many query heads for each key head");
    visitor.Require(k_dim > 0 && v_dim > 0, "heads hold values");
    visitor.Require(reach >= -1, "a token sees itself");
    visitor.Require(std::isfinite(scale), "scores are finite");
    visitor.Require(slopes.empty() || static_cast<int>(slopes.size()) == n_heads,
                    "each query head has a slope");
    const int64_t n_k = n_kv_heads * k_dim, n_v = n_kv_heads * v_dim;
    visitor.Tensor(q, {.n_in = d_model, .n_out = n_heads * k_dim}, of.q...);
    visitor.Tensor(k, {.n_in = d_model, .n_out = n_k}, of.k...);
    visitor.Tensor(v, {.n_in = d_model, .n_out = n_v}, of.v...);
    visitor.Tensor(out, {.n_in = n_heads * v_dim, .n_out = d_model}, of.out...);
    visitor.Tensor(q_norm, {.n_in = k_dim, .n_out = n_heads, .needed = false}, of.q_norm...);
    visitor.Tensor(k_norm, {.n_in = k_dim, .n_out = n_kv_heads, .needed = false}, of.k_norm...);
  }
};

// Multi-head latent attention in its absorbed form: one shared "key head" of
// latent_dim + rope_dim values per token, the first latent_dim of which are also
// the value.
//
//   q_h = [nope, rope] per head, from q, or from q_b(q_a_norm(q_a(x)))
//   [c, k_rope] = kv_a(x);  c = kv_norm(c);  rope on q's and k's rope part; temperature on q
//   stored: [c, k_rope]
//   score = scale * ( (k_b[h] q_nope) . c  +  q_rope . k_rope )
//   o_h = v_b[h] (sum p c);   out(concat o_h)
template <typename Form>
struct LatentAttentionTensors {
  typename Form::Linear q;         // direct, or
  typename Form::Linear q_a, q_b;  // low-rank, with
  typename Form::Norm q_a_norm;
  typename Form::Linear kv_a;  // n_out = latent_dim + rope_dim
  typename Form::Norm kv_norm;
  typename Form::Stack k_b;  // per head: nope_dim -> latent_dim
  typename Form::Stack v_b;  // per head: latent_dim -> v_dim
  typename Form::Linear out;
  // For a KeyChoice by keys: queries from q_a_norm(q_a(x)), the rest from x.
  typename Form::Linear index_q, index_k;
  typename Form::Norm index_k_norm;
  typename Form::Linear index_weights;  // w_h, times index_scale
};
struct LatentAttention : LatentAttentionTensors<InFile> {
  int kv_layer = -1;  // n_heads 1, k_dim = latent + rope, v_dim 0
  int n_heads = 0;
  int64_t nope_dim = 0;  // per query head
  int64_t rope_dim = 0;
  int64_t latent_dim = 0;
  int64_t v_dim = 0;  // per head, after v_b
  int rope = -1;
  float scale = 1;
  QueryTemperature temperature;
  KeyChoice choice;
  float index_scale = 1;

  template <typename Form>
  using Tensors = LatentAttentionTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Kv({kv_layer, n_heads, 1, latent_dim + rope_dim, latent_dim, true, true});
    visitor.UsesRope(rope, rope_dim);
    visitor.Require(std::isfinite(scale), "scores are finite");
    visitor.Require(temperature.length > 0 && temperature.offset >= 0,
                    "runs of positions have a length");
    const int64_t n_q = n_heads * (nope_dim + rope_dim);
    visitor.Tensor(q, {.n_in = d_model, .n_out = n_q, .needed = !q_a}, of.q...);
    visitor.Tensor(q_a, {.n_in = d_model, .n_out = q_b.n_in, .needed = !q}, of.q_a...);
    visitor.Tensor(q_b, {.n_in = q_a.n_out, .n_out = n_q, .needed = !q}, of.q_b...);
    visitor.Tensor(q_a_norm, {.n_in = q_a.n_out, .needed = false}, of.q_a_norm...);
    visitor.Tensor(kv_a, {.n_in = d_model, .n_out = latent_dim + rope_dim}, of.kv_a...);
    visitor.Tensor(kv_norm, {.n_in = latent_dim, .needed = false}, of.kv_norm...);
    visitor.Tensor(k_b, PerHead(nope_dim, latent_dim), of.k_b...);
    visitor.Tensor(v_b, PerHead(latent_dim, v_dim), of.v_b...);
    visitor.Tensor(out, {.n_in = n_heads * v_dim, .n_out = d_model}, of.out...);
    choice.Visit(visitor);
    visitor.Require(choice.kind != KeyChoice::Kind::kBlocks, "the one key head chooses keys");
    visitor.Require(!choice.Chooses() || q_a, "queries have a low rank");
    const int64_t n_index = choice.n_heads * choice.dim;
    const bool chooses = choice.Chooses();
    visitor.Tensor(index_q, {.n_in = q_a.n_out, .n_out = n_index, .needed = chooses},
                   of.index_q...);
    visitor.Tensor(index_k, {.n_in = d_model, .n_out = choice.dim, .needed = chooses},
                   of.index_k...);
    visitor.Tensor(index_k_norm, {.n_in = choice.dim, .needed = false}, of.index_k_norm...);
    visitor.Tensor(index_weights, {.n_in = d_model, .n_out = choice.n_heads, .needed = chooses},
                   of.index_weights...);
  }

 private:
  Shape PerHead(int64_t n_in, int64_t n_out) const {
    return {.n_in = n_in, .n_out = n_out, .count = n_heads, .n_used = n_heads};
  }
};

// out(act(gate x) * (up x)); without a gate: out(act(up x)). With `output_gate` (one row) the
// result is multiplied by sigmoid(output_gate . x). With `sparsity` s, gates first become max(0,
// gate - mean - s * deviation), over all of a row's gates (deviation with n - 1).
template <typename Form>
struct DenseFfnTensors {
  typename Form::Linear gate, up, down;
  typename Form::Linear output_gate;
  bool operator==(const DenseFfnTensors&) const = default;
};
struct DenseFfn : DenseFfnTensors<InFile> {
  Activation activation = Activation::kSilu;
  ActivationNumbers numbers;
  float sparsity = 0;
  bool operator==(const DenseFfn&) const = default;

  template <typename Form>
  using Tensors = DenseFfnTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Require(up.n_out > 0, "the inner width is not 0");
    visitor.Require(!gate || activation != Activation::kXielu, "its activation has no gate");
    visitor.Require(sparsity == 0 || (gate && up.n_out > 1), "gates are sparse");
    visitor.Tensor(gate, {.n_in = d_model, .n_out = up.n_out, .needed = false}, of.gate...);
    visitor.Tensor(up, {.n_in = d_model, .n_out = up.n_out}, of.up...);
    visitor.Tensor(down, {.n_in = up.n_out, .n_out = d_model}, of.down...);
    visitor.Tensor(output_gate, {.n_in = d_model, .needed = false}, of.output_gate...);
  }
};

enum class RouterWeights {
  kSoftmax,          // softmax over all experts, before choosing
  kSigmoid,          // sigmoid of each logit
  kSoftmaxOfChosen,  // softmax over the logits of the chosen experts only
  // Each choice has its softmax over the experts that are not chosen before it and whose logits are
  // near: (chosen - logit) <= kNearLogits * max(chosen, |logit|).
  kSoftmaxOfNear,
  kRootSoftplus,  // sqrt(log(1 + e^logit))
};
inline constexpr float kNearLogits = 0.02f;

// Sends each token through the `n_used` best of `n_experts`.
//
// Scores are the weights above; `selection_bias` is added for choosing only. With groups, only the
// n_groups_used groups with the largest sums of their two best (biased) scores compete. Ties go to
// the lower expert. The weights of the chosen experts are divided by their sum (at least 6.1e-5) if
// `renormalize`, then multiplied by `weight_scale`. The experts' results, times their weights, are
// added in the order of choice. `weighs_inputs`: gate x and up x are multiplied by the weight
// instead of the result. With `by_token` the token's id alone chooses; scores only weigh.
template <typename Form>
struct MixtureOfExpertsTensors {
  typename Form::Linear router;  // n_out = n_experts
  // When set, the router reads this norm of the block's raw input (before any
  // norm of block or path) instead of the path's input.
  typename Form::Norm router_norm;
  typename Form::Vector selection_bias = {};  // F32, one per expert
  typename Form::Vector by_token = {};        // I32, n_used experts for each of n_tokens
  typename Form::Stack gate, up, down;
  bool operator==(const MixtureOfExpertsTensors&) const = default;
};
struct MixtureOfExperts : MixtureOfExpertsTensors<InFile> {
  RouterWeights weights = RouterWeights::kSoftmax;
  int n_experts = 0;
  int n_used = 0;
  int64_t n_tokens = 0;  // of by_token
  int n_groups = 1;
  int n_groups_used = 1;
  bool renormalize = false;
  float weight_scale = 1;
  bool weighs_inputs = false;
  // The router reads the stream from the beginning of the last block with keeps_input.
  bool routes_kept = false;
  Activation activation = Activation::kSilu;
  ActivationNumbers numbers;
  bool operator==(const MixtureOfExperts&) const = default;

  template <typename Form>
  using Tensors = MixtureOfExpertsTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.Require(n_groups > 0 && n_groups_used <= n_groups && n_experts % n_groups == 0,
                    "as many experts in each group");
    visitor.Require(n_used >= 1 && n_used <= n_experts && n_groups > 0 &&
                        n_used <= n_groups_used * (n_experts / n_groups),
                    "there are as many experts as are used");
    visitor.Require(std::isfinite(weight_scale), "weights are finite");
    visitor.Require(!routes_kept || !router_norm, "a router has one input");
    visitor.Require(weights != RouterWeights::kSoftmaxOfNear || !selection_bias,
                    "choices among near logits have no bias");
    visitor.Require(!weighs_inputs || (gate && !gate.bias && !up.bias),
                    "an input's weight passes through the products");
    visitor.Require(activation != Activation::kXielu, "experts have another activation");
    const auto experts = [&](int64_t n_in, int64_t n_out, bool needed) {
      return Shape{n_in, n_out, n_experts, n_used, needed};
    };
    visitor.Tensor(router, {.n_in = d_model, .n_out = n_experts}, of.router...);
    visitor.Tensor(router_norm, {.n_in = d_model, .needed = false}, of.router_norm...);
    visitor.Tensor(selection_bias, {.n_in = n_experts, .needed = false}, of.selection_bias...);
    visitor.Require(!by_token || (!selection_bias && n_groups == 1), "a token's id alone chooses");
    visitor.Table(by_token, n_used, n_tokens, of.by_token...);
    visitor.Tensor(gate, experts(d_model, up.n_out, false), of.gate...);
    visitor.Tensor(up, experts(d_model, up.n_out, true), of.up...);
    visitor.Tensor(down, experts(up.n_out, d_model, true), of.down...);
  }
};

// proj(act(gate x) * e) where e is this layer's part of the token's per-layer
// input (see PerLayerInput).
template <typename Form>
struct PerLayerGateTensors {
  typename Form::Linear gate, proj;
};
struct PerLayerGate : PerLayerGateTensors<InFile> {
  int layer = 0;
  Activation activation = Activation::kGeluTanh;

  template <typename Form>
  using Tensors = PerLayerGateTensors<Form>;
  template <typename Visitor, typename... Of>
  void Visit(int64_t d_model, Visitor&& visitor, Of&... of) const {
    visitor.UsesLayerInput(layer, gate.n_out);
    visitor.Tensor(gate, {.n_in = d_model, .n_out = gate.n_out}, of.gate...);
    visitor.Tensor(proj, {.n_in = gate.n_out, .n_out = d_model}, of.proj...);
  }
};

// All operations. Each backend declares and defines its own function of each.
#define WEFT_OPERATIONS(DO)   \
  DO(Attention)               \
  DO(LatentAttention)         \
  DO(ShortConvolution)        \
  DO(GatedDeltaNet)           \
  DO(StateSpace)              \
  DO(DenseFfn)                \
  DO(MixtureOfExperts)        \
  DO(PerLayerGate)            \
  DO(BidirectionalAttention)  \
  DO(UnfoldedLatentAttention) \
  DO(CompressedAttention)     \
  DO(ChannelDeltaNet)         \
  DO(SelectiveScan)           \
  DO(EnterSides)              \
  DO(LeaveSides)              \
  DO(PredictSides)            \
  DO(CorrectSides)            \
  DO(GatherSides)             \
  DO(SpreadSides)             \
  DO(LowRank)                 \
  DO(TimeMix)                 \
  DO(ChannelMix)

template <typename First, typename... Operations>
using VariantAfter = std::variant<Operations...>;
#define WEFT_AND_TYPE_(Operation) , Operation
using Op = VariantAfter<void WEFT_OPERATIONS(WEFT_AND_TYPE_)>;
#undef WEFT_AND_TYPE_

}  // namespace weft

#endif  // WEFT_MODEL_OPERATIONS_H_
