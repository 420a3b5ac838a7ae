// The parts of SpecBuilder that several architectures share.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "model/spec_builder.h"

namespace weft {

TensorRef SpecBuilder::ReadScale(const std::string& name, int64_t count, bool has_bias) {
  // Tables of rows that are looked up have none, and Gemma 4 calls another tensor of its routers
  // so.
  const bool may_have =
      name == "output" || (name.starts_with("blk.") && !name.ends_with("embed_tokens") &&
                           !name.ends_with("ffn_gate_inp"));
  if (!may_have) return {};
  // Scales of activations, for hardware that multiplies in 4 bits.
  if (HasTensor(name + ".input_scale")) Vector(name + ".input_scale", count);
  const TensorRef scale = OptionalVector(name + ".scale", count);
  if (scale && has_bias)
    FailTensor(name + ".scale", "stands next to a bias, which is not supported");
  return scale;
}

Norm SpecBuilder::StreamNorm(int64_t layer, std::string_view name, const Dims& dims) {
  const std::string full_name = LayerName(layer, name);
  return dims.norms == NormKind::kRms ? RmsNorm(full_name, dims.d_model, dims.epsilon)
                                      : LayerNorm(full_name, dims.d_model, dims.epsilon);
}

Norm SpecBuilder::HeadLayerNorm(const std::string& name, int64_t k_dim, int64_t n_heads,
                                float epsilon) {
  Norm norm;
  norm.kind = NormKind::kLayer;
  norm.weight = Values(name + ".weight", {k_dim, n_heads});
  norm.width = k_dim;
  norm.epsilon = epsilon;
  return norm;
}

Linear SpecBuilder::ReadEmbedding(const Dims& dims) {
  const int index = file_.FindTensor("token_embd.weight");
  if (index < 0) {
    FailTensor("token_embd.weight", "is missing");
    return {};
  }
  spec_.n_vocab = file_.tensors()[index].dims[1];
  if (spec_.n_vocab < 1 || spec_.n_vocab > std::numeric_limits<int32_t>::max()) {
    FailTensor("token_embd.weight", "has no rows, or more than there can be token ids");
  }
  const Linear embedding = MatrixRows("token_embd", dims.d_model, spec_.n_vocab, 0, spec_.n_vocab);
  spec_.embedding = embedding.weight;
  return embedding;
}

void SpecBuilder::ReadEnds(const Dims& dims, const std::string& norm) {
  ReadEndsWithNorm(dims, dims.norms == NormKind::kRms
                             ? RmsNorm(norm, dims.d_model, dims.epsilon)
                             : LayerNorm(norm, dims.d_model, dims.epsilon));
}

void SpecBuilder::ReadEndsWithNorm(const Dims& dims, const Norm& norm) {
  const Linear embedding = ReadEmbedding(dims);
  if (!embedding) return;
  spec_.output_norm = norm;
  spec_.output =
      HasTensor("output.weight") ? Matrix("output", dims.d_model, spec_.n_vocab) : embedding;
}

// Whether the file has that layer, and it is no prediction head.
bool SpecBuilder::IsWholeLayer(int64_t layer) const {
  const std::string of_head = LayerName(layer, "nextn.");
  return HasTensor(LayerName(layer, "attn_norm.weight")) &&
         HasTensor(LayerName(layer, "ffn_norm.weight")) &&
         std::ranges::none_of(file_.tensors(), [&](const TensorInfo& tensor) {
           return tensor.name.starts_with(of_head);
         });
}

RopeShape SpecBuilder::ReadRopeShape(RopePairs pairs, const Dims& dims) {
  RopeShape shape;
  shape.pairs = pairs;
  shape.base = FloatOr("rope.freq_base", 10000, 1.000001, 1e15);
  shape.n_values = ok() ? dims.n_rot : 2;
  if (ok() && (dims.n_rot < 1 || dims.n_rot % 2 != 0 || dims.n_rot > dims.k_dim)) {
    FailKey("rope.dimension_count", StrCat("is ", dims.n_rot, ", expected an even number up to ",
                                           dims.k_dim, ", the values of a head"));
  }
  return shape;
}

std::vector<float> SpecBuilder::ReadRopeDivisors(const Dims& dims) {
  const int64_t n = dims.n_rot / 2;
  const std::vector<float> for_long = OptionalDivisors("rope_factors_long.weight", n);
  const std::vector<float> for_short = OptionalDivisors("rope_factors_short.weight", n);
  if (for_long.empty() && for_short.empty()) return OptionalDivisors("rope_freqs.weight", n);
  // The programs that write such files allocate contexts in multiples of this; rounding the same
  // way makes the same choice.
  constexpr int64_t kContextStep = 256;
  const int64_t context = (context_tokens() + kContextStep - 1) / kContextStep * kContextStep;
  const int64_t original =
      IntOr("rope.scaling.original_context_length", spec_.context_tokens, 1, kMaxContext);
  const bool is_long = context > original;
  const std::vector<float>& chosen = is_long ? for_long : for_short;
  if (chosen.empty()) {
    FailTensor(is_long ? "rope_factors_long.weight" : "rope_factors_short.weight",
               "is missing, though its counterpart is there");
  }
  return chosen;
}

std::vector<int64_t> SpecBuilder::FirstInts(std::string_view key, int64_t n, int64_t min,
                                            int64_t max) {
  std::vector<int64_t> values(static_cast<size_t>(n), min);
  const StatusOr<std::vector<int64_t>> array = file_.GetIntArray(Key(key));
  if (!array.ok()) return Fail(array.status()), values;
  if (std::ssize(*array) < n) {
    FailKey(key, StrCat("holds ", array->size(), " values for ", n, " layers"));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if ((*array)[i] >= min && (*array)[i] <= max) {
      values[i] = (*array)[i];
    } else {
      FailKey(key, StrCat("holds ", (*array)[i], ", expected ", min, " to ", max));
    }
  }
  return values;
}

TensorRef SpecBuilder::Table(const std::string& full_name, int64_t n_in, int64_t n_rows) {
  return TensorRef{Find(full_name, {n_in, n_rows}, /*needs_f32=*/false)};
}

TensorRef SpecBuilder::NumberTable(const std::string& full_name, int64_t n_in, int64_t n_rows,
                                   int64_t limit) {
  const int index = file_.FindTensor(full_name);
  if (!ok()) return {};
  const TensorInfo* const tensor =
      index < 0 ? nullptr : &file_.tensors()[static_cast<size_t>(index)];
  if (tensor == nullptr || tensor->type != DType::kI32 || tensor->dims[0] != n_in ||
      tensor->rows() != n_rows) {
    FailTensor(full_name, StrCat("is missing or no table of numbers, expected I32 and [", n_in,
                                 ", ", n_rows, "]"));
    return {};
  }
  used_[static_cast<size_t>(index)] = true;
  for (int64_t i = 0; i < n_in * n_rows; ++i) {
    int32_t number = 0;
    std::memcpy(&number, tensor->data.data() + i * static_cast<int64_t>(sizeof(number)),
                sizeof(number));
    if (number >= 0 && number < limit) continue;
    FailTensor(full_name, StrCat("holds ", number, ", expected 0 to ", limit - 1));
    return {};
  }
  return {index};
}

int SpecBuilder::AddRope(const Rope& rope) {
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    if (spec_.ropes[i] == rope) return static_cast<int>(i);
  }
  for (const double frequency : rope.frequencies) {
    if (!std::isfinite(frequency)) FailKey("rope.freq_base", "gives frequencies without end");
  }
  spec_.ropes.push_back(rope);
  return static_cast<int>(spec_.ropes.size()) - 1;
}

