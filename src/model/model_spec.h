// What an architecture is, as data.
//
// A ModelSpec says which tensors a model has and how they act on a token's
// residual stream. It holds no weights and no code: `model/arch/*.cc` builds it
// from a file's metadata, a backend executes it, and `backend/reference` is its
// meaning, block by block. Nothing above model/ knows an architecture's name.
//
// The shape of every model here:
//
//   x = embedding(token) * embedding_scale
//   for layer in layers: for block in layer.blocks:
//     h = block.pre(x)
//     y = sum over paths p:  p.post(p.op(p.pre(h)))
//     x = (x + block.residual_scale * block.post(y)) * block.stream_scale
//   logits = softcap(output(output_norm(x)) * logit_scale)
//
// A norm that is absent is the identity. An ordinary transformer layer is two
// blocks of one path each: attention, feed-forward. Paths side by side are a
// mixture of experts beside its shared expert, or attention beside a state space.
#ifndef WEFT_MODEL_MODEL_SPEC_H_
#define WEFT_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "formats/model_file.h"

namespace weft {

// --- references to weights ----------------------------------------------------

// A tensor of the model file, by its index in ModelFile::tensors(). Shapes were
// checked when the spec was built.
struct TensorRef {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const TensorRef&) const = default;
};

// out = W x + b. W is rows [first_row, first_row + n_out) of a matrix tensor whose
// rows are n_in values long (a fused tensor serves several Linears). The bias is a
// whole F32 vector of n_out values.
struct Linear {
  TensorRef weight;
  TensorRef bias;
  int64_t first_row = 0;
  int64_t n_in = 0;
  int64_t n_out = 0;
  explicit operator bool() const { return static_cast<bool>(weight); }
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
};

enum class NormKind { kNone, kRms, kLayer };

// y = x / rms(x) * weight (kRms), or the classic layer norm with its bias
// (kLayer). `weight` absent means all ones. Applied over groups of `width`
// values: the whole vector, or each head by itself.
struct Norm {
  NormKind kind = NormKind::kNone;
  TensorRef weight;
  TensorRef bias;
  int64_t width = 0;
  float epsilon = 0;
  // Multiplies the normalised value (before the weight); 1 for nearly everybody.
  float factor = 1;
  explicit operator bool() const { return kind != NormKind::kNone; }
  bool operator==(const Norm&) const = default;
};

// --- position -------------------------------------------------------------------

enum class RopePairs {
  kAdjacent,  // rotates (0,1), (2,3), ...
  kHalves,    // rotates (0, n/2), (1, n/2+1), ...
};

// Rotary position embedding of the first 2 * frequencies.size() values of a head
// (of its rope part, in LatentAttention): pair i turns by
// position * frequencies[i] radians, and cosine and sine are multiplied by
// `magnitude`. All scalings (linear, YaRN, per-dimension factors) are already in
// the frequencies.
struct Rope {
  RopePairs pairs = RopePairs::kHalves;
  std::vector<double> frequencies;
  float magnitude = 1;
  bool operator==(const Rope&) const = default;
};

// --- state ----------------------------------------------------------------------

// What one attention layer keeps per token position. Layers that share a cache
// name the same KvLayer.
struct KvLayer {
  int group = 0;  // index into ModelSpec::kv_groups
  int n_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;  // per head; 0 where values are the first part of the keys
};

// Layers whose pages live and die together, because they see the same window.
// A page of the group holds a fixed number of positions of all its layers.
struct KvGroup {
  int64_t window = 0;          // key j is visible to query i iff i - j < window; 0: all
  std::vector<int> kv_layers;  // indices into ModelSpec::kv_layers
};

// One fixed-size recurrent state per session: what a token leaves behind for the
// next, beside pages. Zero before the first token; copied on fork, checkpointed,
// saved. How a backend lays its floats out is its own matter.
enum class SlotKind { kConvolution, kDeltaNet, kStateSpace };
struct SlotState {
  SlotKind kind;
  int64_t n_floats = 0;
};

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
};

