// Gemma 4: layers that see a window with sizes of their own, values normalised,
// layers that read an earlier layer's keys and values, inputs for every layer from a
// second table, and experts beside the dense feed-forward.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/strings.h"
#include "model/arch/architectures.h"

namespace weft {
namespace {

// What differs between layers that see all and layers that see a window.
struct Kind {
  int64_t head_dim = 0;
  int64_t window = 0;
  int rope = -1;
};

struct Gemma4 {
  Dims dims;
  Kind global;
  Kind local;
  std::vector<bool> is_local;
  int64_t n_own = 0;         // the first layers, that store keys and values
  int64_t input_width = 0;   // width of one layer's own input, 0: none
  MixtureOfExperts experts;  // without tensors; n_experts 0: none
  int64_t n_ff_expert = 0;
  std::vector<int> kv_layers;  // one per layer so far
};

void ReadKinds(SpecBuilder& b, Gemma4* model) {
  const Dims& dims = model->dims;
  if (!b.HasKey("attention.sliding_window_pattern")) {
    b.FailKey("attention.sliding_window_pattern", "is missing");
  }
  // Unlike in other families a single number speaks of all layers, not of a period.
  const std::vector<int64_t> local_flags =
      b.IntsOr("attention.sliding_window_pattern", b.n_blocks(), 0, 0, 1);
  model->is_local.assign(local_flags.begin(), local_flags.begin() + dims.n_layers);

  RopeShape shape = b.ReadRopeShape(RopePairs::kHalves, dims);
  model->global.head_dim = dims.k_dim;
  if (dims.k_dim != dims.v_dim) {
    b.FailKey("attention.value_length", "differs from attention.key_length");
  }
  model->global.rope = b.AddRope(MakeRope(shape, b.ReadRopeScaling(),
                                          b.OptionalDivisors("rope_freqs.weight", dims.k_dim / 2)));

  Dims local = dims;
  local.k_dim = b.IntOr("attention.key_length_swa", dims.k_dim, 1);
  if (b.IntOr("attention.value_length_swa", local.k_dim, 1) != local.k_dim) {
    b.FailKey("attention.value_length_swa", "differs from attention.key_length_swa");
  }
  shape.base = b.FloatOr("rope.freq_base_swa", 10000, 1.000001, 1e15);
  shape.n_values =
      b.IntOr("rope.dimension_count_swa", std::min(dims.n_rot, local.k_dim), 1, local.k_dim);
  if (shape.n_values % 2 != 0) b.FailKey("rope.dimension_count_swa", "is odd");
  model->local.head_dim = local.k_dim;
  model->local.window = b.Int("attention.sliding_window", 1, SpecBuilder::kMaxContext);
  model->local.rope = b.AddRope(MakeRope(shape, RopeScaling(), {}));
}

void ReadPerLayerInput(SpecBuilder& b, Gemma4* model) {
  const Dims& dims = model->dims;
  const int64_t width = b.IntOr("embedding_length_per_layer_input", 0, 0);
  model->input_width = width;
  if (width == 0) return;
  const int64_t n_values = width * dims.n_layers;
  PerLayerInput input;
  const int64_t n_vocab = b.spec().n_vocab;
  input.table = b.MatrixRows("per_layer_token_embd", n_values, n_vocab, 0, n_vocab).weight;
  input.proj = b.Matrix("per_layer_model_proj", dims.d_model, n_values);
  input.norm = b.RmsNorm("per_layer_proj_norm", width, dims.epsilon);
  input.width = width;
  input.table_scale = std::sqrt(static_cast<float>(width));
  input.proj_scale = 1 / std::sqrt(static_cast<float>(dims.d_model));
  input.sum_scale = 1 / std::sqrt(2.0f);
  b.spec().per_layer_input = input;
}

// The layer whose keys and values `layer` reads: itself, or the last of its kind that
// stores any; the last two of these are one local and one global layer.
int64_t SourceOf(SpecBuilder& b, const Gemma4& model, int64_t layer) {
  if (layer < model.n_own) return layer;
  const int64_t source = model.n_own - (model.is_local[layer] ? 2 : 1);
  if (source >= 0 && model.is_local[source] == model.is_local[layer] &&
      model.dims.n_kv_heads[source] == model.dims.n_kv_heads[layer]) {
    return source;
  }
  b.FailKey("attention.shared_kv_layers",
            StrCat("leaves layer ", layer, " without a layer whose keys it could read"));
  return 0;
}

Attention BuildAttention(SpecBuilder& b, Gemma4* model, int64_t layer) {
  const Dims& dims = model->dims;
  const Kind& kind = model->is_local[layer] ? model->local : model->global;
  Attention attention;
  attention.n_heads = static_cast<int>(dims.n_heads[layer]);
  attention.n_kv_heads = static_cast<int>(dims.n_kv_heads[layer]);
  attention.k_dim = attention.v_dim = kind.head_dim;
  attention.rope = kind.rope;
  attention.scale = 1;
  const int64_t n_q = dims.n_heads[layer] * kind.head_dim;
  const int64_t n_kv = dims.n_kv_heads[layer] * kind.head_dim;
  attention.q = b.Matrix(LayerName(layer, "attn_q"), dims.d_model, n_q);
  attention.q_norm = b.RmsNorm(LayerName(layer, "attn_q_norm"), kind.head_dim, dims.epsilon);
  attention.out = b.Matrix(LayerName(layer, "attn_output"), n_q, dims.d_model);

  const int64_t source = SourceOf(b, *model, layer);
  if (source != layer) {
    // Some files still carry the weights of the keys that such a layer never computes.
    for (const char* unread : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
      b.Ignore(LayerName(layer, unread));
    }
    attention.writes_kv = false;
    attention.kv_layer = model->kv_layers.empty() ? -1 : model->kv_layers[source];
    model->kv_layers.push_back(attention.kv_layer);
    return attention;
  }
  attention.k = b.Matrix(LayerName(layer, "attn_k"), dims.d_model, n_kv);
  attention.k_norm = b.RmsNorm(LayerName(layer, "attn_k_norm"), kind.head_dim, dims.epsilon);
  attention.v_from_k = !b.HasTensor(LayerName(layer, "attn_v.weight"));
  if (!attention.v_from_k) attention.v = b.Matrix(LayerName(layer, "attn_v"), dims.d_model, n_kv);
  attention.v_norm = PlainRmsNorm(kind.head_dim, dims.epsilon);
  attention.kv_layer =
      b.AddKvLayer(kind.window, attention.n_kv_heads, kind.head_dim, kind.head_dim);
  model->kv_layers.push_back(attention.kv_layer);
  return attention;
}

Block BuildFfn(SpecBuilder& b, const Gemma4& model, int64_t layer) {
  const Dims& dims = model.dims;
  const auto norm = [&](std::string_view name) {
    return b.RmsNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
  };
  const DenseFfn dense = b.MakeFfn(layer, dims, dims.n_ff[layer], Activation::kGeluTanh);
  if (!b.HasTensor(LayerName(layer, "ffn_gate_inp.weight"))) {
    return MakeBlock(norm("ffn_norm"), dense, norm("post_ffw_norm"));
  }
  if (model.experts.n_experts == 0) b.FailKey("expert_count", "is missing or 0");
  MixtureOfExperts moe = model.experts;
  b.AddExperts(layer, dims, model.n_ff_expert, &moe);
  moe.router_norm = PlainRmsNorm(dims.d_model, dims.epsilon);
  moe.router_norm.weight = b.Vector(LayerName(layer, "ffn_gate_inp.scale"), dims.d_model);
  moe.router_norm.factor = 1 / std::sqrt(static_cast<float>(dims.d_model));
  Block block;
  block.paths.push_back({norm("ffn_norm"), dense, norm("post_ffw_norm_1")});
  block.paths.push_back({norm("pre_ffw_norm_2"), moe, norm("post_ffw_norm_2")});
  block.post = norm("post_ffw_norm");
  return block;
}

}  // namespace

void BuildGemma4(SpecBuilder& b) {
  Gemma4 model;
  model.dims = b.ReadDims();
  const Dims& dims = model.dims;
  b.ReadEnds(dims);
  b.spec().embedding_scale = std::sqrt(static_cast<float>(dims.d_model));
  b.spec().logit_softcap = static_cast<float>(b.FloatOr("final_logit_softcapping", 30, 0, 1e6));
  ReadKinds(b, &model);
  ReadPerLayerInput(b, &model);
  model.n_own = dims.n_layers - b.IntOr("attention.shared_kv_layers", 0, 0, dims.n_layers - 1);
  if (b.IntOr("expert_count", 0, 0) > 0) {
    model.experts = b.ReadMoe({.renormalize = true, .activation = Activation::kGeluTanh});
    model.n_ff_expert = b.Int("expert_feed_forward_length", 1);
  }

  for (int64_t layer = 0; b.ok() && layer < dims.n_layers; ++layer) {
    const auto norm = [&](std::string_view name) {
      return b.RmsNorm(LayerName(layer, name), dims.d_model, dims.epsilon);
    };
    Layer out;
    out.blocks.push_back(MakeBlock(norm("attn_norm"), BuildAttention(b, &model, layer),
                                   norm("post_attention_norm")));
    out.blocks.push_back(BuildFfn(b, model, layer));
    if (model.input_width > 0) {
      PerLayerGate gate;
      gate.gate = b.Matrix(LayerName(layer, "inp_gate"), dims.d_model, model.input_width);
      gate.proj = b.Matrix(LayerName(layer, "proj"), model.input_width, dims.d_model);
      gate.layer = static_cast<int>(layer);
      out.blocks.push_back(MakeBlock(Norm(), gate, norm("post_norm")));
    }
    out.blocks.back().stream_scale =
        b.OptionalVector(LayerName(layer, "layer_output_scale.weight"), 1);
    b.spec().layers.push_back(std::move(out));
  }
}

}  // namespace weft