void SpecBuilder::ReadRopeAxes(bool interleaved, Rope* rope) {
  constexpr std::string_view kKey = "rope.dimension_sections";
  constexpr int64_t kSections = 4;  // time, rows, columns, nothing
  if (!HasKey(kKey)) return;
  const std::vector<int64_t> n = IntsOr(kKey, kSections, 0, 0, kMaxHeadDim);
  const int64_t n_pairs = n[0] + n[1] + n[2] + n[3];
  if (!ok() || n_pairs == 0) return;
  const auto axis_of = [&](int64_t pair) {
    if (interleaved) return pair < 3 * n[pair % 3] ? pair % 3 : int64_t{kTimeAxis};
    if (pair >= n[0] && pair < n[0] + n[1]) return int64_t{kRowAxis};
    return pair >= n[0] + n[1] && pair < n_pairs - n[3] ? int64_t{kColumnAxis} : int64_t{kTimeAxis};
  };
  for (int64_t i = 0; i < std::ssize(rope->frequencies); ++i) {
    rope->axes.push_back(static_cast<uint8_t>(axis_of(i % n_pairs)));
  }
}

void SpecBuilder::ReadRowParts() {
  const int64_t n_layers = std::ssize(spec_.layers);
  const int64_t n = IntOr("n_deepstack_layers", 0, 0, kMaxContext);
  if (!ok()) return;
  if (n > n_layers) {
    return FailKey("n_deepstack_layers", StrCat("is ", n, " in a model of ", n_layers, " layers"));
  }
  spec_.n_row_parts = 1 + n;
  for (int64_t i = 0; i < n; ++i) {
    spec_.layers[i].blocks.back().row_part = static_cast<int>(i) + 1;
  }
}