// Softmax attention with grouped heads: query head h reads key/value head
// h / (n_heads / n_kv_heads).
//
// Order: q, k, v = linears of the input; `gated_query`: q holds for each head
// first its query, then a gate of the same width; norms of q, k, v; rope of q, k; keys and values
// are stored; scores = scale * q.k, softcap, mask by window; softmax (with a sink:
// one more term exp(sink[h]) in the denominator); weighted sum of values; times
// sigmoid(gate); output linear.
struct Attention {
  int kv_layer = -1;      // index into ModelSpec::kv_layers
  bool writes_kv = true;  // false: reads what another layer stored
  int n_heads = 0;
  int n_kv_heads = 0;
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;
  Linear q, k, v, out;    // k and v are empty when !writes_kv
  bool v_from_k = false;  // v is the raw k projection (before norm and rope)
  bool gated_query = false;
  Norm q_norm, k_norm, v_norm;  // width k_dim/v_dim: per head; or the whole width
  int rope = -1;                // index into ModelSpec::ropes, -1: none
  float scale = 1;              // applied to the scores
  float softcap = 0;            // c * tanh(score / c) when > 0
  TensorRef sinks;              // F32, one per query head
};

// Multi-head latent attention in its absorbed form: one shared "key head" of
// latent_dim + rope_dim values per token, the first latent_dim of which are also
// the value.
//
//   q_h = [nope, rope] per head, from q, or from q_b(q_a_norm(q_a(x)))
//   [c, k_rope] = kv_a(x);  c = kv_norm(c);  rope on q's and k's rope part
//   stored: [c, k_rope]
//   score = scale * ( (k_b[h] q_nope) . c  +  q_rope . k_rope )
//   o_h = v_b[h] (sum p c);   out(concat o_h)
struct LatentAttention {
  int kv_layer = -1;  // n_heads 1, k_dim = latent + rope, v_dim 0
  int n_heads = 0;
  int64_t nope_dim = 0;  // per query head
  int64_t rope_dim = 0;
  int64_t latent_dim = 0;
  int64_t v_dim = 0;  // per head, after v_b
  Linear q;           // direct, or
  Linear q_a, q_b;    // low-rank, with
  Norm q_a_norm;
  Linear kv_a;        // n_out = latent_dim + rope_dim
  Norm kv_norm;       // over latent_dim
  StackedLinear k_b;  // per head: nope_dim -> latent_dim
  StackedLinear v_b;  // per head: latent_dim -> v_dim
  Linear out;
  int rope = -1;
  float scale = 1;
};

// A short causal convolution of each channel by itself. With u_t the channels'
// inputs at position t (zero before the first token):
//   y_t[c] = bias[c] + sum over j in [0, n_taps):  kernel[c][j] * u_{t - (n_taps - 1) + j}[c]
// The last tap belongs to the position itself. State: the n_taps - 1 latest inputs
// of every channel.
struct Convolution {
  TensorRef kernel;  // F32, n_channels rows of n_taps
  TensorRef bias;    // F32, one per channel
  int64_t n_channels = 0;
  int64_t n_taps = 0;
  int slot = -1;  // index into ModelSpec::slots; (n_taps - 1) * n_channels floats
};

// A gated convolution in place of attention:
//   [b, c, x] = in(h), each n_channels wide
//   out(c * convolution(b * x))
struct ShortConvolution {
  Linear in;  // n_out = 3 * n_channels
  Convolution convolution;
  Linear out;
};