int SpecBuilder::AddKvLayer(int64_t window, int64_t n_heads, int64_t k_dim, int64_t v_dim) {
  size_t group = 0;
  while (group < spec_.kv_groups.size() && spec_.kv_groups[group].window != window) ++group;
  if (group == spec_.kv_groups.size())
    spec_.kv_groups.push_back({.window = window, .kv_layers = {}});
  const int index = static_cast<int>(spec_.kv_layers.size());
  spec_.kv_layers.push_back({.group = static_cast<int>(group),
                             .n_heads = static_cast<int>(n_heads),
                             .k_dim = k_dim,
                             .v_dim = v_dim});
  spec_.kv_groups[group].kv_layers.push_back(index);
  return index;
}

int SpecBuilder::AddSlot(SlotKind kind, int64_t n_floats) {
  spec_.slots.push_back({.kind = kind, .n_floats = n_floats});
  return static_cast<int>(spec_.slots.size()) - 1;
}

AttentionShape SpecBuilder::ShapeOf(const Dims& dims, int64_t layer) const {
  return {.n_heads = dims.n_heads[layer],
          .n_kv_heads = dims.n_kv_heads[layer],
          .k_dim = dims.k_dim,
          .v_dim = dims.v_dim,
          .window = 0,
          .rope = -1,
          .gated_query = false,
          .norms = HeadNorms::kNone};
}