// Which key head a value head v of linear attention reads.
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
struct GatedDeltaNet {
  int n_k_heads = 0;
  int n_v_heads = 0;  // a multiple of n_k_heads
  int64_t k_dim = 0;  // per head
  int64_t v_dim = 0;
  KeyHeads key_heads = KeyHeads::kTiled;
  Linear qkv, gate;
  Linear beta, decay;  // n_out = n_v_heads each, or
  Linear beta_decay;   // both: for each key head the betas of its (interleaved)
                       // value heads, then their decays
  Convolution convolution;
  TensorRef decay_bias, decay_rate;  // F32, one per value head
  float epsilon = 0;
  Norm norm;  // over v_dim, per head
  Linear out;
  int slot = -1;  // index into ModelSpec::slots; n_v_heads * k_dim * v_dim floats
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
struct StateSpace {
  int n_heads = 0;
  int n_groups = 0;  // divides n_heads
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  Linear in;
  Convolution convolution;
  TensorRef step_bias, rate, skip;  // F32, one per head
  Norm norm;                        // over d_inner / n_groups values, or absent
  Linear out;
  int slot = -1;  // index into ModelSpec::slots; n_heads * state_dim * head_dim floats
};

// out(act(gate x) * (up x)); without a gate: out(act(up x)). With `output_gate`
// (one row) the result is multiplied by sigmoid(output_gate . x).
struct DenseFfn {
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
  float limit = 0;  // of kClampedSwiglu
  Linear output_gate;
};

enum class RouterWeights {
  kSoftmax,          // softmax over all experts, before choosing
  kSigmoid,          // sigmoid of each logit
  kSoftmaxOfChosen,  // softmax over the logits of the chosen experts only
};

// Sends each token through the `n_used` best of `n_experts`.
//
// Scores are the weights above; `selection_bias` is added for choosing only. With
// groups, the n_groups_used groups whose two best (biased) scores sum highest
// compete alone. Ties go to the lower expert. The weights of the chosen are
// divided by their sum (at least 6.1e-5) if `renormalize`, then multiplied by
// `weight_scale`. The experts' results are added in the order of choice.
struct MixtureOfExperts {
  Linear router;  // n_out = n_experts
  // When set, the router reads this norm of the block's raw input (before any
  // norm of block or path) instead of the path's input.
  Norm router_norm;
  RouterWeights weights = RouterWeights::kSoftmax;
  TensorRef selection_bias;  // F32, one per expert
  int n_experts = 0;
  int n_used = 0;
  int n_groups = 1;
  int n_groups_used = 1;
  bool renormalize = false;
  float weight_scale = 1;
  StackedLinear gate, up, down;
  Activation activation = Activation::kSilu;
  float limit = 0;
};

// proj(act(gate x) * e) where e is this layer's part of the token's per-layer
// input (see PerLayerInput).
struct PerLayerGate {
  Linear gate, proj;
  int layer = 0;
  Activation activation = Activation::kGeluTanh;
};

using Op = std::variant<Attention, LatentAttention, ShortConvolution, GatedDeltaNet, StateSpace,
                        DenseFfn, MixtureOfExperts, PerLayerGate>;

struct Path {
  Norm pre;
  Op op;
  Norm post;
};

struct Block {
  Norm pre;
  std::vector<Path> paths;
  Norm post;
  float residual_scale = 1;
  TensorRef stream_scale;  // one F32 value that multiplies the whole stream; absent: 1
};

struct Layer {
  std::vector<Block> blocks;
};

// --- the whole ----------------------------------------------------------------------

// Inputs that every layer adds for itself: for layer l and token t,
//   e_l = ( norm(proj(x)_l * proj_scale) + table[t]_l * table_scale ) * sum_scale
// where x is the scaled embedding, and _l the l-th run of `width` values.
struct PerLayerInput {
  TensorRef table;  // rows of n_layers * width values, one per token
  Linear proj;      // n_out = n_layers * width
  Norm norm;        // over `width`
  int64_t width = 0;
  float table_scale = 1;
  float proj_scale = 1;
  float sum_scale = 1;
};

struct ModelSpec {
  std::string architecture;  // as the file names it; for messages only
  std::string name;          // general.name, may be empty
  int64_t n_vocab = 0;
  int64_t d_model = 0;
  int64_t context_tokens = 0;  // what the model was trained for

  TensorRef embedding;  // n_vocab rows of d_model
  float embedding_scale = 1;
  std::optional<PerLayerInput> per_layer_input;
  std::vector<Layer> layers;
  Norm output_norm;
  Linear output;          // may name the embedding's tensor (tied)
  float logit_scale = 1;  // multiplies the logits
  float logit_softcap = 0;

  std::vector<Rope> ropes;
  std::vector<KvLayer> kv_layers;
  std::vector<KvGroup> kv_groups;
  std::vector<SlotState> slots;
};

struct SpecOptions {
  // The longest context the caller will use; 0 means the trained length. Models
  // with two sets of rope factors (phi3) choose by it.
  int64_t context_tokens = 0;
};

// Builds the spec of a file whose architecture is registered. An unknown
// architecture is UNIMPLEMENTED and lists the known ones; a missing or misshapen
// key or tensor is an error that names it.
StatusOr<ModelSpec> BuildModelSpec(const ModelFile& file, const SpecOptions& options);

// The path of `spec` whose operation writes state (pages or slots) last; null when none
// does. Rows that nobody asks logits of need no more than it writes for them.
const Path* LastToWriteState(const ModelSpec& spec);

// The registered architectures' names, sorted.
std::vector<std::string> KnownArchitectures();

}  // namespace weft

#endif  // WEFT_MODEL_MODEL_SPEC_H_