template <typename AttentionOp>
void SpecBuilder::ReadAttentionTensors(int64_t layer, const Dims& dims, const AttentionShape& shape,
                                       AttentionOp* attention) {
  const int64_t n_q = shape.n_heads * shape.k_dim * (shape.gated_query ? 2 : 1);
  const int64_t n_k = shape.n_kv_heads * shape.k_dim;
  const int64_t n_v = shape.n_kv_heads * shape.v_dim;
  const std::string fused = LayerName(layer, "attn_qkv");
  if (HasTensor(fused + ".weight")) {
    const int64_t n_rows = n_q + n_k + n_v;
    attention->q = MatrixRows(fused, dims.d_model, n_rows, 0, n_q);
    attention->k = MatrixRows(fused, dims.d_model, n_rows, n_q, n_k);
    attention->v = MatrixRows(fused, dims.d_model, n_rows, n_q + n_k, n_v);
  } else {
    attention->q = Matrix(LayerName(layer, "attn_q"), dims.d_model, n_q);
    attention->k = Matrix(LayerName(layer, "attn_k"), dims.d_model, n_k);
    attention->v = Matrix(LayerName(layer, "attn_v"), dims.d_model, n_v);
  }
  attention->out =
      Matrix(LayerName(layer, "attn_output"), shape.n_heads * shape.v_dim, dims.d_model);

  const std::string q_norm = LayerName(layer, "attn_q_norm"),
                    k_norm = LayerName(layer, "attn_k_norm");
  if (shape.norms == HeadNorms::kAlways) {
    attention->q_norm = RmsNorm(q_norm, shape.k_dim, dims.epsilon);
    attention->k_norm = RmsNorm(k_norm, shape.k_dim, dims.epsilon);
  } else if (shape.norms == HeadNorms::kIfAny) {
    attention->q_norm = OptionalRmsNorm(q_norm, shape.k_dim, dims.epsilon);
    attention->k_norm = OptionalRmsNorm(k_norm, shape.k_dim, dims.epsilon);
  }
}

Attention SpecBuilder::MakeAttention(int64_t layer, const Dims& dims, const AttentionShape& shape) {
  Attention attention;
  attention.kv_layer = AddKvLayer(shape.window, shape.n_kv_heads, shape.k_dim, shape.v_dim);
  attention.n_heads = static_cast<int>(shape.n_heads);
  attention.n_kv_heads = static_cast<int>(shape.n_kv_heads);
  attention.k_dim = shape.k_dim;
  attention.v_dim = shape.v_dim;
  attention.rope = shape.rope;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.k_dim)));
  attention.gated_query = shape.gated_query;

  ReadAttentionTensors(layer, dims, shape, &attention);
  return attention;
}

BidirectionalAttention SpecBuilder::MakeBidirectionalAttention(int64_t layer, const Dims& dims,
                                                               const AttentionShape& shape) {
  BidirectionalAttention attention;
  attention.n_heads = static_cast<int>(shape.n_heads);
  attention.n_kv_heads = static_cast<int>(shape.n_kv_heads);
  attention.k_dim = shape.k_dim;
  attention.v_dim = shape.v_dim;
  attention.rope = shape.rope;
  attention.reach = shape.window > 0 ? shape.window / 2 : -1;
  attention.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.k_dim)));
  ReadAttentionTensors(layer, dims, shape, &attention);
  return attention;
}

Convolution SpecBuilder::MakeConvolution(const std::string& name, int64_t n_channels,
                                         int64_t n_taps) {
  Convolution convolution;
  convolution.kernel = Values(name + ".weight", {n_taps, n_channels});
  convolution.bias = OptionalVector(name + ".bias", n_channels);
  convolution.n_channels = n_channels;
  convolution.n_taps = n_taps;
  convolution.slot = AddSlot(SlotKind::kConvolution, (n_taps - 1) * n_channels);
  return convolution;
}

StateSpaceShape SpecBuilder::ReadStateSpaceShape() {
  StateSpaceShape shape;
  const int64_t inner = Int("ssm.inner_size", 1);
  shape.n_heads = Int("ssm.time_step_rank", 1, kMaxHeadDim);
  shape.n_groups = Int("ssm.group_count", 1, kMaxHeadDim);
  shape.state_dim = Int("ssm.state_size", 1, kMaxHeadDim);
  shape.n_taps = Int("ssm.conv_kernel", 2, kMaxTaps);
  shape.head_dim = inner / shape.n_heads;
  if (ok() && (inner % shape.n_heads != 0 || shape.n_heads % shape.n_groups != 0)) {
    FailKey("ssm.time_step_rank",
            StrCat("is ", shape.n_heads, " heads, which do not part ", inner, " values into ",
                   shape.n_groups, " groups of as many heads"));
  }
  return shape;
}

StateSpace SpecBuilder::MakeStateSpace(int64_t layer, const Dims& dims,
                                       const StateSpaceShape& shape) {
  const auto name = [&](std::string_view part) { return LayerName(layer, part); };
  const int64_t inner = shape.n_heads * shape.head_dim;
  const int64_t n_channels = inner + 2 * shape.n_groups * shape.state_dim;
  StateSpace op;
  op.n_heads = static_cast<int>(shape.n_heads);
  op.n_groups = static_cast<int>(shape.n_groups);
  op.head_dim = shape.head_dim;
  op.state_dim = shape.state_dim;
  op.in = Matrix(name("ssm_in"), dims.d_model, inner + n_channels + shape.n_heads);
  op.convolution = MakeConvolution(name("ssm_conv1d"), n_channels, shape.n_taps);
  op.step_bias = Vector(name("ssm_dt.bias"), shape.n_heads);
  op.rate = Values(name("ssm_a"), {1, shape.n_heads});
  op.skip = Values(name("ssm_d"), {1, shape.n_heads});
  if (HasTensor(name("ssm_norm.weight"))) {
    op.norm = PlainRmsNorm(inner / shape.n_groups, dims.epsilon);
    op.norm.weight = Values(name("ssm_norm.weight"), {inner / shape.n_groups, shape.n_groups});
  }
  op.out = Matrix(name("ssm_out"), inner, dims.d_model);
  op.slot = AddSlot(SlotKind::kStateSpace, inner * shape.state_dim);
  return op;
}

DenseFfn SpecBuilder::MakeFfn(int64_t layer, const Dims& dims, int64_t n_ff, Activation activation,
                              std::string_view suffix) {
  if (n_ff < 1) FailKey("feed_forward_length", "is missing or 0");
  DenseFfn ffn;
  ffn.activation = activation;
  ffn.gate = Matrix(LayerName(layer, StrCat("ffn_gate", suffix)), dims.d_model, n_ff);
  ffn.up = Matrix(LayerName(layer, StrCat("ffn_up", suffix)), dims.d_model, n_ff);
  ffn.down = Matrix(LayerName(layer, StrCat("ffn_down", suffix)), n_ff, dims.d_model);
  return ffn;
}

DenseFfn SpecBuilder::MakeFusedFfn(int64_t layer, const Dims& dims, int64_t n_ff,
                                   std::string_view suffix) {
  if (n_ff < 1) FailKey("feed_forward_length", "is missing or 0");
  DenseFfn ffn;
  const std::string up = LayerName(layer, StrCat("ffn_up", suffix));
  ffn.gate = MatrixRows(up, dims.d_model, 2 * n_ff, 0, n_ff);
  ffn.up = MatrixRows(up, dims.d_model, 2 * n_ff, n_ff, n_ff);
  ffn.down = Matrix(LayerName(layer, StrCat("ffn_down", suffix)), n_ff, dims.d_model);
  return ffn;
}

DenseFfn SpecBuilder::MakeFfnWithoutGate(int64_t layer, const Dims& dims, int64_t n_ff,
                                         Activation activation) {
  if (n_ff < 1) FailKey("feed_forward_length", "is missing or 0");
  DenseFfn ffn;
  ffn.activation = activation;
  ffn.up = Matrix(LayerName(layer, "ffn_up"), dims.d_model, n_ff);
  ffn.down = Matrix(LayerName(layer, "ffn_down"), n_ff, dims.d_model);
  return ffn;
}

void SpecBuilder::AddExperts(int64_t layer, const Dims& dims, int64_t n_ff, MixtureOfExperts* moe) {
  if (n_ff < 1) FailKey("expert_feed_forward_length", "is missing or 0");
  const int64_t count = moe->n_experts;
  moe->router = Matrix(LayerName(layer, "ffn_gate_inp"), dims.d_model, count);
  // Files of Hy 3 name it without an ending.
  const std::string bias = LayerName(layer, "exp_probs_b");
  moe->selection_bias = OptionalVector(HasTensor(bias) ? bias : bias + ".bias", count);
  const std::string fused = LayerName(layer, "ffn_gate_up_exps");
  if (HasTensor(fused + ".weight")) {
    moe->gate = StackRows(fused, dims.d_model, 2 * n_ff, 0, n_ff, count);
    moe->up = StackRows(fused, dims.d_model, 2 * n_ff, n_ff, n_ff, count);
  } else {
    moe->gate = Stack(LayerName(layer, "ffn_gate_exps"), dims.d_model, n_ff, count);
    moe->up = Stack(LayerName(layer, "ffn_up_exps"), dims.d_model, n_ff, count);
  }
  moe->down = Stack(LayerName(layer, "ffn_down_exps"), n_ff, dims.d_model, count);
}

ExpertLayers SpecBuilder::ReadExpertLayers(const Dims& dims, const MoeDefaults& defaults) {
  ExpertLayers layers;
  layers.experts = ReadMoe(defaults);
  layers.n_dense = IntOr("leading_dense_block_count", 0, 0);
  layers.n_ff = HasKey("expert_feed_forward_length")
                    ? IntsOr("expert_feed_forward_length", n_blocks_, 0, 0)
                    : dims.n_ff;
  return layers;
}

void SpecBuilder::AddFfnPaths(int64_t layer, const Dims& dims, const ExpertLayers& layers,
                              Block* block) {
  if (layer < layers.n_dense) {
    block->paths.push_back({Norm(), MakeFfn(layer, dims, dims.n_ff[layer]), Norm()});
    return;
  }
  MixtureOfExperts moe = layers.experts;
  AddExperts(layer, dims, layers.n_ff[layer], &moe);
  block->paths.push_back({Norm(), std::move(moe), Norm()});
  if (layers.n_ff_shared < 1) return;
  block->paths.push_back(
      {Norm(), MakeFfn(layer, dims, layers.n_ff_shared, Activation::kSilu, "_shexp"), Norm()});
}

void SpecBuilder::AddDenseOrExperts(int64_t layer, const Dims& dims, int64_t n_dense,
                                    int64_t n_ff_expert, int64_t n_shared,
                                    const MixtureOfExperts& experts, Block* block) {
  if (layer < n_dense) {
    block->paths.push_back({Norm(), MakeFfn(layer, dims, dims.n_ff[layer]), Norm()});
    return;
  }
  MixtureOfExperts moe = experts;
  AddExperts(layer, dims, n_ff_expert, &moe);
  block->paths.push_back({Norm(), std::move(moe), Norm()});
  if (n_shared < 1) return;
  block->paths.push_back(
      {Norm(), MakeFfn(layer, dims, n_shared * n_ff_expert, Activation::kSilu, "_shexp"), Norm()});
}

void SpecBuilder::AddExpertsBesideGated(int64_t layer, const Dims& dims, int64_t n_ff_expert,
                                        int64_t n_ff_shared, const MixtureOfExperts& experts,
                                        Block* block) {
  MixtureOfExperts moe = experts;
  AddExperts(layer, dims, n_ff_expert, &moe);
  block->paths.push_back({Norm(), std::move(moe), Norm()});
  DenseFfn shared = MakeFfn(layer, dims, n_ff_shared, Activation::kSilu, "_shexp");
  shared.output_gate = Matrix(LayerName(layer, "ffn_gate_inp_shexp"), dims.d_model, 1);
  block->paths.push_back({Norm(), std::move(shared), Norm()});
}

Norm PlainRmsNorm(int64_t width, float epsilon) {
  Norm norm;
  norm.kind = NormKind::kRms;
  norm.width = width;
  norm.epsilon = epsilon;
  return norm;
}

Block MakeBlock(Norm pre, Op op, Norm post) {
  Block block;
  block.pre = pre;
  block.paths.push_back(Path{.pre = {}, .op = std::move(op), .post = {}});
  block.post = post;
  return block;
}

}  // namespace weft
